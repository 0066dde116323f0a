"""Requests at this node that wait for something other than messages: a lock, room for a push, the end of a session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from ....core import Fault, State
from ....core.log.notices import Ended, Granted, Notice, Pushed
from ....wire.errors import LmqError

__all__ = ["LogWaiters"]


class LogWaiters:
    """Takes the notices of every batch applied here and completes the requests that wait for them.

    Args:
        state: returns the local replica's state, which a snapshot may replace.

    Attributes:
        session_ended: called with the number of each session that ends.
    """

    def __init__(self, state: Callable[[], State]) -> None:
        self._state = state
        self._loop = asyncio.get_running_loop()
        self._pushes: dict[int, set[asyncio.Future[Any]]] = {}
        self._locks: dict[tuple[bytes, int], set[asyncio.Future[int]]] = {}
        self.session_ended: list[Callable[[int], None]] = []

    def waiting(self) -> int:
        """Return how many pushes and locks are waited for."""
        return sum(map(len, self._pushes.values())) + sum(map(len, self._locks.values()))

    # --- waiting --------------------------------------------------------------------------------------------------

    def push(self, ticket: int) -> asyncio.Future[Any]:
        """Return a future of a waiting push: the result of the push, or its error. Cancel it to forget it."""
        return _wait(self._pushes, ticket, self._loop)

    def lock(self, name: bytes, session: int) -> asyncio.Future[int]:
        """Return a future of the token when the session gets the lock; ``session_lost`` if it ends before."""
        return _wait(self._locks, (name, session), self._loop)

    # --- notices --------------------------------------------------------------------------------------------------

    def applied(self, notices: Iterable[Notice]) -> None:
        """Complete the requests that the notices of an applied batch are for."""
        for notice in notices:
            if isinstance(notice, Pushed):
                _settle(self._pushes.pop(notice.ticket, ()), notice.result)
            elif isinstance(notice, Granted):
                _settle(self._locks.pop((notice.name, notice.session), ()), notice.token)
            elif isinstance(notice, Ended):
                self._ended(notice.session)

    def _ended(self, session: int) -> None:
        for key in [one for one in self._locks if one[1] == session]:
            _settle(self._locks.pop(key), Fault(f"session {session} ended while it waited for a lock", "session_lost"))
        for listener in self.session_ended:
            listener(session)

    def replaced(self) -> None:
        """Complete requests whose notices may have been missed because a snapshot was installed."""
        state = self._state()
        for ticket in [one for one in self._pushes if state.waiting_pushes.find(one) is None]:
            reason = "the push had its outcome while this node was cut off; it is lost"
            _settle(self._pushes.pop(ticket), Fault(reason, "unknown_outcome"))
        for name, session in list(self._locks):
            if state.locks.holder(name) == session:
                _settle(self._locks.pop((name, session)), state.locks.token(name))
        for session in {one[1] for one in self._locks if not state.sessions.knows(one[1])}:
            self._ended(session)

    def close(self, error: LmqError) -> None:
        """Fail all requests that wait for a lock."""
        for key in list(self._locks):
            _fail(self._locks.pop(key), error)

    def forget(self) -> None:
        """Fail waiting pushes because the node has joined another cluster and will not learn their outcome."""
        for ticket in list(self._pushes):
            reason = "the push waited for room when the node left its cluster"
            _fail(self._pushes.pop(ticket), LmqError("unknown_outcome", reason))


def _wait(table: dict[Any, set[asyncio.Future[Any]]], key: Any, loop: asyncio.AbstractEventLoop) -> asyncio.Future[Any]:
    future: asyncio.Future[Any] = loop.create_future()
    table.setdefault(key, set()).add(future)

    def forget(one: asyncio.Future[Any]) -> None:
        futures = table.get(key)
        if futures is not None:
            futures.discard(one)
            if not futures:
                del table[key]

    future.add_done_callback(forget)
    return future


def _settle(futures: Iterable[asyncio.Future[Any]], result: Any) -> None:
    if isinstance(result, Fault):
        _fail(futures, LmqError(result.code, result.reason))
        return
    for future in list(futures):
        if not future.done():
            future.set_result(result)


def _fail(futures: Iterable[asyncio.Future[Any]], error: LmqError) -> None:
    for future in list(futures):
        if not future.done():
            future.set_exception(error.again())
