"""The next due times of a schedule with a cron expression, as the log gets them."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ....core.schedules.schedule import GRACE_US, TIMES_MAX, Schedule
from .cron import CronRule, cron_rule

__all__ = ["Supply", "supply_of", "upcoming"]

AHEAD_S: Final = 3_600
"""Due times are supplied for this long ahead, within `TIMES_MAX`, and always the next few."""
TIMES_MIN: Final = 4
COUNTED_MAX: Final = 1_000
"""Most missed due times that are counted one by one."""
_MICROSECONDS: Final = 1_000_000


class Supply(NamedTuple):
    """Due times for a schedule.

    Attributes:
        times: Unix times in microseconds; the first may be the last of those that were missed.
        skipped: missed ones before them.
        done: whether no others follow.
    """

    times: list[int]
    skipped: int
    done: bool


def upcoming(rule: CronRule, after_us: int, now_us: int, start_us: int, end_us: int) -> Supply:
    """Return the due times that follow one, none of them before the start or after the end."""
    times: list[int] = []
    horizon_us = now_us + AHEAD_S * _MICROSECONDS
    for due_s in rule.from_after(_second_before(max(after_us + 1, start_us))):
        due_us = due_s * _MICROSECONDS
        if end_us and due_us > end_us:
            return Supply(times, 0, done=True)
        times.append(due_us)
        if len(times) == TIMES_MAX or (len(times) >= TIMES_MIN and due_us > horizon_us):
            return Supply(times, 0, done=False)
    return Supply(times, 0, done=True)


def supply_of(schedule: Schedule, now_us: int) -> list[Any]:
    """Return the row of `SupplyTimes` for a schedule.

    Raises:
        LmqError: ``bad_request``: this node does not know the time zone.
    """
    timing = schedule.definition.timing
    rule = cron_rule(timing.cron.decode(), timing.zone.decode())
    after_us, missed, skipped = schedule.known_us, 0, 0
    # The state machine decides what is missed. What is missed in any case is not worth a row each.
    limit_us = now_us - GRACE_US - timing.jitter_us - _MICROSECONDS
    if after_us < limit_us:
        missed, skipped = _missed(rule, max(after_us, timing.start_us - 1), _last_us(limit_us, timing.end_us))
    supply = upcoming(rule, missed or after_us, now_us, timing.start_us, timing.end_us)
    times = [missed, *supply.times][:TIMES_MAX] if missed else supply.times
    done = supply.done and times[-1:] == ([missed, *supply.times] if missed else supply.times)[-1:]
    return [schedule.name, schedule.serial, after_us, times, skipped, done]


def _last_us(limit_us: int, end_us: int) -> int:
    return min(limit_us, end_us) if end_us else limit_us


def _missed(rule: CronRule, after_us: int, limit_us: int) -> tuple[int, int]:
    """Return the last due time up to a limit, 0 for none; and how many others follow `after_us`, at least."""
    last = count = 0
    begin_s, limit_s = _second_before(after_us + 1), limit_us // _MICROSECONDS
    for due_s in rule.from_after(begin_s):
        if due_s > limit_s:
            return last, max(0, count - 1)
        last, count = due_s * _MICROSECONDS, count + 1
        if count == COUNTED_MAX:
            break
    # Too many to visit each: the last one is near the limit.
    span_s = 60
    while span_s < limit_s - begin_s:
        due_s = rule.after(limit_s - span_s) or limit_s + 1
        if due_s <= limit_s:
            for due_s in rule.from_after(limit_s - span_s):
                if due_s > limit_s:
                    break
                last = due_s * _MICROSECONDS
            break
        span_s *= 2
    return last, max(0, count - 1)


def _second_before(unix_us: int) -> int:
    """Return the last whole second before a time."""
    return (unix_us - 1) // _MICROSECONDS
