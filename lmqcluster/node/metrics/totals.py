"""Sums over all queues, and how they went in the last ten minutes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .queue_totals import QueueTotals, sum_queues

if TYPE_CHECKING:
    from ...core import Machine

__all__ = ["Sums", "Totals"]

FRESH_S: Final = 0.5
"""Sums of this age are given out again: however many ask, the queues are not counted more often."""
HISTORY_PERIOD_S: Final = 5.0
HISTORY_MAX: Final = 120


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

    async def current(self) -> Sums:
        """The sums of now, or of half a second ago."""
        async with self._lock:
            if self._latest is None or self.uptime_s() - self._latest.at_s > FRESH_S:
                at_s = self.uptime_s()
                self._latest = Sums(at_s, await sum_queues(self._machine()))
            return self._latest

    async def keep_history(self) -> None:
        """Note the sums every five seconds, until cancelled."""
        while True:
            self.history.append(await self.current())
            await asyncio.sleep(HISTORY_PERIOD_S)
