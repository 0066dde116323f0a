"""Log time: the leader's clock that stamps batches, and every other node's estimate of it."""

from __future__ import annotations

import time

__all__ = ["LogClock"]


class LogClock:
    """Integer microseconds that advance with the monotonic clock.

    Only a leader whose log holds no stamp begins with its wall clock. Every other leader continues where the log
    stops. So a wrong or jumping wall clock moves no lease, even if all nodes restart. Until the node has applied a
    stamp, or leads, its estimate begins with the stamp in its files.
    """

    def __init__(self) -> None:
        # Whether the stamp is final: the log found at the start may still be truncated.
        self._is_known = False
        self._base_us = time.time_ns() // 1000
        self._base_monotonic_ns = time.monotonic_ns()

    def now_us(self) -> int:
        """Return the current log time, as far as this node knows."""
        return self._base_us + (time.monotonic_ns() - self._base_monotonic_ns) // 1000

    def guess(self, stamp_us: int) -> None:
        """Begin the estimate with the latest stamp found at the start; 0 if there is none."""
        if stamp_us:
            self._set(stamp_us)

    def lead(self, stamp_us: int) -> None:
        """Begin to stamp batches behind a log whose latest stamp is `stamp_us`, 0 if it has none."""
        if not self._is_known:
            self.follow(stamp_us or time.time_ns() // 1000)
        elif stamp_us > self.now_us():
            self.follow(stamp_us)

    def follow(self, stamp_us: int) -> None:
        """Set the estimate by a stamp of the leader that was just applied here."""
        self._is_known = True
        self._set(stamp_us)

    def _set(self, stamp_us: int) -> None:
        self._base_us = stamp_us
        self._base_monotonic_ns = time.monotonic_ns()
