"""Consumers that fill a local queue, from which the application takes items."""

from __future__ import annotations

import asyncio
import queue as queues
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from .shared.options import ConnectionState

__all__ = ["AsyncBlockingQueueConsumer", "BlockingQueueConsumer"]

T = TypeVar("T")
StateListener = Callable[[ConnectionState], Any]


class _Local(Generic[T]):
    """Base of both consumers. Items in the local queue count as consumed: safe mode does not protect them."""

    def __init__(self, on_state_change: StateListener | None, queue: Any) -> None:
        self._on_state_change = on_state_change
        self._queue = queue

    def state_changed(self, state: ConnectionState) -> Any:
        """Pass the state to the listener."""
        return None if self._on_state_change is None else self._on_state_change(state)

    def drain(self, max_items: int | None = None) -> list[T]:
        """Take all items in the local queue, at most `max_items`."""
        taken: list[T] = []
        with suppress(queues.Empty, asyncio.QueueEmpty):
            while max_items is None or len(taken) < max_items:
                taken.append(self._queue.get_nowait())
        return taken

    def __len__(self) -> int:
        size: int = self._queue.qsize()
        return size


class BlockingQueueConsumer(_Local[T]):
    """A consumer that fills a local queue; with threads.

    Args:
        on_state_change: called with each connection state.
        capacity: maximum number of items in the local queue, 0 for no limit; the consumer waits while it is full.
        queue: the local queue to use, in place of a new one.
    """

    def __init__(
        self,
        on_state_change: StateListener | None = None,
        capacity: int = 0,
        queue: queues.Queue[T] | None = None,
    ) -> None:
        super().__init__(on_state_change, queues.Queue(capacity) if queue is None else queue)

    def consume_message(self, item: T) -> None:
        """Put the item into the local queue, waiting while it is full."""
        self._queue.put(item)

    def take(self, timeout: float | None = None) -> T | None:
        """Take an item; return None if there is none for `timeout` seconds."""
        try:
            item: T = self._queue.get(timeout=timeout)
        except queues.Empty:
            return None
        return item

    def items(self) -> list[T]:
        """Return a copy of the items in the local queue."""
        with self._queue.mutex:
            return list(self._queue.queue)


class AsyncBlockingQueueConsumer(_Local[T]):
    """A consumer that fills a local `asyncio.Queue`."""

    def __init__(
        self,
        on_state_change: StateListener | None = None,
        capacity: int = 0,
        queue: asyncio.Queue[T] | None = None,
    ) -> None:
        super().__init__(on_state_change, asyncio.Queue(capacity) if queue is None else queue)

    async def consume_message(self, item: T) -> None:
        """Put the item into the local queue, waiting while it is full."""
        await self._queue.put(item)

    async def take(self, timeout: float | None = None) -> T | None:
        """Take an item; return None if there is none for `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                item: T = await self._queue.get()
        except TimeoutError:
            return None
        return item

    def items(self) -> list[T]:
        """Return a copy of the items in the local queue."""
        return list(self._queue._queue)
