"""Samples of the last hour, ten seconds apart, of all queues together and of the busiest, so that a plot opens filled.

Memory is bounded: 361 samples of at most 200 queues at 80 bytes, which is less than 6 MiB.
"""

from __future__ import annotations

import asyncio
import heapq
from array import array
from collections import deque
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, Final

from ...core import Queue, State
from ..access.clients import NODE
from ..process.fair_slices import FairSlices
from ..queues.views.info import info_of
from .attention import Attention
from .stats import Stats
from .totals import Sums, Totals

__all__ = ["HISTORY_FIELDS", "PERIOD_S", "QUEUES_MAX", "SAMPLES_MAX", "History"]

PERIOD_S: Final = 10.0
SAMPLES_MAX: Final = 361
"""An hour of samples, including both ends."""
QUEUES_MAX: Final = 200
"""Number of queues with a history: those with the most pushes and pulls in the last five minutes."""

_STOCK: Final = ("ready", "delayed", "leased")
_COUNTERS: Final = (
    "pushed_total", "pulled_total", "acked_total", "nacked_total", "redelivered_total", "dropped_total",
)  # fmt: skip
HISTORY_FIELDS: Final = (*_STOCK, *_COUNTERS)
"""Fields of a queue's sample besides its time."""


class _Series:
    """Samples of one queue in sequence: milliseconds since the start of the node, then `HISTORY_FIELDS`."""

    __slots__ = ("values",)

    WIDTH: Final = 1 + len(HISTORY_FIELDS)

    def __init__(self) -> None:
        self.values = array("q")

    def add(self, at_ms: int, sample: tuple[int, ...]) -> None:
        """Add a sample. If a counter has fallen, the queue was recreated and the series starts over."""
        values = self.values
        if values and any(
            now < then for now, then in zip(sample[len(_STOCK) :], values[-len(_COUNTERS) :], strict=True)
        ):
            del values[:]
        values.append(at_ms)
        values.extend(sample)
        if len(values) > SAMPLES_MAX * self.WIDTH:
            del values[: self.WIDTH]

    def samples(self) -> list[dict[str, Any]]:
        """Return all samples, oldest first."""
        rows = (self.values[start : start + self.WIDTH] for start in range(0, len(self.values), self.WIDTH))
        return [{"at_s": row[0] / 1000, **dict(zip(HISTORY_FIELDS, row[1:], strict=True))} for row in rows]


class History:
    """Samples of the last hour, taken every ten seconds.

    Args:
        state: returns the local replica's state, which a snapshot may replace.
        totals: sums over all queues.
        stats: rates of each queue.
        turns: grants slices of the event loop.
        attention: judges every queue that a sample visits.

    Attributes:
        sums: samples of all queues together, oldest first.
    """

    def __init__(
        self, state: Callable[[], State], totals: Totals, stats: Stats, turns: FairSlices, attention: Attention
    ) -> None:
        self.sums: deque[Sums] = deque(maxlen=SAMPLES_MAX)
        self._state = state
        self._totals = totals
        self._stats = stats
        self._turns = turns
        self._attention = attention
        self._series: dict[bytes, _Series] = {}

    async def keep(self) -> None:
        """Take samples until cancelled."""
        while True:
            await self.sample()
            await asyncio.sleep(PERIOD_S)

    async def sample(self) -> None:
        """Take one sample of all queues together and of the busiest; visit queues in slices."""
        self.sums.append(await self._totals.current())
        state = self._state()
        busiest = await self._busiest(state.queues)
        at_ms, now_us = int(self._totals.uptime_s() * 1000), state.now_us
        kept = self._series
        self._series = {}
        for queue in busiest:
            series = self._series[queue.name] = kept.get(queue.name) or _Series()
            series.add(at_ms, _sample(queue, now_us))

    async def _busiest(self, queues: Mapping[bytes, Queue]) -> list[Queue]:
        """Visit all queues and return the busiest.

        Ties go to queues that already have a history, then to those with the most messages.
        """
        best: list[tuple[float, bool, int, bytes, Queue]] = []
        judged = self._attention.begin()
        async for queue in self._turns.each(list(queues.values()), NODE):
            if judged is not None:
                judged.visit(queue)
            best.append((self._stats.rate(queue.name), queue.name in self._series, len(queue), queue.name, queue))
            if len(best) >= 4 * QUEUES_MAX:
                best = heapq.nlargest(QUEUES_MAX, best, key=itemgetter(0, 1, 2, 3))
        if judged is not None:
            self._attention.finish(judged)
        return [row[-1] for row in heapq.nlargest(QUEUES_MAX, best, key=itemgetter(0, 1, 2, 3))]

    def of_queue(self, name: bytes) -> list[dict[str, Any]] | None:
        """Return the samples of a queue, oldest first; None if it is not among the busiest."""
        series = self._series.get(name)
        return None if series is None else series.samples()

    def forget(self) -> None:
        """Delete all samples, because the node has changed its cluster."""
        self._attention.forget()
        self.sums.clear()
        self._series.clear()


def _sample(queue: Queue, now_us: int) -> tuple[int, ...]:
    info = info_of(queue, now_us)
    return (info.ready, info.delayed, info.leased, *(info.counters[name] for name in _COUNTERS))
