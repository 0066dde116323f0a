"""One batch lease, and the subscription that holds it. See `batch_leases` for the commands."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple

__all__ = ["BatchLease", "BatchState", "Reserved", "Subscription"]


class BatchState(IntEnum):
    """The states of an epoch. Part of replies between nodes and clients: never renumber."""

    LIVE = 1
    EMPTY = 2
    SETTLED = 3
    EXPIRED = 4


class Reserved(NamedTuple):
    """The result of a reservation.

    Attributes:
        size: number of messages in the batch.
        sealed: True if the batch is complete; otherwise the command must be repeated.
        deadline_us: log time of the end of the lease, 0 if there is no batch.
    """

    state: int
    size: int
    sealed: bool
    deadline_us: int


class BatchLease:
    """The messages of one epoch.

    Attributes:
        count: number of messages.
        runs: [queue, first delivery number, count] in reading order.
        starts: position in the batch of each run's first message.
    """

    __slots__ = ("count", "deadline_us", "runs", "sealed", "starts")

    def __init__(self, deadline_us: int) -> None:
        self.deadline_us = deadline_us
        self.count = 0
        self.sealed = False
        self.runs: list[list[Any]] = []
        self.starts: list[int] = []

    def add(self, queue: bytes, first: int, count: int) -> None:
        """Append consecutive deliveries of one queue."""
        last = self.runs[-1] if self.runs else None
        if last is not None and last[0] == queue and last[1] + last[2] == first:
            last[2] += count
        else:
            self.runs.append([queue, first, count])
            self.starts.append(self.count)
        self.count += count

    def drop(self, count: int) -> tuple[bytes, list[int]]:
        """Remove up to `count` deliveries of the last run; return their queue and numbers."""
        run = self.runs[-1]
        count = min(count, run[2])
        run[2] -= count
        self.count -= count
        if not run[2]:
            self.runs.pop()
            self.starts.pop()
        return run[0], list(range(run[1] + run[2], run[1] + run[2] + count))

    def slice(self, start: int, count: int) -> Iterator[tuple[bytes, int, int]]:
        """Yield (queue, first number, count) for `count` deliveries from position `start` on."""
        position = bisect_right(self.starts, start) - 1
        end = min(start + count, self.count)
        while start < end:
            queue, first, length = self.runs[position]
            skipped = start - self.starts[position]
            taken = min(length - skipped, end - start)
            yield queue, first + skipped, taken
            start += taken
            position += 1


class Subscription:
    """The batch leases of one consumer.

    Attributes:
        owner: the owner, to whose quota it counts; empty if there is none.
        session: the only session that may use it; 0 if it was never claimed.
        settled: the highest settled epoch.
        batches: by epoch, in growing order.
        used_us: log time of the last command.
    """

    __slots__ = ("batches", "owner", "session", "settled", "used_us")

    def __init__(self, owner: bytes) -> None:
        self.owner = owner
        self.session = 0
        self.settled = 0
        self.used_us = 0
        self.batches: dict[int, BatchLease] = {}

    def is_open_to(self, owner: bytes) -> bool:
        """Return whether an owner may use it. The empty owner, of clients that need no token, may use all subscriptions."""
        return not owner or self.owner in (owner, b"")
