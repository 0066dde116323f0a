"""Acks that nobody waits for, as in AMQP."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from lmqcluster.client import Client
from lmqcluster.wire.errors import LmqError

from .worker_session import WorkerSession

__all__ = ["Acks"]


class Acks:
    """Sends acks from a thread of its own, which begins with the first. While some are under way, the next ones gather.

    A message whose ack does not reach the cluster comes again when the worker's session has ended.

    Args:
        client: gives the client, whenever one is needed.
        session: lets go of what is acknowledged.
        logger: hears of acks that did not succeed.
    """

    def __init__(self, client: Callable[[], Client], session: WorkerSession, logger: logging.Logger) -> None:
        self._client = client
        self._session = session
        self._logger = logger
        self._changed = threading.Condition()
        self._gathered: dict[str, list[str]] = {}
        self._is_busy = self._is_closed = False
        self._thread: threading.Thread | None = None

    def add(self, queue: str, receipt: str) -> None:
        """Acknowledge a message soon."""
        with self._changed:
            self._gathered.setdefault(queue, []).append(receipt)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="lmqcluster-acks", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until all acks are answered, or given up."""
        with self._changed:
            self._changed.wait_for(lambda: not self._gathered and not self._is_busy)

    def close(self) -> None:
        """As `flush`, and end."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._gathered or self._is_closed)
                if not self._gathered:
                    return
                gathered, self._gathered = self._gathered, {}
                self._is_busy = True
            for queue, receipts in gathered.items():
                self._send(queue, receipts)

    def _send(self, queue: str, receipts: list[str]) -> None:
        try:
            ended = self._client().done_many(queue, receipts).count(False)
        except LmqError as error:
            self._logger.warning("%d messages of the queue %r come again: %s", len(receipts), queue, error)
        else:
            if ended:
                self._logger.warning(
                    "%d messages of %r were given to others before the ack: they run again", ended, queue
                )
        finally:
            self._session.let_go(queue, receipts)
