"""Counts of observed values by size, cheap enough for request paths."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

__all__ = ["LATENCY_S", "Histogram"]

LATENCY_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds, in seconds, for durations from half a millisecond to some seconds."""


class Histogram:
    """Observations counted in buckets. Not thread-safe.

    Attributes:
        bounds: upper bounds of the buckets, rising; a value belongs to the first bucket whose bound it does not exceed.
        counts: observations by bucket, and at the end those beyond the last bound.
        sum: sum of all observed values.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = LATENCY_S) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """Count a value that was observed `count` times."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.sum += value * count

    def cumulative(self) -> list[int]:
        """Return how many values do not exceed each bound; the last number is that of all."""
        return list(accumulate(self.counts))
