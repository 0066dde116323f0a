"""A schedule and its progress: which due time is next, and what becomes of those that have passed.

A due time has a place in the state until it is pushed or missed, and then it is gone for good. Each schedule changes
only with the log, so no change of leader can push a due time twice or lose one.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from .definition import Definition

__all__ = ["GRACE_US", "KEPT_MAX", "TIMES_MAX", "Schedule", "advanced", "jitter_us", "wants_times"]

GRACE_US = 60 * 1_000_000
"""A due time that has not been pushed this long after it passed is missed."""
TIMES_MAX = 64
"""Most due times that nodes supply to a schedule at once."""
KEPT_MAX = 2 * TIMES_MAX
"""Most due times of a schedule: those of a supply, and those that were left before it."""
_TIMES_LOW = 32
_AHEAD_LOW_US = 1_800 * 1_000_000
_TIMES_MIN = 2


class Schedule(NamedTuple):
    """A schedule. Times are Unix times in microseconds.

    Attributes:
        owner: the owner to whose quota it counts.
        serial: the number of the definition, another one after each change of it.
        created_us: when it was created.
        times: the next due times, in order; of an interval, the next one.
        known_us: the last due time that is known, 0 for none; supplied times follow it.
        done: whether no due times follow `times`.
        floor_us: due times up to this one are missed, because the schedule was paused.
        owed_us: the last missed due time that is still to be pushed, 0 for none.
        paused: whether it is paused.
        pushed, missed, refused: messages pushed; due times dropped; messages that the queue refused.
        last_us: due time of the last message that was pushed, 0 for none.
    """

    name: bytes
    owner: bytes
    serial: int
    definition: Definition
    created_us: int
    times: tuple[int, ...] = ()
    known_us: int = 0
    done: bool = False
    floor_us: int = 0
    owed_us: int = 0
    paused: bool = False
    pushed: int = 0
    missed: int = 0
    refused: int = 0
    last_us: int = 0

    def wake_us(self) -> int | None:
        """Return when something is to be done; None if nothing is, until a command changes the schedule."""
        if self.paused:
            return None
        if self.owed_us and (self.times or self.done):
            return 0
        if not self.times:
            return None
        return self.times[0] + jitter_us(self, self.times[0])

    def takes(self, after_us: int, times: tuple[int, ...], *, done: bool) -> bool:
        """Return whether a supply of due times that follow this one is to be taken: each only once."""
        if self.definition.timing.interval_us or self.done or self.known_us != after_us:
            return False
        return (bool(times) or done) and len(self.times) + len(times) <= KEPT_MAX

    def following(self, due_us: int) -> tuple[int, ...]:
        """Return the due time of an interval that follows this one, none behind the end."""
        timing = self.definition.timing
        following = due_us + timing.interval_us
        return () if timing.end_us and following > timing.end_us else (following,)


def jitter_us(schedule: Schedule, due_us: int) -> int:
    """Return how long after its due time a message is pushed: the same on every replica, and spread over schedules."""
    span = schedule.definition.timing.jitter_us
    if not span:
        return 0
    digest = hashlib.blake2b(schedule.name + due_us.to_bytes(8, "big"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % (span + 1)


def wants_times(schedule: Schedule) -> bool:
    """Return whether a node should supply further due times: before the next are used up, and before half an hour ends."""
    if schedule.done or schedule.definition.timing.interval_us:
        return False
    count = len(schedule.times)
    if count < _TIMES_MIN:
        return True
    return count < _TIMES_LOW and schedule.known_us - schedule.times[0] < _AHEAD_LOW_US


def advanced(schedule: Schedule, now_us: int) -> tuple[Schedule, int]:
    """Carry out one step of a schedule whose `wake_us` has come: drop what was missed, or use up a due time.

    Returns:
        The schedule afterwards, and the due time of the message to push, 0 for none.
    """
    schedule = _without_missed(schedule, now_us)
    if schedule.owed_us and (schedule.times or schedule.done):
        return schedule._replace(owed_us=0), schedule.owed_us
    if not schedule.times or schedule.times[0] + jitter_us(schedule, schedule.times[0]) > now_us:
        return schedule, 0
    due_us, *rest = schedule.times
    if schedule.definition.timing.interval_us:
        following = schedule.following(due_us)
        return schedule._replace(times=following, known_us=due_us, done=not following), due_us
    return schedule._replace(times=tuple(rest)), due_us


def _without_missed(schedule: Schedule, now_us: int) -> Schedule:
    """Return the schedule without the due times that were missed."""
    if schedule.definition.timing.interval_us:
        return _interval_without_missed(schedule, now_us)
    count = 0
    while count < len(schedule.times) and _is_missed(schedule, schedule.times[count], now_us):
        count += 1
    if not count:
        return schedule
    return _with_missed(schedule, count, schedule.times[count - 1])._replace(times=schedule.times[count:])


def _interval_without_missed(schedule: Schedule, now_us: int) -> Schedule:
    timing = schedule.definition.timing
    if schedule.times and _is_missed(schedule, schedule.times[0], now_us):
        # All up to here are missed, whatever their jitter.
        limit = max(schedule.floor_us, now_us - GRACE_US - timing.jitter_us - 1)
        limit = min(limit, timing.end_us) if timing.end_us else limit
        first = schedule.times[0]
        count = max(0, limit - first) // timing.interval_us + 1
        last = first + (count - 1) * timing.interval_us
        following = schedule.following(last)
        schedule = _with_missed(schedule, count, last)._replace(times=following, known_us=last, done=not following)
    while schedule.times and _is_missed(schedule, schedule.times[0], now_us):
        # A few within the jitter; it is at most one interval.
        (due_us,) = schedule.times
        following = schedule.following(due_us)
        schedule = _with_missed(schedule, 1, due_us)._replace(times=following, known_us=due_us, done=not following)
    return schedule


def _is_missed(schedule: Schedule, due_us: int, now_us: int) -> bool:
    return due_us <= schedule.floor_us or due_us + jitter_us(schedule, due_us) < now_us - GRACE_US


def _with_missed(schedule: Schedule, count: int, last_us: int) -> Schedule:
    """Return the schedule with missed due times counted, the last of which is `last_us`."""
    if not schedule.definition.timing.once:
        return schedule._replace(missed=schedule.missed + count)
    # The message that is pushed for all of them is no miss.
    count -= not schedule.owed_us
    return schedule._replace(missed=schedule.missed + count, owed_us=last_us)
