"""The session in which a worker pulls messages, for libraries that use threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable

from lmqcluster.client import Client, ClientSession, Message
from lmqcluster.wire.errors import LmqError

__all__ = ["LEASE_S_MAX", "WorkerSession"]

LEASE_S_MAX = 3_600.0
"""Maximum time after which a session without renewal expires."""


class WorkerSession:
    """Pulls messages in a session of the cluster, which the first pull opens.

    The worker holds its messages while it renews the session. Messages that a node delivered just before it died arrive
    with the next pull. If the worker is silent for `lease_s` seconds, its messages return to their old positions.

    Args:
        client: returns the client whenever one is needed.
        lease_s: seconds without renewal after which the session expires; also an attribute.
    """

    def __init__(self, client: Callable[[], Client], lease_s: float) -> None:
        self._client = client
        self.lease_s = lease_s
        self._lock = threading.Lock()
        self._held: dict[str, set[str]] = {}
        self._session: ClientSession | None = None
        self._opening = asyncio.Lock()

    async def pull(self, queue: str, count: int, timeout_s: float | None) -> list[Message]:
        """Pull messages, on the event loop of the client; return none if the session was lost, so that the next pull
        opens another.

        Raises:
            LmqError: the cluster refused the pull.
        """
        session = await self._open_session()
        try:
            messages = await session.pull_many(queue, count, timeout_s)
        except LmqError as error:
            if error.code != "session_lost":
                raise
            if session is self._session:
                self._session = None
            return []
        if messages:
            with self._lock:
                self._held.setdefault(queue, set()).update(message.id for message in messages)
        return messages

    async def _open_session(self) -> ClientSession:
        async with self._opening:
            session = self._session
            if session is None or session.lost:
                session = self._client()._client.session(self.lease_s)
                await session.__aenter__()
                self._session = session
            return session

    def forget(self, queue: str, receipts: Iterable[str]) -> None:
        """Forget messages that are settled."""
        with self._lock:
            held = self._held.get(queue, set())
            held.difference_update(receipts)
            if not held:
                self._held.pop(queue, None)

    def count(self, queue: str) -> int:
        """Return how many messages of a queue the worker holds."""
        with self._lock:
            return len(self._held.get(queue, ()))

    def close(self) -> None:
        """End the session; messages still held return to their old positions."""
        session, self._session = self._session, None
        if session is not None:
            self._client()._run(lambda: session.__aexit__(None, None, None))
