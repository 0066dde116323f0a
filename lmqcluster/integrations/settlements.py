"""Settlements whose outcome the caller does not wait for, as in AMQP."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from lmqcluster.client import AsyncClient, Client
from lmqcluster.client.transport.calls import Persistence
from lmqcluster.wire.attributes import Attributes
from lmqcluster.wire.errors import LmqError, Outcome

from .worker_session import WorkerSession

__all__ = ["Settlements"]

_Settle = Callable[[AsyncClient], Awaitable[list[bool]]]
_SettleMany = Callable[[str, list[str], AsyncClient], Awaitable[list[bool]]]
_PENDING_MAX = 1_000
"""Messages with an outstanding settlement, above which no further messages are pulled."""


class Settlements:
    """Settles messages on the event loop of a blocking client, and retries until the outcome is known.

    Settlements added in one turn of the loop are sent together. All methods are thread-safe.

    Args:
        client: returns the client whenever one is needed.
        session: holds the messages until the outcome is known.
        logger: logs settlements that were too late, refused or abandoned.
        answered: called on the event loop when there is room again.
    """

    def __init__(
        self,
        client: Callable[[], Client],
        session: WorkerSession,
        logger: logging.Logger,
        answered: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._session = session
        self._logger = logger
        self._answered = answered
        self._changed = threading.Condition()
        self._gathered: dict[tuple[str, _SettleMany], list[str]] = {}
        self._pending = 0
        self._is_stalled = False
        self._running: set[asyncio.Task[None]] = set()

    @property
    def has_room(self) -> bool:
        """Return whether further messages may be pulled."""
        return self._pending < _PENDING_MAX

    def ack(self, queue: str, receipt: str) -> None:
        """Acknowledge a message.

        Raises:
            LmqError: the client is closed. All methods that settle raise it.
        """
        self._gather(_ack_many, queue, [receipt])

    def release(self, queue: str, receipt: str) -> None:
        """Return a message to its old position; this counts as a delivery."""
        self._gather(_release_many, queue, [receipt])

    def put_back(self, queue: str, receipts: Sequence[str]) -> None:
        """Return messages to their old positions as if they had never been delivered."""
        if receipts:
            self._gather(_put_back, queue, receipts)

    def move(
        self,
        queue: str,
        receipt: str,
        to: str,
        body: object,
        attributes: Attributes | None = None,
        ttl_s: float | None = None,
    ) -> None:
        """Acknowledge a message and store another one in its place, atomically."""
        client = self._client()

        async def step(patient: AsyncClient, given: Attributes | None) -> None:
            async with patient.transaction() as transaction:
                transaction.push(to, body, ttl=ttl_s, attributes=given)
                transaction.done(queue, receipt)

        async def move(patient: AsyncClient) -> list[bool]:
            try:
                await step(patient, attributes)
            except LmqError as error:
                if error.code != "too_large" or not attributes:
                    raise
                # The nodes may allow fewer bytes of attributes.
                await step(patient, None)
            return [True]

        with self._changed:
            client._call_soon(lambda: self._start(client, queue, [receipt], move))
            self._pending += 1

    def flush(self, timeout_s: float) -> bool:
        """Wait until the outcome of all settlements is known; return False after `timeout_s`.

        After a timeout, later calls do not wait until an answer arrives, so that a shutdown waits only once.
        """
        with self._changed:
            settled = self._changed.wait_for(lambda: self._pending == 0, 0 if self._is_stalled else timeout_s)
            self._is_stalled = not settled
            return settled

    def close(self, client: Client) -> None:
        """Wait for the settlements, then end the session and close the client.

        During an outage this takes the client's ``timeout_s``. If the process lives on, it continues in the background
        until the session expires.
        """
        if self.flush(client.timeout_s):
            self._session.close()
            client.close()
            return
        self._logger.warning(
            "%d messages are not settled: the cluster has not answered for %g seconds; they are redelivered if this "
            "process ends before it answers",
            self._pending,
            client.timeout_s,
        )
        threading.Thread(target=self._finish, args=(client,), name="lmqcluster-settlements", daemon=True).start()

    def _finish(self, client: Client) -> None:
        self._is_stalled = False
        self.flush(self._session.lease_s)
        self._session.close()
        client.close(0)

    def _gather(self, settle: _SettleMany, queue: str, receipts: Sequence[str]) -> None:
        client = self._client()
        with self._changed:
            if not self._gathered:
                client._call_soon(lambda: self._send(client))
            self._gathered.setdefault((queue, settle), []).extend(receipts)
            self._pending += len(receipts)

    # --- on the event loop ------------------------------------------------------------------------------------------

    def _send(self, client: Client) -> None:
        with self._changed:
            gathered, self._gathered = self._gathered, {}
        for (queue, settle), receipts in gathered.items():
            self._start(client, queue, receipts, partial(settle, queue, receipts))

    def _start(self, client: Client, queue: str, receipts: list[str], settle: _Settle) -> None:
        task = asyncio.get_running_loop().create_task(self._settle(client._client, queue, receipts, settle))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _settle(self, client: AsyncClient, queue: str, receipts: list[str], settle: _Settle) -> None:
        try:
            ended = (await settle(client._settling(Persistence.UNTIL_KNOWN))).count(False)
            if ended:
                self._logger.warning(
                    "settlement of %d messages of %r was too late: they were redelivered", ended, queue
                )
        except LmqError as error:
            await self._on_refused(client, queue, receipts, error)
        finally:
            self._session.forget(queue, receipts)
            with self._changed:
                was_full = not self.has_room
                self._pending -= len(receipts)
                self._is_stalled = False
                self._changed.notify_all()
            if was_full:
                self._answered()

    async def _on_refused(self, client: AsyncClient, queue: str, receipts: list[str], error: LmqError) -> None:
        self._logger.warning("%d messages of %r were not settled: %s", len(receipts), queue, error)
        if error.outcome is Outcome.NOT_APPLIED and error.code != "lease_lost":
            # Otherwise the session would hold them for as long as the worker lives.
            try:
                await client.release_many(queue, receipts, delay=self._session.lease_s)
            except LmqError as problem:
                self._logger.warning(
                    "%d messages of %r cannot be released; this worker still holds them: %s",
                    len(receipts),
                    queue,
                    problem,
                )


def _ack_many(queue: str, receipts: list[str], client: AsyncClient) -> Awaitable[list[bool]]:
    return client.done_many(queue, receipts)


def _release_many(queue: str, receipts: list[str], client: AsyncClient) -> Awaitable[list[bool]]:
    return client.release_many(queue, receipts, place="keep")


def _put_back(queue: str, receipts: list[str], client: AsyncClient) -> Awaitable[list[bool]]:
    return client.put_back_many(queue, receipts)
