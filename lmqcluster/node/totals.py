"""Sums over all queues, and how they went in the last ten minutes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from operator import add, attrgetter
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..core.queue import COUNTERS

if TYPE_CHECKING:
    from ..core import Machine

__all__ = ["Sums", "Totals"]

FRESH_S: Final = 0.5
"""Sums of this age are given out again: however many ask, the queues are not counted more often."""
HISTORY_PERIOD_S: Final = 5.0
HISTORY_MAX: Final = 120
QUEUES_PER_TURN: Final = 500
"""After so many queues other requests get their turn."""
DELAYED_COUNTED_MAX: Final = 1000
_counters_of = attrgetter(*COUNTERS)


class Sums(NamedTuple):
    """All queues of this replica together, as of `at_s` seconds after the node was started.

    Messages that are due are `ready`, though they may still stand among the delayed ones, unless there are a thousand or more.
    `counters` are the cluster's and never fall.
    """

    at_s: float
    queues: int
    ready: int
    delayed: int
    leased: int
    bytes: int
    counters: dict[str, int]


class Totals:
    """Counts the queues when somebody asks, and every five seconds for the history.

    Args:
        machine: returns the local replica's machine, which a snapshot may replace.
    """

    def __init__(self, machine: Callable[[], Machine]) -> None:
        self.history: deque[Sums] = deque(maxlen=HISTORY_MAX)
        self._machine = machine
        self._started = monotonic()
        self._latest: Sums | None = None
        self._lock = asyncio.Lock()

    def uptime_s(self) -> float:
        """Seconds since the node was started."""
        return monotonic() - self._started

    @staticmethod
    def fields(sums: Sums) -> dict[str, Any]:
        """Sums as one flat object."""
        return {name: value for name, value in sums._asdict().items() if name != "counters"} | sums.counters

    async def current(self) -> Sums:
        """The sums of now, or of half a second ago."""
        async with self._lock:
            if self._latest is None or self.uptime_s() - self._latest.at_s > FRESH_S:
                self._latest = await self._count()
            return self._latest

    async def keep_history(self) -> None:
        """Note the sums every five seconds, until cancelled."""
        while True:
            self.history.append(await self.current())
            await asyncio.sleep(HISTORY_PERIOD_S)

    async def _count(self) -> Sums:
        machine = self._machine()
        at_s, now_us = self.uptime_s(), machine.now_us
        # A queue that is deleted while others are counted stays in this list, so nothing counts twice.
        queues = list(machine.queues.values())
        counters = [machine.retired[name] for name in COUNTERS]
        ready = delayed = leased = size_bytes = 0
        for place, queue in enumerate(queues, 1):
            ready += len(queue.ready)
            leased += len(queue.leases)
            size_bytes += queue.body_bytes
            counters = list(map(add, counters, _counters_of(queue)))
            if queue.delayed:
                count = len(queue.delayed)
                due = sum(one[0] <= now_us for one in queue.delayed) if count < DELAYED_COUNTED_MAX else 0
                ready += due
                delayed += count - due
            if place % QUEUES_PER_TURN == 0:
                await asyncio.sleep(0)
        return Sums(at_s, len(queues), ready, delayed, leased, size_bytes, dict(zip(COUNTERS, counters, strict=True)))
