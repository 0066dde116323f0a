"""A schedule as a client describes it, checked and turned into a command."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from ....core.log.commands import SetSchedule
from ....core.schedules.definition import BODY_BYTES_MAX, JITTER_US_MAX, NAME_BYTES_MAX
from ....wire.attributes import ATTRIBUTE_BYTES_MAX, ATTRIBUTES_MAX, unpack_attributes
from ....wire.errors import LmqError
from ..sending.due_times import DueTimes
from ..sending.push_items import PushItem
from .cron import cron_rule
from .supply import upcoming

__all__ = ["ATTRIBUTES", "MISSED", "ScheduleRequest", "check_schedule_name"]

ATTRIBUTES: Final = ("schedule", "scheduled_at")
"""Attributes that the cluster gives the messages of schedules."""
MISSED: Final = ("skip", "once")
"""The policies for missed due times."""
UNIX_S_MAX: Final = 250_000_000_000
"""Before the end of the year 9999, where most calendars end."""
INTERVAL_S_MAX: Final = 10 * 366 * 86_400
_OWN_ATTRIBUTE_BYTES: Final = NAME_BYTES_MAX + 64
_CONTROL: Final = re.compile("[\x00-\x1f\x7f]")


def check_schedule_name(name: bytes) -> bytes:
    """Return the name of a schedule: UTF-8 text without control characters.

    Raises:
        LmqError: ``bad_name``.
    """
    try:
        text = name.decode()
    except UnicodeDecodeError as exc:
        raise LmqError("bad_name", "the name of a schedule must be UTF-8 text") from exc
    if not 0 < len(name) <= NAME_BYTES_MAX or _CONTROL.search(text):
        raise LmqError("bad_name", f"the name of a schedule has 1 to {NAME_BYTES_MAX} bytes and no control characters")
    return name


@dataclass(frozen=True, slots=True)
class ScheduleRequest:
    """A schedule to set. Times are Unix times and durations in seconds.

    Attributes:
        queue, item: where and what it pushes; the options have no due time, and the message no key.
        interval_s, cron: the rule, one of them.
        zone: the time zone of a cron expression.
        start_s, end_s: the first and the last possible due time; None for no bound.
        jitter_s: a message may be pushed up to this long after its due time.
        missed: one of `MISSED`.
    """

    name: bytes
    queue: bytes
    item: PushItem
    interval_s: float | None = None
    cron: str | None = None
    zone: str = "UTC"
    start_s: float | None = None
    end_s: float | None = None
    jitter_s: float = 0.0
    missed: str = "skip"

    def check(self) -> None:
        """Refuse a schedule that the cluster would not take.

        Raises:
            LmqError: ``bad_request``, ``bad_name``, ``too_large``.
        """
        check_schedule_name(self.name)
        self._check_message()
        if (self.interval_s is None) == (self.cron is None):
            raise _wrong("a schedule has either an interval or a cron expression")
        if self.interval_s is not None and not 1 <= self.interval_s <= INTERVAL_S_MAX:
            raise _wrong(f"an interval is 1 to {INTERVAL_S_MAX} seconds, not {self.interval_s:g}")
        for what, time_s in (("start", self.start_s), ("end", self.end_s)):
            if time_s is not None and not 0 < time_s <= UNIX_S_MAX:
                raise _wrong(f"the {what} of a schedule is a Unix time in seconds, not {time_s:g}")
        if self.end_s is not None and self.start_s is not None and self.end_s < self.start_s:
            raise _wrong("the end of a schedule is not before its start")
        jitter_s_max = JITTER_US_MAX / 1e6 if self.interval_s is None else min(JITTER_US_MAX / 1e6, self.interval_s)
        if not 0 <= self.jitter_s <= jitter_s_max:
            raise _wrong(f"the jitter of this schedule is 0 to {jitter_s_max:g} seconds, not {self.jitter_s:g}")
        if self.missed not in MISSED:
            raise _wrong(f"missed is one of {', '.join(MISSED)}, not {self.missed[:40]!r}")

    def _check_message(self) -> None:
        item = self.item
        if len(item.content) > BODY_BYTES_MAX:
            raise LmqError("too_large", f"the body of a schedule has at most {BODY_BYTES_MAX} bytes")
        if item.key is not None or item.headers or (item.options is not None and item.options.due_s is not None):
            raise _wrong("the message of a schedule has no idempotency key and no due time")
        attributes = unpack_attributes(item.attributes)
        if any(name in attributes for name in ATTRIBUTES):
            raise _wrong(f"the attributes {' and '.join(ATTRIBUTES)} are given by the cluster")
        if len(attributes) + len(ATTRIBUTES) > ATTRIBUTES_MAX:
            raise LmqError("too_large", f"a schedule has at most {ATTRIBUTES_MAX - len(ATTRIBUTES)} attributes")
        if len(item.attributes) + _OWN_ATTRIBUTE_BYTES > ATTRIBUTE_BYTES_MAX:
            reason = f"the attributes of a schedule have at most {ATTRIBUTE_BYTES_MAX - _OWN_ATTRIBUTE_BYTES} bytes"
            raise LmqError("too_large", reason)

    def command(self, now_us: int, was: bytes, owner: bytes, due_times: DueTimes) -> SetSchedule:
        """Return the command that sets the schedule.

        Args:
            now_us: the schedule clock.
            was: the queue of the schedule of this name, empty if there is none.
            owner: the owner to whose quota it counts.
            due_times: converts due times, of which there are none.

        Raises:
            LmqError: ``bad_request``: the rule is invalid, or has no due time in the future.
        """
        start_us, end_us = _microseconds(self.start_s), _microseconds(self.end_s)
        times: list[int] = []
        done = False
        if self.cron is not None:
            rule = cron_rule(self.cron, self.zone)
            times, _skipped, done = upcoming(rule, now_us, now_us, start_us, end_us)
        first_us = times[0] if times else max(start_us, now_us)
        if (self.cron is not None and not times) or (end_us and first_us > end_us):
            raise _wrong("the schedule has no due time in the future")
        _, content_type, attributes, _, options = self.item.row(due_times)
        timing: list[Any] = [
            _microseconds(self.interval_s),
            *((b"", b"") if self.cron is None else (self.cron.encode(), self.zone.encode())),
            *(start_us, end_us, _microseconds(self.jitter_s), int(self.missed == "once")),
        ]
        definition = [self.queue, [content_type, attributes, options], timing]
        return SetSchedule(self.name, definition, self.item.content, times, done, was, owner)


def _microseconds(time_s: float | None) -> int:
    return 0 if time_s is None else round(time_s * 1e6)


def _wrong(reason: str) -> LmqError:
    return LmqError("bad_request", reason)
