"""The session of this node: what it holds for its connections, and what others get back when it dies or is cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic

import structlog

from ...wire.errors import LmqError
from .service import QueueService

__all__ = ["RENEW_S", "TTL_S", "NodeSession"]

log = structlog.get_logger("lmq.node")

TTL_S = 5.0
"""So long after its last renewal the cluster takes a node for dead. A change of leader takes less."""
RENEW_S = 1.0
OWNER = b"\0node"
"""No token has this name: a node's session counts to no client's quota, and no client can use it."""


class NodeSession:
    """One session for all connections of the node, opened when it is needed first and renewed as long as the node lives.

    Attributes:
        on_lost: is called when the session has ended although the node lives. What it held may be another client's by now.
    """

    def __init__(self, service: QueueService) -> None:
        self._sessions = service.sessions
        service.board.session_ended.append(self.ended)
        self._id: bytes | None = None
        self._number = 0
        self._opening: asyncio.Task[bytes] | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._closed = False
        # Until then the cluster cannot have taken the node for dead, by the node's own clock.
        self._sure_until_s = 0.0
        self.on_lost: list[Callable[[], None]] = []

    async def id(self) -> bytes:
        """The id of the session, which is opened if need be.

        Raises:
            LmqError: it cannot be opened.
        """
        if self._id is not None:
            return self._id
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._opened)
        # One caller that gives up must not take the session from the others.
        return await asyncio.shield(self._opening)

    async def _open(self) -> bytes:
        asked_s = monotonic()
        session = await self._sessions.open(TTL_S, OWNER)
        if self._closed:
            self._sessions.end_soon(session, OWNER)
            raise LmqError("shutting_down", "the node is shutting down; use another node")
        self._id, self._sure_until_s = session, asked_s + TTL_S
        self._number = self._sessions.number(session)
        self._renewing = asyncio.create_task(self._renew(session))
        return session

    def _opened(self, task: asyncio.Task[bytes]) -> None:
        self._opening = None
        if not task.cancelled():
            # Those who waited have got it; nobody may be left.
            task.exception()

    async def _renew(self, session: bytes) -> None:
        while self._id == session:
            await asyncio.sleep(RENEW_S)
            try:
                await self._renew_once(session)
            except LmqError as exc:
                # There is no leader now. Whether the session lives the next attempt tells.
                log.debug("session not renewed", reason=exc.message)

    async def _renew_once(self, session: bytes) -> None:
        asked_s = monotonic()
        if not await self._sessions.renew(session, OWNER):
            self._lose(session)
        elif self._id == session:
            self._sure_until_s = max(self._sure_until_s, asked_s + TTL_S)

    def is_surely_alive(self, session: bytes) -> bool:
        """Whether this is the session still, and was renewed so lately that the cluster cannot have ended it."""
        return self._id == session and monotonic() < self._sure_until_s

    async def is_alive(self, session: bytes) -> bool:
        """As `is_surely_alive`; a node that was frozen or cut off asks the cluster first.

        Raises:
            LmqError: it is not known.
        """
        if self._id == session and not self.is_surely_alive(session):
            await self._renew_once(session)
        return self._id == session

    def lost(self, session: bytes) -> None:
        """The cluster does not know this session any more."""
        self._lose(session)

    def ended(self, number: int) -> None:
        """The session of this number is no more; it may be another one by now."""
        if self._id is not None and self._number == number:
            self._lose(self._id)

    def _lose(self, session: bytes) -> None:
        if self._id != session:
            return
        self._id = None
        if self._renewing is not None:
            self._renewing.cancel()
        if not self._closed:
            log.warning("session lost", reason="the cluster took this node for dead, and others have what it held")
            for listener in self.on_lost:
                listener()

    def forget(self) -> None:
        """The node belongs to another cluster from now on; what it held is lost."""
        if self._id is not None:
            self._lose(self._id)

    def close(self) -> asyncio.Future[None] | None:
        """End the session, so that others get at once what is still held; returns when that is done, None if there is none."""
        self._closed = True
        session, self._id = self._id, None
        if self._renewing is not None:
            self._renewing.cancel()
        return None if session is None else self._sessions.end_soon(session, OWNER)
