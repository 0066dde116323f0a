"""Taking one message after the other from an exclusive queue."""

from __future__ import annotations

from lmqcluster.wire.errors import LmqError

from ..async_client import AsyncClient
from ..message import Message
from ..session_calls import ClientSession

__all__ = ["SESSION_S_MAX", "Turns"]

SESSION_S_MAX = 3_600.0


class Turns:
    """Pulls in a session, whose messages are its own until it ends.

    What a node delivered just before it died comes with the next pull, so that no message overtakes it.

    Args:
        session_s: how long the consumer may be silent before another one gets its turn.
    """

    def __init__(self, client: AsyncClient, queue: str, session_s: float) -> None:
        self._client = client
        self._queue = queue
        self._session_s = min(session_s, SESSION_S_MAX)
        self._session: ClientSession | None = None

    async def pull(self) -> list[Message]:
        """The next message, as soon as it is our turn; nothing if that has to be asked again.

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
            return await session.pull_many(self._queue, 1, None)
        except LmqError as error:
            if error.code != "session_lost":
                raise
        await self.close()
        return []

    async def close(self) -> None:
        """Let the next in line have the queue; what is in hand returns to its old place."""
        session, self._session = self._session, None
        if session is not None:
            await session.__aexit__(None, None, None)
