"""Sums over all queues, computed in slices so that a node with very many queues continues to serve."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, NamedTuple

from ...core import Queue, State
from ...core.queue.counters import COUNTERS
from ..access.clients import NODE
from ..process.fair_slices import FairSlices
from ..queues.views.info import busy_groups, counts_of

__all__ = ["QueueTotals", "Sums", "Totals", "sum_queues"]


FRESH_S: Final = 0.5
"""Maximum age of sums to reuse, in seconds; it limits how often the queues are counted."""


@dataclass(slots=True)
class QueueTotals:
    """Sums over all queues of a replica.

    Attributes:
        ready: messages that can be pulled now, except those whose leases have expired.
        held: delayed messages that wait for an earlier message of their group.
        busy_groups: groups with a ready or leased message.
        oldest_us: the earliest due time of all messages, or None if there are none.
        counters: counters by the names of `COUNTERS`, including deleted queues.
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
        """Add some queues as of a log time."""
        for queue in queues:
            ready = queue.store.due_count(now_us)
            self.ready += ready
            self.delayed += queue.store.waiting() - ready
            self.leased += len(queue.store.leases.messages)
            if queue.store.rich is not None:
                self.held += len(queue.store.rich.held)
                self.busy_groups += busy_groups(queue)
            self.body_bytes += queue.store.body_bytes
            earliest_us = queue.store.earliest_us()
            if earliest_us is not None and (self.oldest_us is None or earliest_us < self.oldest_us):
                self.oldest_us = earliest_us
        for name, counts in zip(COUNTERS, zip(*map(counts_of, queues), strict=True), strict=True):
            self.counters[name] += sum(counts)


async def sum_queues(state: State, turns: FairSlices) -> QueueTotals:
    """Compute the sums in slices; queues are read at slightly different times.

    Counters never fall from one call to the next: a queue that is deleted during a call still counts as existing, and the next
    call counts it as deleted.
    """
    queues = list(state.queues.values())
    totals = QueueTotals(len(queues), dict(state.retired))
    async for block in turns.blocks(queues, NODE):
        totals.add(block, state.now_us)
    return totals


class Sums(NamedTuple):
    """Sums over all queues of this replica, as of `at_s` seconds after the start of the node."""

    at_s: float
    queues: QueueTotals

    def fields(self) -> dict[str, Any]:
        """Return all sums as one flat object."""
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
    """Sums over all queues, computed on request.

    Args:
        state: returns the local replica's state, which a snapshot may replace.
        turns: grants slices of the event loop.
    """

    def __init__(self, state: Callable[[], State], turns: FairSlices) -> None:
        self._state = state
        self._turns = turns
        self._started = monotonic()
        self._latest: Sums | None = None
        self._lock = asyncio.Lock()

    def uptime_s(self) -> float:
        """Return the seconds since the start of the node."""
        return monotonic() - self._started

    async def current(self) -> Sums:
        """Return sums that are at most half a second old."""
        return await self._since(self.uptime_s() - FRESH_S)

    async def fresh(self) -> Sums:
        """Return sums that include everything that this replica had applied before the call.

        Concurrent calls share a count, so at most one runs at a time.
        """
        return await self._since(self.uptime_s())

    async def _since(self, since_s: float) -> Sums:
        """Return sums whose count started at `since_s` or later."""
        async with self._lock:
            if self._latest is None or self._latest.at_s < since_s:
                at_s = self.uptime_s()
                self._latest = Sums(at_s, await sum_queues(self._state(), self._turns))
            return self._latest
