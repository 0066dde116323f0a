"""Pulls of one queue's messages in a session; at its end they return to their old places."""

from __future__ import annotations

import asyncio

from lmqcluster.wire.errors import LmqError

from ..aio.client import AsyncClient
from ..aio.sessions import ClientSession
from ..message import Message
from .shared.callers import logger

__all__ = ["PAUSE_S", "SessionPulls", "Taken"]

PAUSE_S = 0.5
"""Pause in seconds after a request that the cluster refused."""


class Taken:
    """A message and the session that holds it."""

    __slots__ = ("_pulls", "_session", "message")

    def __init__(self, message: Message, session: ClientSession, pulls: SessionPulls) -> None:
        self.message = message
        self._session = session
        self._pulls = pulls

    def is_ours(self) -> bool:
        """Return whether the lease of the message is certainly still valid."""
        return self._pulls.holds(self._session)


class SessionPulls:
    """Pulls in a session, which leases their messages until it ends.

    If a node fails just after a delivery, the next pull returns its messages. A new session replaces one that was lost.

    Args:
        session_s: TTL of the session in seconds; if the consumer does not renew it, others receive its messages and its turn at
            an exclusive queue.
    """

    def __init__(self, client: AsyncClient, queue: str, session_s: float) -> None:
        self._client = client
        self._queue = queue
        self._session_s = session_s
        self._session: ClientSession | None = None

    def holds(self, session: ClientSession) -> bool:
        """Return whether the session is in use and certainly lives."""
        return session is self._session and not session.lost and asyncio.get_running_loop().time() < session.until

    async def pull(self, count: int) -> list[Taken]:
        """Wait for the next messages and for the turn at an exclusive queue; return an empty list if the session was lost.

        Raises:
            LmqError: the cluster refused the request.
        """
        session = self._session
        if session is None or session.lost:
            await self.close()
            session = self._client.session(self._session_s)
            await session.__aenter__()
            self._session = session
        try:
            messages = await session.pull_many(self._queue, count, None)
        except LmqError as error:
            if error.code != "session_lost":
                raise
            await self.close()
            return []
        return [Taken(message, session, self) for message in messages]

    async def close(self) -> None:
        """End the session: its messages return to their old places, and the next session in line has its turn."""
        session, self._session = self._session, None
        if session is not None:
            await session.__aexit__(None, None, None)

    async def give_up(self) -> None:
        """End the session and retry until the cluster has confirmed that, or the session expires."""
        session, self._session = self._session, None
        if session is None:
            return
        await session.abandon()
        while not session.lost and asyncio.get_running_loop().time() < session.until:
            try:
                await self._client.end_session(session.id)
            except LmqError as error:
                logger.info("a session could not be ended, it is tried again: %s", error)
                await asyncio.sleep(PAUSE_S)
            else:
                return

    async def abandon(self) -> None:
        """Stop renewing the session so that it expires, because a consumer still processes its messages."""
        session, self._session = self._session, None
        if session is not None:
            await session.abandon()
