"""Sums over all queues, made in slices so that a node with very many of them goes on serving meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, NamedTuple

from ...core import Machine, Queue
from ...core.queue.counters import COUNTERS
from ..access.clients import NODE
from ..process.fair_slices import FairSlices
from ..queues.views.info import counts_of

__all__ = ["QueueTotals", "Sums", "Totals", "sum_queues"]


FRESH_S: Final = 0.5
"""Sums of this age are given out again: however many ask, the queues are not counted more often."""


@dataclass(slots=True)
class QueueTotals:
    """Sums over all queues of a replica.

    Attributes:
        ready: messages that can be pulled now, but for those whose leases have ended.
        held: delayed messages that wait for the one before them of their group.
        busy_groups: groups of which a message is ready or leased.
        oldest_us: the earliest due time of all messages, or None if there are none.
        counters: by the names of `COUNTERS`; deleted queues included.
    """

    queues: int
    counters: dict[str, int]
    ready: int = 0
    delayed: int = 0
    leased: int = 0
    held: int = 0
    busy_groups: int = 0
    body_bytes: int = 0
    oldest_us: int | None = None

    def add(self, queues: Sequence[Queue], now_us: int) -> None:
        """Count some queues at a log time."""
        for queue in queues:
            ready = queue.due_count(now_us)
            self.ready += ready
            self.delayed += queue.waiting() - ready
            self.leased += len(queue.leases.messages)
            if queue.rich is not None:
                self.held += len(queue.rich.held)
                self.busy_groups += len(queue.rich.current)
            self.body_bytes += queue.body_bytes
            earliest_us = queue.earliest_us()
            if earliest_us is not None and (self.oldest_us is None or earliest_us < self.oldest_us):
                self.oldest_us = earliest_us
        for name, counts in zip(COUNTERS, zip(*map(counts_of, queues), strict=True), strict=True):
            self.counters[name] += sum(counts)


async def sum_queues(machine: Machine, turns: FairSlices) -> QueueTotals:
    """The sums, made in slices; queues are read at slightly different moments.

    Counters never fall from one call to the next: a queue that is deleted meanwhile still counts as one of those that were
    there at the beginning, and the next call finds it among the deleted ones.
    """
    queues = list(machine.queues.values())
    totals = QueueTotals(len(queues), dict(machine.retired))
    async for block in turns.blocks(queues, NODE):
        totals.add(block, machine.now_us)
    return totals


class Sums(NamedTuple):
    """All queues of this replica together, as of `at_s` seconds after the node was started."""

    at_s: float
    queues: QueueTotals

    def fields(self) -> dict[str, Any]:
        """Everything as one flat object."""
        sums = self.queues
        return {
            "at_s": self.at_s,
            "queues": sums.queues,
            "ready": sums.ready,
            "delayed": sums.delayed,
            "leased": sums.leased,
            "bytes": sums.body_bytes,
            **sums.counters,
        }


class Totals:
    """Counts the queues on request.

    Args:
        machine: returns the local replica's machine, which a snapshot may replace.
        turns: hands out slices of the event loop.
    """

    def __init__(self, machine: Callable[[], Machine], turns: FairSlices) -> None:
        self._machine = machine
        self._turns = turns
        self._started = monotonic()
        self._latest: Sums | None = None
        self._lock = asyncio.Lock()

    def uptime_s(self) -> float:
        """Seconds since the node was started."""
        return monotonic() - self._started

    async def current(self) -> Sums:
        """Return the sums of now, or of half a second ago."""
        return await self._since(self.uptime_s() - FRESH_S)

    async def fresh(self) -> Sums:
        """Return sums that show all that this replica had applied before the call.

        Calls that wait at the same time share a count, so that there is one at a time, however many ask.
        """
        return await self._since(self.uptime_s())

    async def _since(self, since_s: float) -> Sums:
        """Return sums whose count began at `since_s` or later."""
        async with self._lock:
            if self._latest is None or self._latest.at_s < since_s:
                at_s = self.uptime_s()
                self._latest = Sums(at_s, await sum_queues(self._machine(), self._turns))
            return self._latest
