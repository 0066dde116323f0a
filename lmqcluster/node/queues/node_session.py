"""The session of this node. It holds the leases of connections; they end if the node dies or is cut off."""

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
"""The cluster considers a node dead if it has not renewed its session for this long. A leader change takes less."""
RENEW_S = 1.0
OWNER = b"\0node"
"""Name of no token: a node's session counts against no client's quota, and no client can use it."""


class NodeSession:
    """One session for all connections of the node, opened on first use and renewed while the node lives.

    Attributes:
        on_lost: called when the session has ended although the node lives. Other clients may already hold what it held.
    """

    def __init__(self, service: QueueService) -> None:
        self._sessions = service.sessions
        service.board.session_ended.append(self.ended)
        self._id: bytes | None = None
        self._number = 0
        self._opening: asyncio.Task[bytes] | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._closed = False
        # Until this time, by the node's own clock, the cluster cannot have considered the node dead.
        self._sure_until_s = 0.0
        self.on_lost: list[Callable[[], None]] = []

    async def id(self) -> bytes:
        """Return the id of the session; open it if necessary.

        Raises:
            LmqError: it cannot be opened.
        """
        if self._id is not None:
            return self._id
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._opened)
        # Cancelling one caller must not cancel the opening for the others.
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
            # Mark the exception as retrieved: all callers may have been cancelled.
            task.exception()

    async def _renew(self, session: bytes) -> None:
        while self._id == session:
            await asyncio.sleep(RENEW_S)
            try:
                await self._renew_once(session)
            except LmqError as exc:
                # There is no leader now. The next attempt shows whether the session is alive.
                log.debug("session not renewed", reason=exc.message)

    async def _renew_once(self, session: bytes) -> None:
        asked_s = monotonic()
        if not await self._sessions.renew(session, OWNER):
            self._lose(session)
        elif self._id == session:
            self._sure_until_s = max(self._sure_until_s, asked_s + TTL_S)

    def is_surely_alive(self, session: bytes) -> bool:
        """Return whether this is still the session, renewed so recently that the cluster cannot have ended it."""
        return self._id == session and monotonic() < self._sure_until_s

    async def is_alive(self, session: bytes) -> bool:
        """Return whether this is still the session; ask the cluster if the last renewal is too old.

        The renewal is too old if the node was frozen or cut off.

        Raises:
            LmqError: the cluster does not answer.
        """
        if self._id == session and not self.is_surely_alive(session):
            await self._renew_once(session)
        return self._id == session

    def lost(self, session: bytes) -> None:
        """Handle the loss of this session: the cluster does not know it any more."""
        self._lose(session)

    def ended(self, number: int) -> None:
        """Handle the end of the session with this number; ignore it if the node has another session now."""
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
        """Drop the session because the node has joined another cluster; what the session held is lost."""
        if self._id is not None:
            self._lose(self._id)

    def close(self) -> asyncio.Future[None] | None:
        """End the session, so that other clients get at once what it holds.

        Return a future that is done when the session has ended, None if there is no session.
        """
        self._closed = True
        session, self._id = self._id, None
        if self._renewing is not None:
            self._renewing.cancel()
        return None if session is None else self._sessions.end_soon(session, OWNER)
