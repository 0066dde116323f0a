"""Unix times as log times: what is due earlier stays so, to the microsecond, among all that is pushed through one node."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["DueTimes"]

STEP_US = 250_000
"""The clocks have to be so far apart from where they were before the difference between them is taken again."""


class DueTimes:
    """Converts due times with one difference between the clocks, as long as they advance alike.

    A difference measured for each push would shuffle messages that are due within its error, which is that of the node's
    estimate of log time: some milliseconds.

    Args:
        log_us: log time now, in microseconds.
    """

    def __init__(self, log_us: Callable[[], int]) -> None:
        self._log_us = log_us
        self._ahead_us: int | None = None

    def log_us(self, unix_s: float) -> int:
        """The log time of a Unix time, at least 1."""
        ahead_us = self._log_us() - time.time_ns() // 1000
        if self._ahead_us is None or abs(ahead_us - self._ahead_us) > STEP_US:
            self._ahead_us = ahead_us
        return max(1, round(unix_s * 1e6) + self._ahead_us)
