"""The builder, for code that comes from Curator."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import replace
from typing import Any, Generic, Self, TypeVar

from ..aio.client import AsyncClient
from ..blocking.client import Client
from . import queues, threads
from .shared.options import ConsumerLike, QueueOptions
from .shared.serializers import Serializer

__all__ = ["AsyncQueueBuilder", "QueueBuilder"]

T = TypeVar("T")


class _Builder(Generic[T]):
    def __init__(self, client: Any, consumer: ConsumerLike[T] | None, serializer: Serializer[T], name: str) -> None:
        self._given = (client, name, serializer, consumer)
        self._options = QueueOptions()

    def _with(self, **options: Any) -> Self:
        self._options = replace(self._options, **options)
        return self

    def lock_path(self, path: str) -> Self:  # noqa: ARG002
        """Acknowledge items after their consumer returned. The path is of no meaning."""
        return self._with(safe=True)

    def max_items(self, n: int) -> Self:
        """See `QueueOptions`."""
        return self._with(max_items=n)

    def put_in_background(self, flag: bool) -> Self:
        """See `QueueOptions`."""
        return self._with(put_in_background=flag)

    def final_flush_time(self, seconds: float) -> Self:
        """See `QueueOptions.final_flush`."""
        return self._with(final_flush=seconds)

    def executor(self, executor: Executor) -> Self:
        """See `QueueOptions`."""
        return self._with(executor=executor)

    def lease(self, seconds: float) -> Self:
        """See `QueueOptions`."""
        return self._with(lease=seconds)

    def exclusive(self, flag: bool = True) -> Self:
        """See `QueueOptions`; turns safe mode on."""
        return self._with(exclusive=flag, safe=self._options.safe or flag)


class QueueBuilder(_Builder[T]):
    """Makes queues for threads.

    Args:
        client: stays the caller's to close.
        consumer: None for a queue that only stores items.
        serializer: between items and bytes.
        name: of the queue in the cluster.
    """

    def __init__(self, client: Client, consumer: ConsumerLike[T] | None, serializer: Serializer[T], name: str) -> None:
        super().__init__(client, consumer, serializer, name)

    def build_queue(self) -> threads.DistributedQueue[T]:
        """A `DistributedQueue`, not started."""
        return threads.DistributedQueue(*self._given, self._options)

    def build_id_queue(self) -> threads.DistributedIdQueue[T]:
        """A `DistributedIdQueue`, not started."""
        return threads.DistributedIdQueue(*self._given, self._options)

    def build_priority_queue(self, min_items_before_refresh: int = 0) -> threads.DistributedPriorityQueue[T]:
        """A `DistributedPriorityQueue`, not started."""
        given = self._given
        return threads.DistributedPriorityQueue(
            *given, self._options, min_items_before_refresh=min_items_before_refresh
        )

    def build_delay_queue(self) -> threads.DistributedDelayQueue[T]:
        """A `DistributedDelayQueue`, not started."""
        return threads.DistributedDelayQueue(*self._given, self._options)


class AsyncQueueBuilder(_Builder[T]):
    """Makes queues for asyncio. Arguments as those of `QueueBuilder`."""

    def __init__(
        self, client: AsyncClient, consumer: ConsumerLike[T] | None, serializer: Serializer[T], name: str
    ) -> None:
        super().__init__(client, consumer, serializer, name)

    def build_queue(self) -> queues.DistributedQueue[T]:
        """A `DistributedQueue`, not started."""
        return queues.DistributedQueue(*self._given, self._options)

    def build_id_queue(self) -> queues.DistributedIdQueue[T]:
        """A `DistributedIdQueue`, not started."""
        return queues.DistributedIdQueue(*self._given, self._options)

    def build_priority_queue(self, min_items_before_refresh: int = 0) -> queues.DistributedPriorityQueue[T]:
        """A `DistributedPriorityQueue`, not started."""
        return queues.DistributedPriorityQueue(
            *self._given, self._options, min_items_before_refresh=min_items_before_refresh
        )

    def build_delay_queue(self) -> queues.DistributedDelayQueue[T]:
        """A `DistributedDelayQueue`, not started."""
        return queues.DistributedDelayQueue(*self._given, self._options)
