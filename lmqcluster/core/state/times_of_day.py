"""The time of day by log time, so that every node reports the same time for a message."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

__all__ = ["ROWS_MAX", "TimesOfDay"]

ROWS_MAX = 1_000
"""Most changes that are remembered; earlier times use the first of them."""


class TimesOfDay:
    """By how much the leaders' clocks were ahead of log time, and since when.

    The offset changes now and then, because log time does not advance while no node runs and does not follow a wrong
    clock.
    """

    def __init__(self) -> None:
        self._since_us: list[int] = []
        self._ahead_us: list[int] = []

    @property
    def ahead_us(self) -> int | None:
        """Return how far the time of day is ahead of log time now; None if no leader has reported it."""
        return self._ahead_us[-1] if self._ahead_us else None

    def tell(self, now_us: int, unix_us: int) -> None:
        """Record the Unix time at this log time; both in microseconds."""
        if self._since_us and self._since_us[-1] == now_us:
            self._ahead_us[-1] = unix_us - now_us
            return
        self._since_us.append(now_us)
        self._ahead_us.append(unix_us - now_us)
        del self._since_us[:-ROWS_MAX], self._ahead_us[:-ROWS_MAX]

    def unix_us(self, log_us: int) -> int | None:
        """Return the Unix time of a log time; None if no leader has reported any."""
        if not self._since_us:
            return None
        return log_us + self._ahead_us[max(0, bisect_right(self._since_us, log_us) - 1)]

    def rows(self) -> Iterator[list[object]]:
        """Yield [log time, offset of the time of day since then] of each change."""
        return iter([list(row) for row in zip(self._since_us, self._ahead_us, strict=True)])

    def load(self, rows: Iterable[tuple[int, int]]) -> None:
        """Add the rows of a snapshot."""
        for since_us, ahead_us in rows:
            self._since_us.append(since_us)
            self._ahead_us.append(ahead_us)
