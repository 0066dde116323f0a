"""Conversion of Unix times to log times. It keeps the order of due times, to the microsecond, across nodes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ....core import State
from ....wire.errors import LmqError

if TYPE_CHECKING:
    from ....replication.base.log_clock import LogClock

__all__ = ["DueTimes"]


class DueTimes:
    """Converts due times with the difference between the clocks that the leader has published.

    A difference measured at this node would be wrong while the node lacks a part of the log, because its estimate of
    log time lags. If the node measured it for each push, messages due within the error could change their order.

    Attributes:
        has_had_leader: whether the node has known a leader since its start. If all nodes were down, the difference that
            the last leader published is no longer valid.
    """

    def __init__(self, state: Callable[[], State], clock: Callable[[], LogClock]) -> None:
        """Create the converter; `machine` and `clock` return the current ones."""
        self._state = state
        self._clock = clock
        self.has_had_leader = False

    def log_us(self, unix_s: float) -> int:
        """Return the log time of a Unix time, at least 1.

        Raises:
            LmqError: ``no_leader``: this node has known no leader since its start.
        """
        ahead_us = self._state().times.ahead_us
        if ahead_us is None:
            # A new cluster whose leader has not published the difference yet.
            ahead_us = time.time_ns() // 1000 - self._clock().now_us()
        elif not self.has_had_leader:
            reason = "this node has known no leader since its start, and cannot convert a due time yet; try again"
            raise LmqError("no_leader", reason)
        return max(1, round(unix_s * 1e6) - ahead_us)
