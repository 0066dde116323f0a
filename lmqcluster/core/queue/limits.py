"""Limits of queues whose messages are addressed by id: a switch for each kind of request, and a throttle of polls.

Each such queue has its own limits, and one more instance covers all of them together. They also count the requests.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from .options import TIME_US_MAX

__all__ = ["POLL_COUNTERS", "Endpoint", "PollLimits"]

POLLS_MAX = 1 << 62


class Endpoint(IntEnum):
    """Kinds of requests. Part of the log's format: never renumber."""

    DELETE = 0
    POLL = 1
    PUSH = 2
    UPDATE = 3


POLL_COUNTERS = (
    "updated",
    "missing_delete",
    "missing_update",
    "suspended_delete",
    "suspended_poll",
    "suspended_push",
    "suspended_update",
    "throttled_poll",
    "empty_poll",
)
"""Names of the counters. The order is that of snapshots."""
_SUSPENDED = POLL_COUNTERS.index("suspended_delete")


class PollLimits:
    """The switches, the throttle, and the counters.

    Attributes:
        suspended: for each `Endpoint`, True if such requests are refused.
        throttle: most polls, and the length of the window in microseconds; None without a throttle.
        counters: values in the order of `POLL_COUNTERS`.
    """

    __slots__ = ("_taken", "_window", "counters", "suspended", "throttle")

    def __init__(self) -> None:
        self.suspended = [False] * len(Endpoint)
        self.throttle: tuple[int, int] | None = None
        self.counters = [0] * len(POLL_COUNTERS)
        # The window of the latest poll that passed, and the number of polls that passed in it.
        self._window = 0
        self._taken = 0

    def count(self, counter: str, more: int = 1) -> None:
        """Add to a counter."""
        self.counters[POLL_COUNTERS.index(counter)] += more

    def count_suspended(self, endpoint: Endpoint) -> None:
        """Count a request that was refused because its kind is suspended."""
        self.counters[_SUSPENDED + endpoint] += 1

    def set_suspended(self, given: list[bool | None]) -> None:
        """Set some of the switches, by `Endpoint`; None leaves one unchanged.

        Raises:
            ValueError: they are malformed.
        """
        if type(given) not in (list, tuple) or len(given) != len(Endpoint) or not set(given) <= {True, False, None}:
            raise ValueError("switches are a list of four booleans or None")
        self.suspended = [
            before if one is None else bool(one) for before, one in zip(self.suspended, given, strict=True)
        ]

    def set_throttle(self, polls_max: int | None, window_us: int) -> None:
        """Set the throttle, or remove it with None; polls counted so far are forgotten.

        Raises:
            ValueError: a number is out of range.
        """
        if polls_max is not None:
            if type(polls_max) is not int or not 0 <= polls_max <= POLLS_MAX:
                raise ValueError("a number of polls must be an integer, 0 or more")
            if type(window_us) is not int or not 0 < window_us <= TIME_US_MAX:
                raise ValueError("a window must be an integer, more than 0")
        self.throttle = None if polls_max is None else (polls_max, window_us)
        self._window = self._taken = 0

    def has_room(self, now_us: int) -> bool:
        """Return whether the throttle admits another poll."""
        if self.throttle is None:
            return True
        polls_max, window_us = self.throttle
        return (self._taken if now_us // window_us == self._window else 0) < polls_max

    def take(self, now_us: int) -> None:
        """Count a poll that passed the throttle."""
        if self.throttle is not None:
            window = now_us // self.throttle[1]
            self._taken = self._taken + 1 if window == self._window else 1
            self._window = window

    def row(self) -> list[Any]:
        """Return the limits as a snapshot row."""
        throttle = [] if self.throttle is None else [*self.throttle, self._window, self._taken]
        return [[int(one) for one in self.suspended], throttle, self.counters.copy()]

    def load(self, suspended: list[int], throttle: list[int], counters: list[int]) -> None:
        """Restore the limits from a snapshot.

        Raises:
            ValueError: the row is malformed.
        """
        if not set(map(type, (*suspended, *throttle, *counters))) <= {int} or len(counters) != len(POLL_COUNTERS):
            raise ValueError("limits of polls are malformed")
        self.set_suspended([bool(one) for one in suspended])
        self.counters = list(counters)
        if throttle:
            polls_max, window_us, window, taken = throttle
            self.set_throttle(polls_max, window_us)
            self._window, self._taken = window, taken
