"""The session in which a worker takes messages, for libraries that work in threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable

from lmqcluster.client import Client, ClientSession, Message
from lmqcluster.wire.errors import LmqError

__all__ = ["LEASE_S_MAX", "WorkerSession"]

LEASE_S_MAX = 3_600.0
"""The longest life of a session without a sign of its client."""


class WorkerSession:
    """Takes messages in a session of the cluster, which begins with the first pull.

    What a worker took is its own while it lives, and what a node delivered just before it died comes with the next pull. When
    nothing was heard of the worker for `lease_s` seconds, all that it has returns to its old place.

    Args:
        client: gives the client, whenever one is needed.
        lease_s: how long the worker may be silent, in seconds; kept as an attribute.
    """

    def __init__(self, client: Callable[[], Client], lease_s: float) -> None:
        self._client = client
        self.lease_s = lease_s
        self._lock = threading.Lock()
        self._held: dict[str, set[str]] = {}
        self._session: ClientSession | None = None
        self._opening = asyncio.Lock()

    async def pull(self, queue: str, count: int, timeout_s: float | None) -> list[Message]:
        """Take messages, on the event loop of the client; none if the session was lost, so that another one is needed.

        Raises:
            LmqError: the cluster refuses.
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

    def let_go(self, queue: str, receipts: Iterable[str]) -> None:
        """These messages are settled."""
        with self._lock:
            held = self._held.get(queue, set())
            held.difference_update(receipts)
            if not held:
                self._held.pop(queue, None)

    def count(self, queue: str) -> int:
        """How many messages of a queue the worker has."""
        with self._lock:
            return len(self._held.get(queue, ()))

    def close(self) -> None:
        """End the session: what is still held returns to its old place."""
        session, self._session = self._session, None
        if session is not None:
            self._client()._run(lambda: session.__aexit__(None, None, None))
