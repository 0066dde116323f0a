"""A clock and an event loop whose time a test can advance."""

from __future__ import annotations

import asyncio
import time

from lmqcluster.replication.base.log_clock import LogClock

__all__ = ["MovableClock", "MovableLoop"]


class MovableLoop(asyncio.SelectorEventLoop):
    """An event loop whose time, and with it all timers, can be advanced."""

    def __init__(self) -> None:
        self._moved_s = 0.0
        super().__init__()

    def time(self) -> float:
        """Return the monotonic clock in seconds, plus the time by which the loop was advanced."""
        return super().time() + self._moved_s

    def move(self, seconds: float) -> None:
        """Advance time; timers that become due run in the next turn, in order."""
        self._moved_s += seconds


class MovableClock(LogClock):
    """The log clock of a `MovableLoop`."""

    def __init__(self, loop: MovableLoop) -> None:
        super().__init__()
        self._loop = loop
        self._began_us = time.time_ns() // 1000
        self._began_s = loop.time()

    def now_us(self) -> int:
        """Return the current log time."""
        return self._began_us + int((self._loop.time() - self._began_s) * 1e6)
