"""Keeping to a rate."""

from __future__ import annotations

import time

__all__ = ["Pace"]


class Pace:
    """Holds messages back to so many a second, on average. One thread uses it at a time."""

    def __init__(self, rate: float) -> None:
        """Take the most messages a second."""
        self._rate = rate
        self._begin_s = self._next_s = time.monotonic()

    def wait(self) -> None:
        """Return when more may pass."""
        now_s = time.monotonic()
        self._begin_s = max(now_s, self._next_s)
        if self._begin_s > now_s:
            time.sleep(self._begin_s - now_s)

    def passed(self, count: int) -> None:
        """Count what passes since the last wait."""
        self._next_s = max(self._next_s, self._begin_s) + count / self._rate
