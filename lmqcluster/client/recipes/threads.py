"""The recipes for code without an event loop, which run those for asyncio on the loop of the blocking client."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, ClassVar, Generic, Self, TypeVar

from ..aio.client import AsyncClient
from ..blocking.client import Client
from . import base, queues, sharder, simple
from .sharder import QueueSharderPolicies
from .shared.callers import OnThreads
from .shared.options import ConsumerLike, ErrorMode, PutListener, QueueOptions
from .shared.serializers import Serializer

__all__ = [
    "DistributedDelayQueue",
    "DistributedIdQueue",
    "DistributedPriorityQueue",
    "DistributedQueue",
    "QueueBase",
    "QueueSharder",
    "SimpleDistributedQueue",
]

T = TypeVar("T")


class QueueBase(Generic[T]):
    """A queue that passes its items to a consumer, in threads.

    ``with`` starts and closes it. Without a consumer, it only stores items. It may be shared between threads.
    """

    _kind: ClassVar[type[base.QueueBase[Any]]]

    def __init__(
        self,
        client: Client,
        name: str,
        serializer: Serializer[T],
        consumer: ConsumerLike[T] | None = None,
        options: QueueOptions | None = None,
        **more: Any,
    ) -> None:
        """Configure the queue without sending anything. The arguments are those of `aio.QueueBase`."""
        caller = OnThreads(None if options is None else options.executor)
        self._client = client
        self._core: Any = self._kind(client._client, name, serializer, consumer, options, caller=caller, **more)

    @property
    def name(self) -> str:
        """Name of the queue in the cluster."""
        name: str = self._core.name
        return name

    def start(self) -> None:
        """See `aio.QueueBase.start`."""
        self._client._run(self._core.start)

    def close(self) -> None:
        """See `aio.QueueBase.close`. Raise the exit or interruption with which a consumer ended, if any."""
        stop: BaseException | None = self._client._run(self._core._shut)
        try:
            if stop is not None:
                raise stop
        finally:
            # The error refers to this frame, so the variable would create a reference cycle.
            del stop

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def flush_puts(self, timeout: float | None = None) -> bool:
        """See `aio.QueueBase.flush_puts`."""
        return self._flag(self._core.flush_puts, timeout)

    def add_put_listener(self, listener: PutListener[T]) -> None:
        """See `aio.QueueBase.add_put_listener`. A dedicated thread calls the listeners, in order."""
        self._core.add_put_listener(listener)

    def remove_put_listener(self, listener: PutListener[T]) -> None:
        """See `aio.QueueBase.remove_put_listener`."""
        self._core.remove_put_listener(listener)

    def set_error_mode(self, mode: ErrorMode) -> None:
        """See `aio.QueueBase.set_error_mode`."""
        self._core.set_error_mode(mode)

    @property
    def error_mode(self) -> ErrorMode:
        """Handling of an item whose consumer raised."""
        mode: ErrorMode = self._core.error_mode
        return mode

    def message_count(self) -> int:
        """See `aio.QueueBase.message_count`."""
        return self._count(self._core.message_count)

    @property
    def last_message_count(self) -> int:
        """Last result of `message_count`, 0 before the first."""
        count: int = self._core.last_message_count
        return count

    def _flag(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> bool:
        flag: bool = self._client._run(lambda: call(*arguments, **options))
        return flag

    def _count(self, call: Callable[..., Any], *arguments: Any) -> int:
        count: int = self._client._run(lambda: call(*arguments))
        return count


class DistributedQueue(QueueBase[T]):
    """A first-in, first-out queue."""

    _kind = queues.DistributedQueue

    def put(self, item: T, *, timeout: float | None = None) -> bool:
        """See `aio.DistributedQueue.put`."""
        return self._flag(self._core.put, item, timeout=timeout)

    def put_multi(self, items: Iterable[T], *, timeout: float | None = None) -> bool:
        """See `aio.DistributedQueue.put_multi`."""
        return self._flag(self._core.put_multi, list(items), timeout=timeout)


class DistributedIdQueue(QueueBase[T]):
    """A first-in, first-out queue whose items have ids by which they can be removed. Ids need not be unique."""

    _kind = queues.DistributedIdQueue

    def put(self, item: T, item_id: str, *, timeout: float | None = None) -> bool:
        """See `aio.DistributedIdQueue.put`."""
        return self._flag(self._core.put, item, item_id, timeout=timeout)

    def remove(self, item_id: str) -> int:
        """See `aio.DistributedIdQueue.remove`."""
        return self._count(self._core.remove, item_id)

    def contains(self, item_id: str) -> bool:
        """See `aio.DistributedIdQueue.contains`."""
        return self._flag(self._core.contains, item_id)


class DistributedPriorityQueue(QueueBase[T]):
    """A priority queue: lower priorities come first, equal ones in the order of their puts."""

    _kind = queues.DistributedPriorityQueue

    def put(self, item: T, priority: int, *, timeout: float | None = None) -> bool:
        """See `aio.DistributedPriorityQueue.put`."""
        return self._flag(self._core.put, item, priority, timeout=timeout)

    def put_multi(self, items: Iterable[T], priority: int, *, timeout: float | None = None) -> bool:
        """See `aio.DistributedPriorityQueue.put_multi`."""
        return self._flag(self._core.put_multi, list(items), priority, timeout=timeout)


class DistributedDelayQueue(QueueBase[T]):
    """A delay queue: items are delivered when they are due by the cluster's clock, in the order of their due times."""

    _kind = queues.DistributedDelayQueue

    def put(
        self,
        item: T,
        due: datetime | float | None = None,
        *,
        delay: float | timedelta | None = None,
        timeout: float | None = None,
    ) -> bool:
        """See `aio.DistributedDelayQueue.put`."""
        return self._flag(self._core.put, item, due, delay=delay, timeout=timeout)

    def put_multi(
        self,
        items: Iterable[T],
        due: datetime | float | None = None,
        *,
        delay: float | timedelta | None = None,
        timeout: float | None = None,
    ) -> bool:
        """See `aio.DistributedDelayQueue.put_multi`."""
        return self._flag(self._core.put_multi, list(items), due, delay=delay, timeout=timeout)


