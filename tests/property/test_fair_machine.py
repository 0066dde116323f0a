"""Fair groups and limits of deliveries against the most obvious model, over random commands and restored replicas."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pytest

from lmqcluster.core import Op
from tests.property.driver import SECOND, Driver, restored, written

Q = b"q"
GROUPS = (b"", b"", b"a", b"a", b"a", b"b", b"c", b"d")
LEASE_US = 5 * SECOND
SNAPSHOT_STEPS = 4
"""Steps from one snapshot to the next. A snapshot after each step would take three quarters of the time."""


@dataclass(eq=False)
class Entry:
    """One message."""

    body: bytes
    group: bytes
    priority: int
    due_us: int
    arrival: int
    number: int = 0
    deadline_us: int = 0
    is_delayed: bool = False


@dataclass
class Bucket:
    """A token bucket that is refilled continuously."""

    rate: Fraction
    burst: int
    tokens: Fraction
    at_us: int

    def fill(self, now_us: int) -> Fraction:
        self.tokens = min(Fraction(self.burst), self.tokens + self.rate * (now_us - self.at_us) / SECOND)
        self.at_us = now_us
        return self.tokens


@dataclass
class Model:
    """A queue with fair groups: a list of messages that is searched from the front."""

    now_us: int
    in_flight_max: int | None = None
    group_in_flight_max: int | None = None
    rate: tuple[int, int] | None = None
    group_rate: tuple[int, int] | None = None
    line: list[Entry] = field(default_factory=list)
    leased: list[Entry] = field(default_factory=list)
    turns: dict[bytes, int] = field(default_factory=lambda: {b"": 0})
    last_turn: int = 0
    bucket: Bucket | None = None
    buckets: dict[bytes, Bucket] = field(default_factory=dict)
    deliveries: int = 0
    arrivals: int = 0

    def set_limits(self, limits: dict[str, Any]) -> None:
        """Replace the limits. Buckets of another rate are full."""
        before, self.in_flight_max = (self.rate, self.group_rate), limits.get("max_in_flight")
        self.group_in_flight_max = limits.get("group_max_in_flight")
        self.rate, self.group_rate = (
            (limits[name], limits[f"{name}_burst"]) if name in limits else None for name in ("rate", "group_rate")
        )
        if self.rate != before[0]:
            self.bucket = None
            if self.rate is not None:
                self.bucket = Bucket(Fraction(self.rate[0]), self.rate[1], Fraction(self.rate[1]), self.now_us)
        if self.group_rate != before[1]:
            self.buckets.clear()

    def enter(self, entry: Entry) -> None:
        """Put a due message in line; its group comes at the end of the round unless it is there already."""
        busy = [one.group for one in (*self.line, *self.leased) if not one.is_delayed]
        if entry.group and entry.group not in busy:
            bucket = self.buckets.get(entry.group)
            if bucket is None or bucket.fill(self.now_us) >= bucket.burst or entry.group not in self.turns:
                self.last_turn += 1
                self.turns[entry.group] = self.last_turn
                self.buckets.pop(entry.group, None)
        entry.is_delayed = False
        self.line.append(entry)

    def pass_time(self) -> None:
        for entry in sorted(self.leased, key=lambda one: (one.deadline_us, one.number)):
            if entry.deadline_us <= self.now_us:
                self.leased.remove(entry)
                entry.due_us = entry.deadline_us
                self.enter(entry)

    def promote(self) -> None:
        late = [one for one in self.line if one.is_delayed and one.due_us <= self.now_us]
        for entry in sorted(late, key=lambda one: (one.due_us, one.arrival)):
            self.line.remove(entry)
            self.enter(entry)

    def in_flight(self, group: bytes) -> int:
        return sum(one.group == group for one in self.leased)

    def may_take(self, group: bytes) -> bool:
        if not group:
            return True
        if self.group_in_flight_max is not None and self.in_flight(group) >= self.group_in_flight_max:
            return False
        bucket = self.buckets.get(group)
        return bucket is None or bucket.fill(self.now_us) >= 1

    def pull(self, count: int) -> list[tuple[bytes, bytes]]:
        taken: list[tuple[bytes, bytes]] = []
        while len(taken) < count:
            if self.in_flight_max is not None and len(self.leased) >= self.in_flight_max:
                break
            if self.bucket is not None and self.bucket.fill(self.now_us) < 1:
                break
            groups = {one.group for one in self.line if not one.is_delayed and self.may_take(one.group)}
            if not groups:
                break
            group = min(groups, key=lambda name: (self.in_flight(name), self.turns[name]))
            mine = [one for one in self.line if one.group == group and not one.is_delayed]
            entry = min(mine, key=lambda one: (one.priority, one.due_us, one.arrival))
            self.line.remove(entry)
            self.leased.append(entry)
            self.deliveries += 1
            entry.number, entry.deadline_us = self.deliveries, self.now_us + LEASE_US
            self.last_turn += 1
            self.turns[group] = self.last_turn
            if self.bucket is not None:
                self.bucket.tokens -= 1
            if group and self.group_rate is not None:
                rate, burst = self.group_rate
                bucket = self.buckets.setdefault(group, Bucket(Fraction(rate), burst, Fraction(burst), self.now_us))
                bucket.fill(self.now_us)
                bucket.tokens -= 1
            taken.append((entry.group, entry.body))
        return taken


class World:
    """The machine and the model."""

    def __init__(self, rng: random.Random, limits: dict[str, Any]) -> None:
        self.rng = rng
        self.steps = 0
        self.driver = Driver()
        self.driver.set(Q, group_mode="fair", timeout=LEASE_US // SECOND, retry=1000, **limits)
        self.model = Model(self.driver.now_us)
        self.model.set_limits(limits)

    def step(self) -> None:
        rng, model, driver = self.rng, self.model, self.driver
        step_us = rng.choice((1, 1, 1, 1000, SECOND // 10, SECOND // 3, SECOND, 6 * SECOND))
        driver.now_us += step_us
        model.now_us = driver.now_us
        actions = (self.push, self.push, self.pull, self.pull, self.ack, self.nack)
        (self.change_limits if rng.random() < 0.02 else rng.choice(actions))()
        self.steps += 1
        if self.steps % SNAPSHOT_STEPS == 0:
            snapshot = written(driver.machine)
            assert written(restored(snapshot)) == snapshot
        queue = driver.machine.state.queues[Q]
        waiting, leased = queue.store.waiting(), len(queue.store.leases)
        assert (waiting, leased) == (len(model.line), len(model.leased))
        self.model_is_awake()

    def model_is_awake(self) -> None:
        """If a message can be delivered now, waiting pulls know it."""
        queue = self.driver.machine.state.queues[Q]
        model = self.model
        can = any(not one.is_delayed and model.may_take(one.group) for one in model.line)
        can &= model.in_flight_max is None or len(model.leased) < model.in_flight_max
        can &= model.bucket is None or model.bucket.fill(model.now_us) >= 1
        head_us = queue.head_us()
        assert not can or (head_us is not None and head_us <= model.now_us)

    def apply(self, *command: Any) -> Any:
        """Apply a command; what is due by time happens before it."""
        self.model.pass_time()
        self.model.promote()
        return self.driver.do(*command)

    def push(self) -> None:
        rng = self.rng
        rows = []
        entries = []
        for _ in range(rng.randint(1, 4)):
            self.model.arrivals += 1
            group, priority = rng.choice(GROUPS), rng.choice((0, 0, 0, 1, -1))
            delay_us = rng.choice((0, 0, 0, SECOND))
            body = b"%d" % self.model.arrivals
            now_us = self.model.now_us
            entries.append(
                Entry(body, group, priority, now_us + delay_us, self.model.arrivals, is_delayed=delay_us > 0)
            )
            rows.append([body, None, b"", None, [delay_us or -1, 0, 0, priority, b"", group]])
        self.apply(Op.PUSH_ROWS, Q, rows)
        for entry in entries:
            if entry.is_delayed:
                self.model.line.append(entry)
            else:
                self.model.enter(entry)

    def pull(self) -> None:
        count = self.rng.choice((1, 1, 2, 5, 50))
        delivered = self.apply(Op.PULL, Q, count)
        found = [
            ((getattr(one[3], "traits", None) and one[3].traits.group) or b"", one[3].content) for one in delivered
        ]
        assert found == self.model.pull(count)
        leased = len(self.driver.machine.state.queues[Q].store.leases)
        assert not found or self.model.in_flight_max is None or leased <= self.model.in_flight_max
        assert [one[1] for one in delivered] == list(
            range(self.model.deliveries - len(found) + 1, self.model.deliveries + 1)
        )

    def change_limits(self) -> None:
        limits = self.rng.choice(LIMITS)
        self.apply(Op.SET_PROPERTIES, Q, [[name.encode(), limits.get(name)] for name in sorted(LIMITS[-1])])
        self.model.set_limits(limits)

    def some(self) -> list[int]:
        numbers = [one.number for one in self.model.leased if one.deadline_us > self.model.now_us]
        return self.rng.sample(numbers, min(len(numbers), self.rng.randint(1, 5)))

    def leased(self, number: int) -> Entry:
        return next(one for one in self.model.leased if one.number == number)

    def ack(self) -> None:
        numbers = self.some()
        assert self.apply(Op.ACK, Q, numbers) == [True] * len(numbers)
        self.model.leased = [one for one in self.model.leased if one.number not in numbers]

    def nack(self) -> None:
        # Messages without a group that return at the same moment keep the order in which they return.
        numbers = sorted(self.some(), key=lambda number: self.leased(number).arrival)
        self.apply(Op.NACK, Q, numbers)
        returned = [self.leased(number) for number in numbers]
        self.model.leased = [one for one in self.model.leased if one not in returned]
        for entry in returned:
            entry.due_us = self.model.now_us
            self.model.enter(entry)


LIMITS: list[dict[str, Any]] = [
    {},
    {"max_in_flight": 3},
    {"group_max_in_flight": 2},
    {"rate": 2, "rate_burst": 3},
    {"group_rate": 2, "group_rate_burst": 1},
    {"max_in_flight": 4, "group_max_in_flight": 2, "rate": 5, "rate_burst": 2, "group_rate": 1, "group_rate_burst": 2},
]


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("seed", range(30))
def test_fair_groups_follow_the_model(seed: int, limits: dict[str, Any]) -> None:
    world = World(random.Random(seed), limits)
    for _ in range(120):
        world.step()
