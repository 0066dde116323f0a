"""The queues of the recipes, for asyncio."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, ClassVar, TypeVar

from lmqcluster.wire.limits import PULL_COUNT_MAX

from ..options import Place, PushOptions
from .base import QueueBase

__all__ = ["DistributedDelayQueue", "DistributedIdQueue", "DistributedPriorityQueue", "DistributedQueue"]

T = TypeVar("T")

_DELAYED = "lmqcluster.recipes.delayed"
"""Label of all messages of delay queues, with which messages that are not due yet can be counted."""


class DistributedQueue(QueueBase[T]):
    """A first-in, first-out queue."""

    async def put(self, item: T, *, timeout: float | None = None) -> bool:
        """Store an item. Return False if the queue was full for `timeout` seconds; None waits without limit.

        Raises:
            QueueStateError: the queue is not started, or closed.
            PutError: the item could not be stored; `flush_puts` raises it for puts in the background.
        """
        return await self._put(item, timeout, {})

    async def put_multi(self, items: Iterable[T], *, timeout: float | None = None) -> bool:
        """Store several items as one message: atomically, in sequence, for one consumer. See `put`."""
        return await self._put_multi(items, timeout, {})


class DistributedIdQueue(QueueBase[T]):
    """A first-in, first-out queue whose items have ids by which they can be removed. Ids need not be unique."""

    async def put(self, item: T, item_id: str, *, timeout: float | None = None) -> bool:
        """Store an item. `item_id` has 1 to 255 bytes. See `DistributedQueue.put`.

        Raises:
            ValueError: the id is empty.
        """
        if not item_id:
            raise ValueError("an id must not be empty")
        return await self._put(item, timeout, {"label": item_id})

    async def remove(self, item_id: str) -> int:
        """Remove all items with an id that no consumer holds, and return their number."""
        self._open_puts()
        return await self._or_none_found(self._client.withdraw(self.name, item_id))

    async def contains(self, item_id: str) -> bool:
        """Return whether an item with this id is waiting."""
        self._open_puts()
        return await self._or_none_found(self._client.count_labelled(self.name, item_id)) > 0


class DistributedPriorityQueue(QueueBase[T]):
    """A priority queue: lower priorities come first, equal ones in the order of their puts."""

    _place: ClassVar[Place] = "keep"

    def __init__(self, *args: Any, min_items_before_refresh: int = 0, **kw: Any) -> None:
        """Configure the queue, see `QueueBase`.

        Args:
            min_items_before_refresh: number of less urgent items that may precede a newly put one. The client takes this many at
                once, which saves requests. With 0 or 1, the next item is always the most urgent one.
        """
        if min_items_before_refresh < 0:
            raise ValueError("min_items_before_refresh must be 0 or more")
        super().__init__(*args, **kw)
        if not self._options.exclusive:
            prefetch = max(self._options.prefetch, min(min_items_before_refresh, PULL_COUNT_MAX))
            self._options = replace(self._options, prefetch=prefetch)

    async def put(self, item: T, priority: int, *, timeout: float | None = None) -> bool:
        """Store an item with a signed priority of 32 bits. See `DistributedQueue.put`."""
        return await self._put(item, timeout, {"priority": priority})

    async def put_multi(self, items: Iterable[T], priority: int, *, timeout: float | None = None) -> bool:
        """Store several items as one message, see `DistributedQueue.put_multi`."""
        return await self._put_multi(items, timeout, {"priority": priority})


class DistributedDelayQueue(QueueBase[T]):
    """A delay queue: items are delivered when they are due by the cluster's clock, in the order of their due times."""

    _place: ClassVar[Place] = "keep"

    async def put(
        self,
        item: T,
        due: datetime | float | None = None,
        *,
        delay: float | timedelta | None = None,
        timeout: float | None = None,
    ) -> bool:
        """Store an item. See `DistributedQueue.put`.

        Args:
            item: the item.
            due: time of delivery: a datetime with a time zone, or seconds since 1970. An item with a past time is due at once.
            delay: seconds until delivery, in place of `due`.
            timeout: how long to wait while the queue is full, in seconds.

        Raises:
            ValueError: not exactly one of `due` and `delay` is given, or it is out of range.
        """
        return await self._put(item, timeout, _time(due, delay))

    async def put_multi(
        self,
        items: Iterable[T],
        due: datetime | float | None = None,
        *,
        delay: float | timedelta | None = None,
        timeout: float | None = None,
    ) -> bool:
        """Store several items as one message, see `put` and `DistributedQueue.put_multi`."""
        return await self._put_multi(items, timeout, _time(due, delay))

    async def _count(self) -> int:
        return await self._or_none_found(self._client.count_labelled(self.name, _DELAYED))


def _time(due: datetime | float | None, delay: float | timedelta | None) -> PushOptions:
    if delay is not None and due is not None:
        raise ValueError("give either due or delay")
    if delay is not None:
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else float(delay)
        if not (math.isfinite(seconds) and seconds >= 0):
            raise ValueError(f"a delay must be 0 seconds or more, not {delay!r}")
        return {"delay": seconds, "label": _DELAYED}
    if isinstance(due, datetime):
        if due.tzinfo is None:
            raise ValueError("a datetime needs a time zone")
        due = due.timestamp()
    if due is None:
        raise ValueError("give either due or delay")
    if not (math.isfinite(due) and due > 0):
        raise ValueError(f"due must be a time after 1970, not {due!r}")
    return {"due": float(due), "label": _DELAYED}
