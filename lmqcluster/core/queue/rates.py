"""Limits of deliveries by time: token buckets on log time.

A bucket is one number, the log time at which it will be full again (the generic cell rate algorithm, ITU-T I.371). It
counts nanoseconds, because a token of a high rate takes less than a microsecond.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Rate"]

_NS = 1_000


class Rate(NamedTuple):
    """A rate of deliveries.

    Attributes:
        interval_ns: time after which the bucket gets another token.
        burst: tokens of the full bucket.
    """

    interval_ns: int
    burst: int

    def available(self, full_ns: int, now_us: int) -> int:
        """Return the number of tokens at a log time in the bucket that is full at `full_ns`."""
        now_ns = now_us * _NS
        return max(0, now_ns + self.burst * self.interval_ns - max(full_ns, now_ns)) // self.interval_ns

    def after(self, full_ns: int, now_us: int, count: int) -> int:
        """Return when the bucket is full if `count` tokens are taken now."""
        return max(full_ns, now_us * _NS) + count * self.interval_ns

    def next_us(self, full_ns: int) -> int:
        """Return the log time from which the bucket has a token."""
        return -((full_ns - (self.burst - 1) * self.interval_ns) // -_NS)
