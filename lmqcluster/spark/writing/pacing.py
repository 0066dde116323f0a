"""A rate limit."""

from __future__ import annotations

import time

__all__ = ["Pace"]


class Pace:
    """Limits messages to an average rate. Not thread-safe."""

    def __init__(self, rate: float) -> None:
        """Set the maximum messages a second."""
        self._rate = rate
        self._begin_s = self._next_s = time.monotonic()

    def wait(self) -> None:
        """Wait until more messages may pass."""
        now_s = time.monotonic()
        self._begin_s = max(now_s, self._next_s)
        if self._begin_s > now_s:
            time.sleep(self._begin_s - now_s)

    def passed(self, count: int) -> None:
        """Count messages that passed since the last wait."""
        self._next_s = max(self._next_s, self._begin_s) + count / self._rate
