"""What there is to know of a queue, read from the local replica."""

from __future__ import annotations

from dataclasses import dataclass

from ...core import Queue

__all__ = ["QueueInfo", "age_s", "info_of", "ready_count"]


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """Statistics of one queue on the local replica; counters are cluster-wide and never fall.

    Attributes:
        suspended: whether it hands out nothing for the time being.
        ready: messages that can be pulled now, but for those whose leases have ended.
        delayed: messages that become due later.
        leased: messages under live or ended leases.
        accumulating: parts in the open accumulation window.
        size: all messages, an open window counting as one.
        bytes: bytes of all bodies.
        oldest_age_s: for how many seconds the message that is next to be delivered has been due; None if none is.
    """

    name: bytes
    suspended: bool
    ready: int
    delayed: int
    leased: int
    accumulating: int
    size: int
    bytes: int
    oldest_age_s: float | None
    pushed_total: int
    pulled_total: int
    acked_total: int
    nacked_total: int
    redelivered_total: int
    dropped_total: int
    purged_total: int
    moved_out_total: int
    moved_in_total: int


def info_of(queue: Queue, now_us: int) -> QueueInfo:
    """Statistics of a queue at a log time."""
    ready = ready_count(queue, now_us)
    window = queue.window
    parts = len(window.content) if window is not None and window.due_us > now_us else 0
    return QueueInfo(
        name=queue.name,
        suspended=queue.suspended,
        ready=ready,
        delayed=len(queue.ready) + len(queue.delayed) - ready,
        leased=len(queue.leases),
        accumulating=parts,
        size=len(queue),
        bytes=queue.body_bytes,
        oldest_age_s=age_s(queue.earliest_us(), now_us),
        pushed_total=queue.pushed_total,
        pulled_total=queue.pulled_total,
        acked_total=queue.acked_total,
        nacked_total=queue.nacked_total,
        redelivered_total=queue.redelivered_total,
        dropped_total=queue.dropped_total,
        purged_total=queue.purged_total,
        moved_out_total=queue.moved_out_total,
        moved_in_total=queue.moved_in_total,
    )


def ready_count(queue: Queue, now_us: int) -> int:
    """Messages that can be pulled now, but for those whose leases have ended."""
    # Only a window that is still open is due later.
    window = queue.window
    waiting = len(queue.ready) + len(queue.delayed)
    return waiting - 1 if window is not None and window.due_us > now_us else waiting


def age_s(due_us: int | None, now_us: int) -> float | None:
    """For how long a message has been due, in seconds; None if none is."""
    return None if due_us is None or due_us > now_us else (now_us - due_us) / 1e6
