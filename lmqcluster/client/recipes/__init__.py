"""Recipes for queues on top of `Client`, with threads; `aio` has the same for asyncio."""

from .blocking import BlockingQueueConsumer
from .builder import QueueBuilder
from .sharder import QueueSharderPolicies
from .shared.envelope import pack_items, unpack_items
from .shared.errors import CorruptItemError, PutError, QueueEmpty, QueueStateError
from .shared.options import ConnectionState, Consumer, ConsumerLike, ErrorMode, PutListener, QueueOptions
from .shared.serializers import BytesSerializer, JsonSerializer, MsgpackSerializer, Serializer, TextSerializer
from .threads import (
    DistributedDelayQueue,
    DistributedIdQueue,
    DistributedPriorityQueue,
    DistributedQueue,
    QueueBase,
    QueueSharder,
    SimpleDistributedQueue,
)

__all__ = [
    "BlockingQueueConsumer",
    "BytesSerializer",
    "ConnectionState",
    "Consumer",
    "ConsumerLike",
    "CorruptItemError",
    "DistributedDelayQueue",
    "DistributedIdQueue",
    "DistributedPriorityQueue",
    "DistributedQueue",
    "ErrorMode",
    "JsonSerializer",
    "MsgpackSerializer",
    "PutError",
    "PutListener",
    "QueueBase",
    "QueueBuilder",
    "QueueEmpty",
    "QueueOptions",
    "QueueSharder",
    "QueueSharderPolicies",
    "QueueStateError",
    "Serializer",
    "SimpleDistributedQueue",
    "TextSerializer",
    "pack_items",
    "unpack_items",
]
