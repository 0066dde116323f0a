"""Leases of messages that a worker has in its hands, for libraries that work in threads."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable

from lmqcluster.client import Client
from lmqcluster.wire.errors import LmqError

__all__ = ["Leases"]

_FIRST_S = 10.0
"""How long a lease lasts at first: a node that dies just after it took messages leaves them leased, and nobody has them."""
_RENEW_FIRST_S = 1.0
"""After this time in hand a lease is renewed for the first time. Most messages are settled by then."""


class Leases:
    """Renews the leases of messages until they are let go of, in a thread of its own that begins with the first message.

    Args:
        client: gives the client, whenever one is needed.
        lease_s: how long leases last.
        logger: hears of leases that cannot be renewed, or have ended.

    Attributes:
        first_s: how long they last at first: for pulls.
    """

    def __init__(self, client: Callable[[], Client], lease_s: float, logger: logging.Logger) -> None:
        self.first_s = min(lease_s, _FIRST_S)
        self._client = client
        self._lease_s = lease_s
        self._logger = logger
        self._lock = threading.Lock()
        self._held: dict[str, dict[str, float]] = {}  # queue -> receipt -> when it is renewed next
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def took(self, queue: str, receipts: Iterable[str]) -> None:
        """Renew these leases from now on."""
        taken = dict.fromkeys(receipts, time.monotonic() + self._pause_s())
        if not taken:
            return
        with self._lock:
            self._held.setdefault(queue, {}).update(taken)
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, name="lmqcluster-leases", daemon=True)
                self._thread.start()

    def let_go(self, queue: str, receipts: Iterable[str]) -> None:
        """Renew these leases no more."""
        with self._lock:
            held = self._held.get(queue, {})
            for receipt in receipts:
                held.pop(receipt, None)
            if not held:
                self._held.pop(queue, None)

    def count(self, queue: str) -> int:
        """How many are renewed."""
        with self._lock:
            return len(self._held.get(queue, ()))

    def close(self) -> None:
        """Renew nothing more. The leases end when their time is over."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _pause_s(self) -> float:
        return min(_RENEW_FIRST_S, self._lease_s / 3)

    def _run(self) -> None:
        while not self._closed.wait(self._pause_s()):
            now = time.monotonic()
            with self._lock:
                due = {
                    queue: receipts
                    for queue, held in self._held.items()
                    if (receipts := [receipt for receipt, renew_at in held.items() if renew_at <= now])
                }
            for queue, receipts in due.items():
                self._renew(queue, receipts, now)

    def _renew(self, queue: str, receipts: list[str], now: float) -> None:
        try:
            alive = self._client().retain_many(queue, receipts, lease=self._lease_s)
        except LmqError as error:
            self._logger.warning("leases of the queue %r could not be renewed: %s", queue, error)
            return
        ended = 0
        with self._lock:
            held = self._held.get(queue, {})
            for receipt, lives in zip(receipts, alive, strict=True):
                if receipt in held:
                    held[receipt] = now + self._lease_s / 3 if lives else math.inf
                    ended += not lives
        if ended:
            self._logger.warning("%d leases of the queue %r ended too early: these messages come again", ended, queue)
