"""How a queue is to be used, and who listens."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol, TypeVar

from lmqcluster.wire.limits import PULL_COUNT_MAX

__all__ = ["ConnectionState", "Consumer", "ConsumerLike", "ErrorMode", "PutListener", "QueueOptions"]

LEASE_S_MAX = 3_600
"""The longest life of a session without a sign of its client."""

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class ConnectionState(enum.Enum):
    """How a queue stands to the cluster.

    Attributes:
        CONNECTED: for the first time.
        SUSPENDED: the connection is lost. Items in hand are still the consumer's, unless this lasts: no others are handed out
            later than `QueueOptions.lease` seconds after the last sign of it.
        RECONNECTED: a node answers again.
        LOST: this has lasted longer than any lease: what was in hand may go to other consumers. The queue recovers by itself.
        READ_ONLY: never reported; known to code that comes from Curator.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    RECONNECTED = "reconnected"
    LOST = "lost"
    READ_ONLY = "read_only"


class ErrorMode(enum.Enum):
    """What becomes of an item whose consumer raised, in safe mode.

    Attributes:
        REQUEUE: it comes again, as often as it takes; its priority, due time and id are kept.
        DELETE: it is removed.
        DEAD_LETTER: it comes again, and after `QueueOptions.max_attempts` deliveries goes to the dead letters.
    """

    REQUEUE = "requeue"
    DELETE = "delete"
    DEAD_LETTER = "dead_letter"


class Consumer(Protocol[T_contra]):
    """Takes items. With asyncio both methods may be coroutines."""

    def consume_message(self, item: T_contra) -> Awaitable[None] | None:
        """Handle an item. An exception means that it was not handled."""

    def state_changed(self, state: ConnectionState) -> Awaitable[None] | None:
        """Called in the order of changes, beside calls of `consume_message`."""


ConsumerLike = Consumer[T] | Callable[[T], Awaitable[None] | None]


class PutListener(Protocol[T_contra]):
    """Hears of puts."""

    def put_completed(self, item: T_contra) -> None:
        """The item is stored."""

    def put_multi_completed(self, items: Sequence[T_contra]) -> None:
        """The items of one `put_multi` are stored."""

    def put_failed(self, item: T_contra | Sequence[T_contra], error: Exception) -> None:
        """The item, or the items of one `put_multi`, could not be stored in the background."""


@dataclass(frozen=True, kw_only=True)
class QueueOptions:
    """How a queue is to be used. Producers and consumers of a queue should give the same ones.

    Attributes:
        safe: acknowledge an item after its consumer returned, instead of before it is called.
        lease: how many seconds after the last sign of a consumer its items are another one's. A sign is given every third of it.
        error_mode: what becomes of an item whose consumer raised; for safe mode.
        max_items: how many messages may wait in the queue; kept by the cluster, exactly. None leaves the queue as it is.
        put_in_background: have puts return before the item is stored. None: unless `max_items` is given.
        final_flush: seconds that closing waits for puts in the background, and, with threads, for a running consumer.
        executor: where the consumer runs, with threads. None: in one thread of the queue's own, one item at a time, in order.
        concurrency: most items in the consumer's hands at once. With an executor: as many as it has threads, if it tells.
        retry_delay: seconds after which an item comes again whose consumer raised.
        max_attempts: deliveries before an item goes to the queue ``NAME.dead``; needed for DEAD_LETTER, and only there.
        prefetch: how many messages to take at once. They are the consumer's, and are handed out one by one.
        exclusive: have one consumer in the cluster at a time, so that items are handled strictly in order. The others stand by.
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
            ValueError: an option is out of range, or options contradict each other.
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
        """Whether puts return before the item is stored."""
        return self.max_items is None if self.put_in_background is None else self.put_in_background