class SimpleDistributedQueue:
    """A queue of byte strings that the application takes one by one. It needs no start and no close."""

    def __init__(self, client: Client, name: str) -> None:
        self._run = client._run
        self._core = simple.SimpleDistributedQueue(client._client, name)
        self.name = name

    def offer(self, data: bytes) -> bool:
        """See `aio.SimpleDistributedQueue.offer`."""
        return self._run(lambda: self._core.offer(data))

    def peek(self) -> bytes | None:
        """See `aio.SimpleDistributedQueue.peek`."""
        return self._run(self._core.peek)

    def element(self) -> bytes:
        """See `aio.SimpleDistributedQueue.element`."""
        return self._run(self._core.element)

    def poll(self, timeout: float = 0) -> bytes | None:
        """See `aio.SimpleDistributedQueue.poll`."""
        return self._run(lambda: self._core.poll(timeout))

    def remove(self) -> bytes:
        """See `aio.SimpleDistributedQueue.remove`."""
        return self._run(self._core.remove)

    def take(self) -> bytes:
        """See `aio.SimpleDistributedQueue.take`."""
        return self._run(self._core.take)


Q = TypeVar("Q", bound=QueueBase[Any])


class QueueSharder(Generic[Q]):
    """A sharder that spreads items over queues, see `aio.QueueSharder`."""

    def __init__(
        self,
        client: Client,
        allocator: Callable[[Client, str], Q],
        name: str,
        leader_name: str | None = None,
        policies: QueueSharderPolicies | None = None,
    ) -> None:
        """See `aio.QueueSharder`."""
        self._client = client
        self._shards: dict[str, Q] = {}

        def allocate(_: AsyncClient, shard_name: str) -> base.QueueBase[Any]:
            shard = self._shards[shard_name] = allocator(client, shard_name)
            core: base.QueueBase[Any] = shard._core
            return core

        self._core = sharder.QueueSharder(client._client, allocate, name, leader_name, policies)

    def start(self) -> None:
        """See `aio.QueueSharder.start`."""
        self._client._run(self._core.start)

    def close(self) -> None:
        """See `aio.QueueSharder.close`."""
        self._client._run(self._core.close)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def get_queue(self) -> Q:
        """See `aio.QueueSharder.get_queue`."""
        return self._shards[self._core.get_queue().name]

    @property
    def shard_quantity(self) -> int:
        """Number of shards that this sharder knows."""
        return self._core.shard_quantity

    @property
    def queue_names(self) -> frozenset[str]:
        """Names of the shards that this sharder knows."""
        return self._core.queue_names
