"""Sums over all queues, made in slices so that a node with very many of them goes on serving meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from ...core import Machine, Queue
from ...core.queue import COUNTERS
from ..queues.info import ready_count

__all__ = ["QueueTotals", "sum_queues"]

_counts = attrgetter(*COUNTERS)

QUEUES_PER_SLICE = 500
"""After so many queues other requests get their turn: about a millisecond."""


@dataclass(slots=True)
class QueueTotals:
    """Sums over all queues of a replica.

    Attributes:
        ready: messages that can be pulled now, see `ready_count`.
        oldest_us: the earliest due time of all messages, or None if there are none.
        counters: by the names of `core.queue.COUNTERS`; deleted queues included.
    """

    queues: int
    counters: dict[str, int]
    ready: int = 0
    delayed: int = 0
    leased: int = 0
    body_bytes: int = 0
    oldest_us: int | None = None

    def add(self, queues: Sequence[Queue], now_us: int) -> None:
        """Count some queues at a log time."""
        for queue in queues:
            ready = ready_count(queue, now_us)
            self.ready += ready
            self.delayed += len(queue.ready) + len(queue.delayed) - ready
            self.leased += len(queue.leases.messages)
            self.body_bytes += queue.body_bytes
            earliest_us = queue.earliest_us()
            if earliest_us is not None and (self.oldest_us is None or earliest_us < self.oldest_us):
                self.oldest_us = earliest_us
        for name, counts in zip(COUNTERS, zip(*map(_counts, queues), strict=True), strict=True):
            self.counters[name] += sum(counts)


async def sum_queues(machine: Machine) -> QueueTotals:
    """The sums; queues are read at slightly different moments.

    Counters never fall from one call to the next: a queue that is deleted meanwhile still counts as one of those that were
    there at the beginning, and the next call finds it among the deleted ones.
    """
    queues = list(machine.queues.values())
    totals = QueueTotals(len(queues), dict(machine.retired))
    for start in range(0, len(queues), QUEUES_PER_SLICE):
        totals.add(queues[start : start + QUEUES_PER_SLICE], machine.now_us)
        await asyncio.sleep(0)
    return totals
