"""Time that runs as everywhere else, and that a test can move forward."""

from __future__ import annotations

import asyncio
import time

from lmqcluster.replication.log_clock import LogClock

__all__ = ["MovableClock", "MovableLoop"]


class MovableLoop(asyncio.SelectorEventLoop):
    """An event loop whose time, and with it all timers, can be moved forward."""

    def __init__(self) -> None:
        self._moved_s = 0.0
        super().__init__()

    def time(self) -> float:
        """Seconds of the monotonic clock, and those by which time was moved."""
        return super().time() + self._moved_s

    def move(self, seconds: float) -> None:
        """Move time forward; timers that are due by then run in the next turn, in their order."""
        self._moved_s += seconds


class MovableClock(LogClock):
    """Log time that follows such a loop."""

    def __init__(self, loop: MovableLoop) -> None:
        super().__init__()
        self._loop = loop
        self._began_us = time.time_ns() // 1000
        self._began_s = loop.time()

    def now_us(self) -> int:
        """Log time now."""
        return self._began_us + int((self._loop.time() - self._began_s) * 1e6)
