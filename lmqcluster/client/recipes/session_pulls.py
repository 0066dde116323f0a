"""Taking the messages of one queue in a session, with which they go back to their old places."""

from __future__ import annotations

import asyncio

from lmqcluster.wire.errors import LmqError

from ..aio.client import AsyncClient
from ..aio.session_calls import ClientSession
from ..message import Message
from .shared.callers import logger

__all__ = ["PAUSE_S", "SessionPulls", "Taken"]

PAUSE_S = 0.5
"""After a request that the cluster refused."""


class Taken:
    """A message and the session that holds it."""

    __slots__ = ("_pulls", "_session", "message")

    def __init__(self, message: Message, session: ClientSession, pulls: SessionPulls) -> None:
        self.message = message
        self._session = session
        self._pulls = pulls

    def is_ours(self) -> bool:
        """Whether nobody else can have the message yet."""
        return self._pulls.holds(self._session)


class SessionPulls:
    """Pulls in a session, whose messages are its own until it ends.

    What a node delivered just before it died comes with the next pull. A session that was lost is replaced by another one.

    Args:
        session_s: how long the consumer may be silent before others get what it holds, and its turn at an exclusive queue.
    """

    def __init__(self, client: AsyncClient, queue: str, session_s: float) -> None:
        self._client = client
        self._queue = queue
        self._session_s = session_s
        self._session: ClientSession | None = None

    def holds(self, session: ClientSession) -> bool:
        """Whether the session is in use, and lives for sure."""
        return session is self._session and not session.lost and asyncio.get_running_loop().time() < session.until

    async def pull(self, count: int) -> list[Taken]:
        """The next messages, as soon as there are some and it is our turn; nothing if that has to be asked again.

        Raises:
            LmqError: the cluster refuses.
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
        """End the session: what it holds returns to its old place, and the next in line has its turn."""
        session, self._session = self._session, None
        if session is not None:
            await session.__aexit__(None, None, None)

    async def give_up(self) -> None:
        """End the session for sure, however long it takes to reach the cluster: at the latest it runs out."""
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
        """Stop renewing the session, so that it ends by itself, because a consumer still works on what it holds."""
        session, self._session = self._session, None
        if session is not None:
            await session.abandon()
