"""Recipes for queues on top of `AsyncClient`, with the names of `lmqcluster.client.recipes`."""

from .base import QueueBase
from .blocking import AsyncBlockingQueueConsumer as BlockingQueueConsumer
from .builder import AsyncQueueBuilder as QueueBuilder
from .queues import DistributedDelayQueue, DistributedIdQueue, DistributedPriorityQueue, DistributedQueue
from .sharder import QueueSharder, QueueSharderPolicies
from .shared.envelope import pack_items, unpack_items
from .shared.errors import CorruptItemError, PutError, QueueEmpty, QueueStateError
from .shared.options import ConnectionState, Consumer, ConsumerLike, ErrorMode, PutListener, QueueOptions
from .shared.serializers import BytesSerializer, JsonSerializer, MsgpackSerializer, Serializer, TextSerializer
from .simple import SimpleDistributedQueue

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
