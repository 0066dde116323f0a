"""Options of a queue, and interfaces of its consumers and listeners."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol, TypeVar

from lmqcluster.wire.limits import PULL_COUNT_MAX

__all__ = ["ConnectionState", "Consumer", "ConsumerLike", "ErrorMode", "PutListener", "QueueOptions"]

LEASE_S_MAX = 3_600
"""Maximum TTL of a session in seconds."""

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class ConnectionState(enum.Enum):
    """State of the connection between a queue and the cluster.

    Attributes:
        CONNECTED: connected for the first time.
        SUSPENDED: the connection is lost. The consumer holds its current items until the lease expires. It receives no further
            ones later than `QueueOptions.lease` seconds after the last renewal of its session.
        RECONNECTED: a node answers again.
        LOST: the connection has been lost for longer than any lease, so other consumers may receive the items that were being
            processed. The queue recovers by itself.
        READ_ONLY: never reported; defined for code written for Curator.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    RECONNECTED = "reconnected"
    LOST = "lost"
    READ_ONLY = "read_only"


class ErrorMode(enum.Enum):
    """Handling of an item whose consumer raised, in safe mode.

    Attributes:
        REQUEUE: redeliver it without limit; it keeps its priority, due time and id.
        DELETE: remove it.
        DEAD_LETTER: redeliver it; after `QueueOptions.max_attempts` deliveries it becomes a dead letter.
    """

    REQUEUE = "requeue"
    DELETE = "delete"
    DEAD_LETTER = "dead_letter"


class Consumer(Protocol[T_contra]):
    """A consumer of items. With asyncio, both methods may be coroutines."""

    def consume_message(self, item: T_contra) -> Awaitable[None] | None:
        """Process an item. An exception means that the item was not processed."""

    def state_changed(self, state: ConnectionState) -> Awaitable[None] | None:
        """Handle a change of state. Calls are in order and can overlap with calls of `consume_message`."""


ConsumerLike = Consumer[T] | Callable[[T], Awaitable[None] | None]


class PutListener(Protocol[T_contra]):
    """A listener for the outcomes of puts."""

    def put_completed(self, item: T_contra) -> None:
        """Handle a stored item."""

    def put_multi_completed(self, items: Sequence[T_contra]) -> None:
        """Handle the stored items of one `put_multi`."""

    def put_failed(self, item: T_contra | Sequence[T_contra], error: Exception) -> None:
        """Handle an item, or the items of one `put_multi`, that could not be stored in the background."""


@dataclass(frozen=True, kw_only=True)
class QueueOptions:
    """Options of a queue. Producers and consumers of a queue should use the same ones.

    Attributes:
        safe: acknowledge an item after its consumer returned, instead of before it is called.
        lease: seconds after the last renewal of a consumer's session until other consumers receive its items. The client renews
            the session every third of this time.
        error_mode: handling of an item whose consumer raised, in safe mode.
        max_items: maximum number of waiting messages, which the cluster enforces exactly. None does not change the queue.
        put_in_background: whether puts return before the item is stored. None: yes, unless `max_items` is given.
        final_flush: seconds for which closing waits for puts in the background and, with threads, for a running consumer.
        executor: runs the consumer, with threads. None: a dedicated thread, one item at a time, in order.
        concurrency: maximum number of items that the consumer processes at once. With an executor: its number of threads, if
            known.
        retry_delay: seconds until the redelivery of an item whose consumer raised.
        max_attempts: deliveries before an item goes to the queue ``NAME.dead``; required for DEAD_LETTER, and allowed only there.
        prefetch: number of messages to take at once. The consumer leases them and receives them one by one.
        exclusive: whether only one consumer in the cluster is active, so that items are processed strictly in order. The others
            stand by.
    """

    safe: bool = False
    lease: float = 30.0
    error_mode: ErrorMode = ErrorMode.REQUEUE
    max_items: int | None = None
    put_in_background: bool | None = None
    final_flush: float = 5.0
    executor: Executor | None = None
    concurrency: int = 1
    retry_delay: float = 0.0
    max_attempts: int | None = None
    prefetch: int = 1
    exclusive: bool = False

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            ValueError: an option is out of range, or options conflict.
        """
        if not 0 < self.lease <= LEASE_S_MAX:
            raise ValueError(f"lease must be above 0 and at most {LEASE_S_MAX} seconds, not {self.lease!r}")
        if min(self.final_flush, self.retry_delay) < 0:
            raise ValueError("final_flush and retry_delay must be 0 or more")
        if self.concurrency < 1:
            raise ValueError(f"concurrency must be 1 or more, not {self.concurrency!r}")
        if not 1 <= self.prefetch <= PULL_COUNT_MAX:
            raise ValueError(f"prefetch must be 1 to {PULL_COUNT_MAX}, not {self.prefetch!r}")
        if self.max_items is not None and self.max_items < 1:
            raise ValueError(f"max_items must be 1 or more, not {self.max_items!r}")
        if self.max_attempts is not None and self.max_attempts < 1:
            raise ValueError(f"max_attempts must be 1 or more, not {self.max_attempts!r}")
        if (self.max_attempts is not None) != (self.error_mode is ErrorMode.DEAD_LETTER):
            raise ValueError("max_attempts and ErrorMode.DEAD_LETTER go together")
        if self.exclusive and (self.concurrency > 1 or not self.safe):
            raise ValueError("exclusive needs safe=True and no concurrency: there is one item at a time")
        if not self.safe and self.error_mode is not ErrorMode.REQUEUE:
            raise ValueError("an error mode needs safe=True: otherwise items are acknowledged before they are consumed")

    @property
    def in_background(self) -> bool:
        """True if puts return before the item is stored."""
        return self.max_items is None if self.put_in_background is None else self.put_in_background
