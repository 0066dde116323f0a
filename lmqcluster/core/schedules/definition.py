"""The definition of a schedule: what it pushes where, and by which rule."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..log.items import Item
from ..messages.attributes import with_schedule
from ..queue.options import TIME_US_MAX
from ..routing.admission import Push

__all__ = [
    "BODY_BYTES_MAX",
    "INTERVAL_US_MIN",
    "JITTER_US_MAX",
    "NAME_BYTES_MAX",
    "Definition",
    "Timing",
    "checked_name",
    "checked_timing",
]

NAME_BYTES_MAX = 255
BODY_BYTES_MAX = 256 * 1024
"""Largest body of a schedule; every replica keeps it in memory."""
INTERVAL_US_MIN = 1_000_000
JITTER_US_MAX = 3_600 * 1_000_000
_RULE_BYTES_MAX = 255


class Timing(NamedTuple):
    """The rule of the due times. Times are Unix times in microseconds.

    Attributes:
        interval_us: the time between two due times; 0 if nodes supply them.
        cron, zone: the rule by which nodes compute the due times, which the core only keeps.
        start_us: no due time is earlier; 0 if none is set.
        end_us: no due time is later; 0 if none is set.
        jitter_us: a message is pushed up to this long after its due time.
        once: whether one message replaces all those that were missed; else they are dropped.
    """

    interval_us: int = 0
    cron: bytes = b""
    zone: bytes = b""
    start_us: int = 0
    end_us: int = 0
    jitter_us: int = 0
    once: bool = False


class Definition(NamedTuple):
    """The message of a schedule, its queue, and the rule of its due times.

    Attributes:
        queue: the queue.
        item, push: the message and its options, which have no due time and no key.
        timing: the rule of the due times.
    """

    queue: bytes
    item: Item
    push: Push
    timing: Timing

    def size_bytes(self) -> int:
        """Return the approximate memory of what clients gave."""
        item = self.item
        return len(item.content) + len(item.attributes) + len(item.content_type or b"")

    def message(self, name: bytes, due_us: int) -> Item:
        """Return the message of a due time, with the attributes that name the schedule and the time."""
        attributes = with_schedule(self.item.attributes, name, due_us / 1_000_000)
        return self.item._replace(attributes=attributes)

    def row(self) -> list[Any]:
        """Return the definition as the log and snapshots carry it."""
        item = self.item
        message = [item.content_type, item.attributes, list(self.push)]
        return [self.queue, message, [*self.timing[:-1], int(self.timing.once)]]


def checked_name(name: Any) -> bytes:
    """Return the name of a schedule.

    Raises:
        ValueError: it is not 1 to 255 bytes.
    """
    if type(name) is not bytes or not 0 < len(name) <= NAME_BYTES_MAX:
        raise ValueError(f"the name of a schedule must have 1 to {NAME_BYTES_MAX} bytes")
    return name


def checked_timing(row: Any) -> Timing:
    """Return the rule of a command or of a snapshot.

    Raises:
        ValueError: it is malformed.
    """
    interval_us, cron, zone, start_us, end_us, jitter_us, once = row
    for time_us in (interval_us, start_us, end_us, jitter_us):
        if type(time_us) is not int or not 0 <= time_us <= TIME_US_MAX:
            raise ValueError("a time of a schedule must be an integer, 0 or more")
    if any(type(text) is not bytes or len(text) > _RULE_BYTES_MAX for text in (cron, zone)):
        raise ValueError("a cron expression and a time zone must be bytes")
    if bool(cron) == bool(interval_us):
        raise ValueError("a schedule has an interval or a cron expression")
    if interval_us and interval_us < INTERVAL_US_MIN:
        raise ValueError(f"an interval must be at least {INTERVAL_US_MIN} microseconds")
    if jitter_us > (min(JITTER_US_MAX, interval_us) if interval_us else JITTER_US_MAX):
        raise ValueError("a jitter must be at most an hour, and at most the interval")
    if once not in (0, 1) or (end_us and end_us < start_us):
        raise ValueError("the policy or the end of a schedule is wrong")
    return Timing(interval_us, cron, zone, start_us, end_us, jitter_us, bool(once))
