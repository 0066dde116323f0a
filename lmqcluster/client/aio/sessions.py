"""Sessions, whose leases and locks end if their client stops renewing them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from asyncio import Future
from collections.abc import AsyncIterator, Awaitable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from lmqcluster.wire.errors import LmqError

from ..transport.requests import Name, name_bytes

if TYPE_CHECKING:
    from ..message import Message

__all__ = ["ClientSession"]

logger = logging.getLogger("lmqcluster.client")


class SessionClient(Protocol):
    """The calls of a client that a session makes."""

    @property
    def settlements_given_up(self) -> int:
        """Number of settlements that ended without a known outcome; their messages stay leased as long as the session."""

    def open_session(self, ttl: float, /) -> Awaitable[str]:
        """Open a session."""

    def renew_session(self, session: Name, /) -> Awaitable[bool]:
        """Restart the TTL of a session."""

    def end_session(self, session: Name, /) -> Awaitable[bool]:
        """End a session."""

    def leave_queue(self, queue: Name, session: Name, /) -> Future[bool]:
        """Leave the line of an exclusive queue."""

    def lock(self, name: Name, session: Name, wait: float | None, /) -> Awaitable[int | None]:
        """Acquire a lock."""

    def unlock(self, name: Name, session: Name, /) -> Awaitable[bool]:
        """Release a lock."""

    def pull(
        self,
        queue: Name,
        timeout: float | None = None,
        *,
        lease: float | None = None,
        auto_ack: bool = False,
        session: Name | None = None,
        after: Name | None = None,
    ) -> Coroutine[Any, Any, Message | None]:
        """Take a message."""

    def pull_many(
        self,
        queue: Name,
        max: int,  # noqa: A002
        timeout: float | None = 0,
        *,
        lease: float | None = None,
        auto_ack: bool = False,
        session: Name | None = None,
        after: Name | None = None,
    ) -> Coroutine[Any, Any, list[Message]]:
        """Take messages."""


class Received:
    """Progress of one queue's messages in a session.

    Attributes:
        last_id: id of the last message that arrived, empty before the first.
        answers: number of answered pulls.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self.last_id = ""
        self.answers = 0

    @contextlib.asynccontextmanager
    async def turn(self, timeout_s: float | None) -> AsyncIterator[Received | None]:
        """Hold the exclusive right to pull in a block; yield None if other pulls hold it for `timeout_s` seconds."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._turn.acquire()
        except TimeoutError:
            yield None
            return
        try:
            yield self
        finally:
            self._turn.release()

    def note(self, messages: list[Message]) -> None:
        """Record the messages of an answered pull."""
        self.answers += 1
        if messages:
            self.last_id = messages[-1].id


class ClientSession:
    """A session that is renewed in the background: ``async with client.session() as session:``.

    It is part of the replicated state, so it survives the failure of a node. It ends with the block, or if the client cannot
    renew it for `ttl` seconds. Then `lost` is true, its messages return to their queues, and its calls raise ``session_lost``.
    After a client gives up a settlement, it stops renewing its sessions, so that no message stays leased forever.

    Attributes:
        id: known within the block.
        ttl: maximum time between renewals in seconds.
        until: loop time in seconds until which the session certainly lives, unless it is ended.
    """

    def __init__(self, client: SessionClient, ttl: float) -> None:
        self._client = client
        self._lost = asyncio.Event()
        self._renewing: asyncio.Task[None] | None = None
        self._given_up = 0
        self._received: dict[bytes, Received] = {}
        self._returning: set[asyncio.Task[None]] = set()
        self.ttl = ttl
        self.id = ""
        self.until = 0.0

    @property
    def lost(self) -> bool:
        """True if the session has ended before the block."""
        return self._lost.is_set()

    async def wait_lost(self) -> None:
        """Wait until the session is lost."""
        await self._lost.wait()

    async def __aenter__(self) -> Self:
        began = asyncio.get_running_loop().time()
        self._given_up = self._client.settlements_given_up
        self.id = await self._client.open_session(self.ttl)
        self.until = began + self.ttl
        self._renewing = asyncio.create_task(self._renew())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.abandon()
        if not self.lost:
            try:
                await self._client.end_session(self.id)
            except LmqError as exc:
                logger.warning("a session could not be ended and expires later: %s", exc)

    async def abandon(self) -> None:
        """Stop renewing the session, which then ends `ttl` seconds after its last renewal, or earlier with the block."""
        ending = [*self._returning] if self._renewing is None else [self._renewing, *self._returning]
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending)

    async def _renew(self) -> None:
        loop = asyncio.get_running_loop()
        while not self.lost:
            await asyncio.sleep(self.ttl / 3)
            if self._client.settlements_given_up != self._given_up:
                logger.warning("a session is not renewed any more, because the client has given up settlements")
                self._lost.set()
                return
            began = loop.time()
            try:
                async with asyncio.timeout_at(self.until):
                    alive = await self._client.renew_session(self.id)
            except TimeoutError:
                alive = False
            except LmqError as exc:
                # Before the TTL elapses, the next attempt may succeed.
                alive = loop.time() < self.until
                logger.info("a session could not be renewed: %s", exc)
            else:
                self.until = began + self.ttl if alive else began
            if not alive:
                logger.warning("a session was lost: the cluster has not heard of it for %g seconds", self.ttl)
                self._lost.set()

    async def pull(
        self,
        queue: Name,
        timeout: float | None = None,  # noqa: ASYNC109 - as of the client
        *,
        lease: float | None = None,
        auto_ack: bool = False,
    ) -> Message | None:
        """Take the next message until it is settled, or the session ends; see `AsyncClient.pull`.

        If several sessions pull from a queue with the property ``exclusive``, one receives messages; the others wait in line in
        the order of their first pull. Pulls of one session from one queue run one after the other, so that the next pull returns
        a message whose response was lost with a connection.
        """
        client = self._client
        async with self._turn(queue, 1, timeout) as received:
            if received is None:
                return None
            after = None if auto_ack else received.last_id
            message = await client.pull(queue, timeout, lease=lease, auto_ack=auto_ack, session=self.id, after=after)
            # A message acknowledged on sending does not prove that an earlier one arrived.
            if not auto_ack:
                received.note([] if message is None else [message])
            return message

    async def pull_many(
        self,
        queue: Name,
        max: int,  # noqa: A002
        timeout: float | None = 0,  # noqa: ASYNC109 - as of the client
        *,
        lease: float | None = None,
        auto_ack: bool = False,
    ) -> list[Message]:
        """Take up to `max` messages, see `pull` and `AsyncClient.pull_many`."""
        client = self._client
        async with self._turn(queue, max, timeout) as received:
            if received is None:
                return []
            after = None if auto_ack else received.last_id
            messages = await client.pull_many(
                queue, max, timeout, lease=lease, auto_ack=auto_ack, session=self.id, after=after
            )
            if not auto_ack:
                received.note(messages)
            return messages

    @contextlib.asynccontextmanager
    async def _turn(self, queue: Name, count: int, timeout_s: float | None) -> AsyncIterator[Received | None]:
        """Hold the exclusive right to pull in a block, see `Received.turn`; after a cancellation, put back what it took."""
        received = self._received.setdefault(name_bytes(queue), Received())
        async with received.turn(timeout_s) as turn:
            try:
                yield turn
            except asyncio.CancelledError:
                task = asyncio.create_task(self._return_lost(queue, received, count, received.answers))
                self._returning.add(task)
                task.add_done_callback(self._returning.discard)
                raise

    async def _return_lost(self, queue: Name, received: Received, count: int, answers: int) -> None:
        """Put back the messages that a cancelled pull may have taken, unless a later pull has returned them."""
        async with received.turn(None):
            if received.answers != answers:
                return
            try:
                lost = await self._client.pull_many(queue, count, 0, session=self.id, after=received.last_id)
                await asyncio.gather(*(message.put_back() for message in lost))
            except LmqError as exc:
                logger.info("what a cancelled pull has taken stays with its session until the next pull: %s", exc)

    def leave(self, queue: Name) -> Future[bool]:
        """Pass an exclusive queue to the next session in line, see `AsyncClient.leave_queue`."""
        return self._client.leave_queue(queue, self.id)

    @contextlib.asynccontextmanager
    async def lock(self, name: Name, wait: float | None = None) -> AsyncIterator[int]:
        """Hold a lock in a block: ``async with session.lock("report") as token:``; see `AsyncClient.lock`.

        Raises:
            TimeoutError: another session held it during the whole wait.
        """
        token = await self._client.lock(name, self.id, wait)
        if token is None:
            raise TimeoutError(f"the lock {name!r} was not free within {wait} seconds")
        try:
            yield token
        finally:
            if not self.lost:
                try:
                    await self._client.unlock(name, self.id)
                except LmqError as exc:
                    if exc.code != "session_lost":
                        raise
