"""Requests at this node that wait, without pulling, for a message of a queue or for the queue's end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from ....core import Applied, State

__all__ = ["QueueEvents"]


class QueueEvents:
    """Wakes the requests, from every batch that is applied here.

    Args:
        state: returns the local replica's state, which a snapshot may replace.
    """

    def __init__(self, state: Callable[[], State]) -> None:
        self._state = state
        self._loop = asyncio.get_running_loop()
        self._arrivals: dict[bytes, set[asyncio.Future[None]]] = {}
        self._ends: dict[bytes, set[asyncio.Future[None]]] = {}

    def arrival(self, queue: bytes) -> asyncio.Future[None]:
        """Return a future that is done when the queue may have gained messages. Cancel it to forget it."""
        return self._wait(self._arrivals, queue)

    def waiting_for(self, queue: bytes) -> int:
        """Return how many requests wait for a message of a queue."""
        return len(self._arrivals.get(queue, ()))

    def end(self, queue: bytes) -> asyncio.Future[None]:
        """Return a future that is done when the queue is deleted. Cancel it to forget it."""
        return self._wait(self._ends, queue)

    def _wait(self, table: dict[bytes, set[asyncio.Future[None]]], queue: bytes) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._loop.create_future()
        table.setdefault(queue, set()).add(future)

        def forget(one: asyncio.Future[None]) -> None:
            futures = table.get(queue)
            if futures is not None:
                futures.discard(one)
                if not futures:
                    del table[queue]

        future.add_done_callback(forget)
        return future

    def applied(self, applied: Applied) -> None:
        """Wake the requests for which an applied batch has an event."""
        if self._arrivals:
            for queue in applied.ready:
                _wake(self._arrivals.get(queue.name, ()))
        if self._ends:
            for queue in applied.deleted:
                _wake(self._ends.get(queue.name, ()))

    def replaced(self) -> None:
        """Wake all requests that may have missed an event because a snapshot was installed."""
        queues = self._state().queues
        for futures in list(self._arrivals.values()):
            _wake(futures)
        for name, futures in list(self._ends.items()):
            if name not in queues:
                _wake(futures)


def _wake(futures: Iterable[asyncio.Future[None]]) -> None:
    for future in list(futures):
        if not future.done():
            future.set_result(None)
