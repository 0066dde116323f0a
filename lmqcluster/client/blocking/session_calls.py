"""Sessions of the blocking client."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ..aio.session_calls import ClientSession, SessionClient
from ..transport.requests import Name

if TYPE_CHECKING:
    from .client import Client, SyncMessage

__all__ = ["SyncSession", "SyncSessionCalls"]

T = TypeVar("T")
_Run = Callable[[Callable[[], Awaitable[Any]]], Any]


class SyncSession:
    """The blocking form of `ClientSession`: ``with client.session() as session:``.

    Attributes:
        id: known within the block.
    """

    def __init__(self, client: Client, session: ClientSession, run: _Run) -> None:
        self._client = client
        self._session = session
        self._run = run

    @property
    def id(self) -> str:
        """Id of the session, known within the block."""
        return self._session.id

    @property
    def lost(self) -> bool:
        """True if the session has ended before the block."""
        return self._session.lost

    def __enter__(self) -> Self:
        self._run(self._session.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(lambda: self._session.__aexit__(kind, value, trace))

    def pull(
        self, queue: Name, timeout: float | None = None, *, lease: float | None = None, auto_ack: bool = False
    ) -> SyncMessage | None:
        """Take the next message until it is settled, or the session ends, see `ClientSession.pull`."""
        session = self._session
        return self._client._message(self._run(lambda: session.pull(queue, timeout, lease=lease, auto_ack=auto_ack)))

    def pull_many(
        self,
        queue: Name,
        max: int,  # noqa: A002
        timeout: float | None = 0,
        *,
        lease: float | None = None,
        auto_ack: bool = False,
    ) -> list[SyncMessage]:
        """Take up to `max` messages, see `ClientSession.pull_many`."""
        session = self._session
        found = self._run(lambda: session.pull_many(queue, max, timeout, lease=lease, auto_ack=auto_ack))
        return self._client._messages(found)

    def leave(self, queue: Name) -> bool:
        """Pass an exclusive queue to the next session in line, see `AsyncClient.leave_queue`."""
        return self._client.leave_queue(queue, self.id)

    @contextlib.contextmanager
    def lock(self, name: Name, wait: float | None = None) -> Iterator[int]:
        """Hold a lock in a block: ``with session.lock("report") as token:``, see `ClientSession.lock`."""
        lock = self._session.lock(name, wait)
        token: int = self._run(lock.__aenter__)
        try:
            yield token
        finally:
            self._run(lambda: lock.__aexit__(None, None, None))


class SyncSessionCalls(ABC):
    """The calls of `SessionCalls`, each of which waits for its result."""

    _client: SessionClient

    @abstractmethod
    def _run(self, call: Callable[[], Awaitable[T]]) -> T:
        """Run the call on the client's loop and wait for its result."""

    def open_session(self, ttl: float) -> str:
        """Open a session and return its id, see `AsyncClient.open_session`."""
        return self._run(lambda: self._client.open_session(ttl))

    def renew_session(self, session: Name) -> bool:
        """Restart the TTL of a session, see `AsyncClient.renew_session`."""
        return self._run(lambda: self._client.renew_session(session))

    def end_session(self, session: Name) -> bool:
        """End a session, see `AsyncClient.end_session`."""
        return self._run(lambda: self._client.end_session(session))

    def leave_queue(self, queue: Name, session: Name) -> bool:
        """Give up the turn at an exclusive queue, see `AsyncClient.leave_queue`."""
        return self._run(lambda: self._client.leave_queue(queue, session))

    def lock(self, name: Name, session: Name, wait: float | None = None) -> int | None:
        """Acquire a named lock and return its fencing token, see `AsyncClient.lock`."""
        return self._run(lambda: self._client.lock(name, session, wait))

    def unlock(self, name: Name, session: Name) -> bool:
        """Release a lock, see `AsyncClient.unlock`."""
        return self._run(lambda: self._client.unlock(name, session))
