"""Virtual time: an event loop whose clock moves only from one event to the next."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Clock"]

READS_STILL = 200
READ_S = 0.001


class Clock:
    """Runs callbacks in the order of their virtual time, ties in the order of their scheduling."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.events_run = 0
        self._reads = 0
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._scheduled = 0

    def time(self) -> float:
        """Return the time in seconds; replaces the library's monotonic clock.

        The time does not change within an event, until the event has read it so often that it must be a loop that waits
        for time to pass: the library limits in this way how much it sends at once.
        """
        self._reads += 1
        return self.now if self._reads < READS_STILL else self.now + (self._reads - READS_STILL) * READ_S

    def after(self, delay_s: float, callback: Callable[..., None], *arguments: Any) -> None:
        """Run `callback` `delay_s` virtual seconds from now."""
        self.at(self.now + delay_s, callback, *arguments)

    def at(self, moment: float, callback: Callable[..., None], *arguments: Any) -> None:
        """Run `callback` at `moment`, or next if `moment` is in the past."""
        self._scheduled += 1
        heapq.heappush(self._queue, (max(moment, self.now), self._scheduled, callback, arguments))

    def run_until(self, moment: float, stop: Callable[[], bool]) -> None:
        """Run all events up to `moment`, or until `stop()` after an event is true."""
        queue = self._queue
        while queue and queue[0][0] <= moment:
            self.now, _, callback, arguments = heapq.heappop(queue)
            self.events_run += 1
            self._reads = 0
            callback(*arguments)
            if stop():
                return
        self.now = max(self.now, moment)
