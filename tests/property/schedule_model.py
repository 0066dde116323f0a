"""The naive model of schedules: every due time is a row of a list until it is pushed or missed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

GRACE_US = 60 * 1_000_000
HORIZON = 3_000
"""Due times of an interval that the model lists at first."""


@dataclass
class Rule:
    """The definition of a schedule in a test."""

    interval_us: int
    start_us: int
    end_us: int
    jitter_us: int
    once: bool
    body: bytes
    queue: bytes
    cron: bytes = b""


@dataclass(eq=False)
class ModelSchedule:
    """A schedule. `waiting` are due times to come; `missed` those that wait for their one message."""

    name: bytes
    rule: Rule
    waiting: list[int]
    complete: bool
    known_us: int = 0
    missed: list[int] = field(default_factory=list)
    floor_us: int = 0
    paused: bool = False
    pushed_total: int = 0
    missed_total: int = 0
    listed_us: int = 0  # the last due time of an interval that was listed

    def list_until(self, now_us: int) -> None:
        """List the due times of an interval up to a time, and the next one."""
        while self.rule.interval_us and not self.complete and self.listed_us <= now_us:
            self.listed_us += self.rule.interval_us
            if self.rule.end_us and self.listed_us > self.rule.end_us:
                self.complete = True
            else:
                self.waiting.append(self.listed_us)

    def wake_us(self) -> int | None:
        if self.paused:
            return None
        if self.missed and (self.waiting or self.complete):
            return 0
        return self.fire_us(self.waiting[0]) if self.waiting else None

    def fire_us(self, due_us: int) -> int:
        if not self.rule.jitter_us:
            return due_us
        digest = hashlib.blake2b(self.name + due_us.to_bytes(8, "big"), digest_size=8).digest()
        return due_us + int.from_bytes(digest, "big") % (self.rule.jitter_us + 1)


class ScheduleModel:
    """The schedules, and the messages that they have pushed: queue, schedule, due time, body."""

    def __init__(self) -> None:
        self.schedules: dict[bytes, ModelSchedule] = {}
        self.pushed: list[tuple[bytes, bytes, int, bytes]] = []

    def set(self, name: bytes, rule: Rule, now_us: int, times: list[int], complete: bool) -> int:
        old = self.schedules.get(name)
        if old is not None and old.rule == rule:
            return 0
        if rule.interval_us:
            start_us = rule.start_us or now_us
            # Not only the multiples near the present: from the start on, one by one.
            times = []
            due_us = start_us
            while len(times) < HORIZON and (not rule.end_us or due_us <= rule.end_us):
                if due_us > now_us:
                    times.append(due_us)
                due_us += rule.interval_us
            complete = len(times) < HORIZON
        new = ModelSchedule(name, rule, list(times), complete, times[-1] if times and not rule.interval_us else 0)
        new.listed_us = times[-1] if times else 0
        if old is not None:
            new.paused, new.pushed_total = old.paused, old.pushed_total
            new.missed_total = old.missed_total + len(old.missed)
        self.schedules[name] = new
        return 1 if old is None else 2

    def supply(self, name: bytes, after_us: int, times: list[int], skipped: int, complete: bool) -> int:
        one = self.schedules.get(name)
        if one is None or one.rule.interval_us or one.complete or one.known_us != after_us:
            return 0
        if not times and not complete:
            # Nothing would tell a repetition of it.
            return 0
        one.waiting += times
        one.known_us = times[-1] if times else one.known_us
        one.missed_total += skipped
        one.complete = complete
        return 1

    def pause(self, name: bytes, paused: bool, now_us: int) -> None:
        one = self.schedules[name]
        if one.paused and not paused:
            one.floor_us = now_us
        one.paused = paused

    def run(self, name: bytes, now_us: int) -> None:
        self.push(self.schedules[name], now_us)

    def push(self, one: ModelSchedule, due_us: int) -> None:
        one.pushed_total += 1
        self.pushed.append((one.rule.queue, one.name, due_us, one.rule.body))

    def advance(self, now_us: int) -> None:
        """Handle all that is due at a time, earliest first."""
        for one in self.schedules.values():
            one.list_until(now_us)
        while True:
            due = [(wake, one.name) for one in self.schedules.values() if (wake := one.wake_us()) is not None]
            if not due or min(due)[0] > now_us:
                return
            self.step(self.schedules[min(due)[1]], now_us)

    def step(self, one: ModelSchedule, now_us: int) -> None:
        count = 0
        for due_us in one.waiting:
            if due_us > one.floor_us and one.fire_us(due_us) >= now_us - GRACE_US:
                break
            count += 1
        one.missed += one.waiting[:count]
        del one.waiting[:count]
        if not one.rule.once:
            one.missed_total += len(one.missed)
            one.missed = []
        if one.missed and (one.waiting or one.complete):
            one.missed_total += len(one.missed) - 1
            self.push(one, one.missed[-1])
            one.missed = []
        elif one.waiting and one.fire_us(one.waiting[0]) <= now_us:
            self.push(one, one.waiting.pop(0))
