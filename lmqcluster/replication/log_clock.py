"""Log time: the leader's clock that stamps batches, and every other node's estimate of it."""

from __future__ import annotations

import time

__all__ = ["LogClock"]


class LogClock:
    """Integer microseconds that advance with the monotonic clock.

    The first leader begins with its wall clock. Everybody else follows the stamps that it applies, so a new leader goes on where
    the last one stopped, and a wrong or jumping wall clock on one machine moves nobody's leases.
    """

    def __init__(self) -> None:
        self._base_us = time.time_ns() // 1000
        self._base_monotonic_ns = time.monotonic_ns()

    def now_us(self) -> int:
        """Log time now, as far as this node can tell."""
        return self._base_us + (time.monotonic_ns() - self._base_monotonic_ns) // 1000

    def at_least(self, stamp_us: int) -> None:
        """This node stamps batches itself, and has met one that is stamped so: never stamp earlier from now on."""
        if stamp_us > self.now_us():
            self.follow(stamp_us)

    def follow(self, stamp_us: int) -> None:
        """Set the estimate by a stamp of the leader that was just applied here."""
        self._base_us = stamp_us
        self._base_monotonic_ns = time.monotonic_ns()
