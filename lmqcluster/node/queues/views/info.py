"""Statistics of a queue, read from the local replica."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter

from ....core import Queue
from ....core.messages.message import content_count
from ....core.queue.counters import COUNTERS

__all__ = [
    "QueueDescription",
    "QueueInfo",
    "Rates",
    "age_s",
    "busy_groups",
    "counts_of",
    "dead_letters",
    "description_of",
    "info_of",
    "no_rates",
]

Rates = Callable[[bytes], tuple[float, float]]
"""Returns pushes and deliveries per second of a queue, over the last seconds, as seen by this node."""


def no_rates(_queue: bytes) -> tuple[float, float]:
    """Return zero rates, for callers without a meter."""
    return 0.0, 0.0


counts_of: Callable[[Queue], tuple[int, ...]] = attrgetter(*(f"counters.{name}" for name in COUNTERS))
"""Returns the counters of a queue, in the order of `COUNTERS`."""


@dataclass(frozen=True, slots=True)
class QueueDescription:
    """Annotations and times of a queue.

    Attributes:
        annotations: texts by name, in the order of the names.
        created_us, changed_us: when it was created, and when a client last changed its own properties or annotations; in
            microseconds since 1970.
    """

    annotations: Mapping[str, str]
    created_us: int
    changed_us: int


def description_of(queue: Queue, unix_us: Callable[[int], int]) -> QueueDescription:
    """Return the description of a queue; `unix_us` converts log time."""
    annotations = dict(sorted(queue.annotations.items()))
    return QueueDescription(annotations, unix_us(queue.created_us), unix_us(queue.changed_us))


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """Statistics of one queue on the local replica.

    Attributes:
        suspended: whether its deliveries are suspended.
        ready: messages that can be pulled now, except those whose leases have ended.
        delayed: messages that become due later, or wait for the one before them of their group.
        leased: messages under live or ended leases.
        accumulating: parts in the open accumulation window.
        pushes_waiting: pushes that wait for room.
        dead_letters: unleased messages that the cluster has put here.
        groups: groups with a message in line or leased.
        held: messages that wait for the one before them of their group.
        held_back: messages that each limit of deliveries holds back, by the name of its property.
        size: all messages, an open window counting as one.
        bytes: bytes of all bodies.
        oldest_age_s: seconds for which the next message to be delivered has been due; None if none is due.
        push_rate, pull_rate: pushed messages and deliveries per second.
        counters: by the names of `COUNTERS`, for the whole cluster.
    """

    name: bytes
    suspended: bool
    ready: int
    delayed: int
    leased: int
    accumulating: int
    pushes_waiting: int
    dead_letters: int
    groups: int
    held: int
    held_back: Mapping[str, int]
    size: int
    bytes: int
    oldest_age_s: float | None
    push_rate: float
    pull_rate: float
    counters: Mapping[str, int]


def info_of(queue: Queue, now_us: int, rates: Rates = no_rates) -> QueueInfo:
    """Return statistics of a queue at a log time."""
    ready = queue.store.due_count(now_us)
    window = queue.store.window
    rich = queue.store.rich
    push_rate, pull_rate = rates(queue.name)
    parts = content_count(window.content) if window is not None and window.due_us > now_us else 0
    return QueueInfo(
        name=queue.name,
        suspended=queue.suspended,
        ready=ready,
        delayed=queue.store.waiting() - ready,
        leased=len(queue.store.leases),
        accumulating=parts,
        pushes_waiting=queue.pushes_waiting,
        dead_letters=dead_letters(queue),
        groups=busy_groups(queue),
        held=0 if rich is None else len(rich.held),
        held_back=queue.limits.held_back(now_us),
        size=len(queue),
        bytes=queue.store.body_bytes,
        oldest_age_s=age_s(queue.store.earliest_us(), now_us),
        push_rate=push_rate,
        pull_rate=pull_rate,
        counters=dict(zip(COUNTERS, counts_of(queue), strict=True)),
    )


def busy_groups(queue: Queue) -> int:
    """Return the number of groups with a message in line or leased."""
    return 0 if queue.store.rich is None else queue.store.rich.busy_groups()


def dead_letters(queue: Queue) -> int:
    """Return the number of unleased messages that the cluster has put here: dead letters and expired messages."""
    return 0 if queue.store.rich is None else queue.store.rich.count_moved()


def age_s(due_us: int | None, now_us: int) -> float | None:
    """Return for how many seconds a message has been due; None if none is due."""
    return None if due_us is None or due_us > now_us else (now_us - due_us) / 1e6
