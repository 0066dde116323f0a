"""Builders of queues, for code written for Curator."""

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
        """Acknowledge items after their consumer returned. The path is ignored."""
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
        """See `QueueOptions`; enables safe mode too."""
        return self._with(exclusive=flag, safe=self._options.safe or flag)


class QueueBuilder(_Builder[T]):
    """A builder of queues for threads.

    Args:
        client: the client to use, which the application closes.
        consumer: None for a queue that only stores items.
        serializer: converts items to bytes and back.
        name: name of the queue in the cluster.
    """

    def __init__(self, client: Client, consumer: ConsumerLike[T] | None, serializer: Serializer[T], name: str) -> None:
        super().__init__(client, consumer, serializer, name)

    def build_queue(self) -> threads.DistributedQueue[T]:
        """Return a `DistributedQueue` that is not started."""
        return threads.DistributedQueue(*self._given, self._options)

    def build_id_queue(self) -> threads.DistributedIdQueue[T]:
        """Return a `DistributedIdQueue` that is not started."""
        return threads.DistributedIdQueue(*self._given, self._options)

    def build_priority_queue(self, min_items_before_refresh: int = 0) -> threads.DistributedPriorityQueue[T]:
        """Return a `DistributedPriorityQueue` that is not started."""
        given = self._given
        return threads.DistributedPriorityQueue(
            *given, self._options, min_items_before_refresh=min_items_before_refresh
        )

    def build_delay_queue(self) -> threads.DistributedDelayQueue[T]:
        """Return a `DistributedDelayQueue` that is not started."""
        return threads.DistributedDelayQueue(*self._given, self._options)


class AsyncQueueBuilder(_Builder[T]):
    """A builder of queues for asyncio. The arguments are those of `QueueBuilder`."""

    def __init__(
        self, client: AsyncClient, consumer: ConsumerLike[T] | None, serializer: Serializer[T], name: str
    ) -> None:
        super().__init__(client, consumer, serializer, name)

    def build_queue(self) -> queues.DistributedQueue[T]:
        """Return a `DistributedQueue` that is not started."""
        return queues.DistributedQueue(*self._given, self._options)

    def build_id_queue(self) -> queues.DistributedIdQueue[T]:
        """Return a `DistributedIdQueue` that is not started."""
        return queues.DistributedIdQueue(*self._given, self._options)

    def build_priority_queue(self, min_items_before_refresh: int = 0) -> queues.DistributedPriorityQueue[T]:
        """Return a `DistributedPriorityQueue` that is not started."""
        return queues.DistributedPriorityQueue(
            *self._given, self._options, min_items_before_refresh=min_items_before_refresh
        )

    def build_delay_queue(self) -> queues.DistributedDelayQueue[T]:
        """Return a `DistributedDelayQueue` that is not started."""
        return queues.DistributedDelayQueue(*self._given, self._options)
