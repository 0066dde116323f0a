"""Queues whose messages are named by id and tag against the naive model, with a replica that is restored from
snapshots.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from lmqcluster.core import Op
from lmqcluster.core.queue.limits import POLL_COUNTERS
from lmqcluster.core.queue.message_index import tag_of

from .driver import SECOND, UNDO
from .polled_model import ATTEMPT_US, PolledModel
from .test_rich_machine import (
    BODIES,
    PROPERTIES,
    PULL,
    PUSH,
    QUEUES,
    ROWS,
    SETTLE,
    STEPS_US,
    RichMachineAgainstModel,
    _command,
)

pytestmark = pytest.mark.usefixtures("keep_idle_queues")

HIDE_US = st.sampled_from([0, 0, -SECOND, 1, SECOND, 2 * SECOND, 60 * SECOND])
# The age of the message, and which of its tags is named: the current one, the previous one, none, or a wrong one.
NAMED = st.tuples(st.integers(0, 6), st.sampled_from(["present", "present", "present", "before", "none", "wrong"]))
SWITCHES = st.lists(st.sampled_from([None, False, False, True]), min_size=4, max_size=4)
WINDOWS_US = st.sampled_from([1, SECOND, 60 * SECOND])
THROTTLES = st.tuples(st.sampled_from([None, 0, 1, 3]), WINDOWS_US).map(list)
ATTEMPTS = st.sampled_from([b"", b"1", b"2"])
POLL = st.one_of(
    _command(Op.POLL, QUEUES, st.integers(0, 4), HIDE_US, st.booleans(), st.booleans()),
    _command(Op.POLL, QUEUES, st.integers(0, 4), HIDE_US, st.booleans(), st.booleans(),
             st.sampled_from([b"", b"o"]), ATTEMPTS, st.sampled_from([SECOND, 300 * SECOND])),
)  # fmt: skip
NAME = st.one_of(
    _command(Op.UPDATE, QUEUES, NAMED, HIDE_US),
    _command(Op.UPDATE, QUEUES, NAMED, HIDE_US, st.booleans()),
    _command(Op.DELETE_POLLED, QUEUES, st.lists(NAMED, min_size=1, max_size=3)),
)
LIMIT = st.one_of(
    _command(Op.SET_POLL_LIMITS, QUEUES | st.just(b""), SWITCHES),
    _command(Op.SET_POLL_LIMITS, QUEUES | st.just(b""), st.none() | SWITCHES, THROTTLES),
    _command(Op.SET_API_KEY, st.sampled_from([b"k" * 32, b"l" * 32]), st.sampled_from([b"", b"a"])),
    _command(Op.SET_API_KEY, st.sampled_from([b"k" * 32, b"l" * 32]), st.none()),
)
PUT = st.one_of(
    _command(
        Op.PUSH_ATTEMPTS,
        QUEUES,
        st.lists(
            st.tuples(ROWS, st.sampled_from([None, b"1", b"2"])).map(lambda one: [*one[0][:3], one[1], one[0][4]]),
            min_size=1,
            max_size=3,
        ),
        st.sampled_from([b"", b"o"]),
    ),
    _command(
        Op.PUSH_ROWS,
        QUEUES,
        st.lists(ROWS | st.sampled_from([b"", b"body"]), min_size=1, max_size=4),
        *map(st.just, (b"", None, 0, True)),
    ),
    _command(Op.CREATE, QUEUES, st.just(b""), PROPERTIES, st.just(True)),
    _command(Op.CREATE, QUEUES, st.just(b""), PROPERTIES, st.just(True), st.just([[b"sqs.kind", b"standard"]])),
)


class PolledMachineAgainstModel(RichMachineAgainstModel):
    """Adds the commands of queues with an index to the others."""

    model: PolledModel

    def __init__(self) -> None:
        super().__init__()
        self.model = PolledModel()
        self.before: dict[int, int] = {}

    @rule(step_us=STEPS_US, commands=st.lists(POLL | NAME, min_size=1, max_size=3))
    def poll(self, step_us: int, commands: list[list[Any]]) -> None:
        self._one_by_one(step_us, commands)

    @rule(step_us=STEPS_US, commands=st.lists(POLL | NAME | LIMIT | PUT | PULL | PUSH | SETTLE, max_size=5))
    def all_kinds(self, step_us: int, commands: list[list[Any]]) -> None:
        self._one_by_one(step_us, commands)

    def _one_by_one(self, step_us: int, commands: list[list[Any]]) -> None:
        """Check a delivery's information about its message after its batch, in which there must be no other
        delivery of it.
        """
        for command in commands:
            self._batch(step_us, [command])

    @rule(command=LIMIT, polls=st.lists(POLL, min_size=1, max_size=4))
    def limit(self, command: list[Any], polls: list[list[Any]]) -> None:
        self._one_by_one(0, [command, *polls])
        self._batch(0, [[Op.SET_POLL_LIMITS, name, [False] * 4] for name in (b"", b"a", b"b")])
        self._batch(0, [[Op.SET_POLL_LIMITS, b"", None, [None, 1]]])

    @rule(name=QUEUES, hide_us=HIDE_US, late_us=STEPS_US, how=st.sampled_from(["present", "before", "none"]))
    def a_consumer_comes_late(self, name: bytes, hide_us: int, late_us: int, how: str) -> None:
        self._batch(0, [[Op.CREATE, name, b"", [], True], [Op.PUSH, name, None, [b"x"], None, 0]])
        self._batch(0, [[Op.POLL, name, 1, hide_us, False, True]])
        self._batch(late_us, [[Op.UPDATE, name, (0, how), SECOND], [Op.DELETE_POLLED, name, [(0, how)]]])

    @rule(name=QUEUES, hide_us=HIDE_US, late_us=STEPS_US, times_us=st.lists(HIDE_US, min_size=1, max_size=3))
    def a_consumer_keeps_its_tag(self, name: bytes, hide_us: int, late_us: int, times_us: list[int]) -> None:
        self._batch(0, [[Op.CREATE, name, b"", [], True], [Op.PUSH, name, None, [b"x"], None, 0]])
        self._batch(0, [[Op.POLL, name, 1, hide_us, False, True]])
        for time_us in times_us:
            self._batch(late_us, [[Op.UPDATE, name, (0, "present"), time_us, True]])
        self._batch(late_us, [[Op.DELETE_POLLED, name, [(0, "present")]]])

    @rule(
        name=QUEUES,
        age=st.sampled_from([None, 1, 2.5]),
        bodies=st.lists(BODIES, min_size=1, max_size=6),
        commands=st.lists(POLL | NAME | PULL | SETTLE | PUT, min_size=1, max_size=6),
        step_us=STEPS_US,
        restarts=st.booleans(),
    )
    def a_queue_of_sqs(
        self, name: bytes, age: float | None, bodies: list[bytes], commands: list[Any], step_us: int, restarts: bool
    ) -> None:
        own = [] if age is None else [[b"max_age", age]]
        self._batch(
            0,
            [[Op.DELETE, name], [Op.CREATE, name, b"", own, True, [[b"sqs.kind", b"standard"]]]],
        )
        self._batch(0, [[Op.PUSH, name, None, bodies, None, 0], [Op.DELETE_POLLED, name, [(0, "none")]]])
        self._one_by_one(step_us, commands)
        if restarts:
            self.restart_from_a_snapshot("replica")
        self._batch(SECOND, [])

    @rule(which=st.sampled_from(["replica", "machine"]), how=st.sampled_from(["present", "none"]))
    def a_consumer_comes_after_a_restart(self, which: str, how: str) -> None:
        self._batch(0, [[Op.CREATE, b"d", b"", [], True], [Op.PUSH, b"d", None, [b"x"], None, 0]])
        self._batch(0, [[Op.POLL, b"d", 1, 0, False, True]])
        self._batch(SECOND, [])
        self.restart_from_a_snapshot(which)
        self._batch(0, [[Op.DELETE_POLLED, b"d", [(0, how)]]])

    @rule(name=st.sampled_from([b"", b"d"]), count=st.integers(1, 2), window_us=WINDOWS_US)
    def a_window_passes(self, name: bytes, count: int, window_us: int) -> None:
        row = [b"x", None, b"", None, [0, 0, 0, 0, b"", b""]]
        self._batch(0, [[Op.CREATE, b"d", b"", [], True], [Op.PUSH_ROWS, b"d", [row] * 3, b"", None, 0, True]])
        self._batch(0, [[Op.SET_POLL_LIMITS, name, None, [count, window_us]]])
        for step_us in (0, 0, window_us, 0):
            self._batch(step_us, [[Op.POLL, b"d", 1, 0, True, False]])
        self._batch(0, [[Op.SET_POLL_LIMITS, name, None, [None, 1]]])

    @rule(steps_us=st.tuples(STEPS_US, STEPS_US), hide_us=HIDE_US, pushes_alone=st.booleans(), third=st.booleans())
    def a_message_dies_twice(self, steps_us: tuple[int, int], hide_us: int, pushes_alone: bool, third: bool) -> None:
        names, row = (b"d", b"e", b"f"), [b"x", None, b"", None, [-1, 0, 0, 0, b"", b"" if pushes_alone else b"g"]]
        for name, target in zip(names, (b"e", b"f", None), strict=True):
            own = [[b"dead_letter_queue", target], [b"max_deliveries", 2], [b"retry", 9], [b"timeout", 30]]
            self._batch(0, [[Op.DELETE, name], [Op.CREATE, name, b"", own, name != b"e" or third]])
        self._batch(0, [[Op.PUSH_ROWS, b"d", [row]]])
        for name in names:
            for step_us in steps_us:
                self._batch(step_us, [[Op.POLL, name, 1, hide_us, True, True]])
            self._batch(60 * SECOND, [[Op.POLL, name, 1, hide_us, False, True]])

    @rule(
        delays_us=st.tuples(st.sampled_from([SECOND, 2 * SECOND]), st.sampled_from([0, SECOND])),
        count=st.integers(1, 3),
        takes_hidden=st.booleans(),
    )
    def a_group_is_taken_early(self, delays_us: tuple[int, int], count: int, takes_hidden: bool) -> None:
        rows = [[b"x", None, b"", None, [delay_us, 0, 0, 0, b"", b"g"]] for delay_us in delays_us]
        self._batch(0, [[Op.DELETE, b"c"], [Op.CREATE, b"c", b"", [], True]])
        self._batch(0, [[Op.PUSH_ROWS, b"c", rows, b"", None, 0, True]])
        self._batch(0, [[Op.POLL, b"c", count, SECOND, takes_hidden, True]])

    @rule(
        pushes=st.lists(
            st.tuples(
                st.sampled_from([0, 1, ATTEMPT_US // 2, ATTEMPT_US // 2, ATTEMPT_US - 1, ATTEMPT_US]),
                st.sampled_from([b"", b"", b"", b"o"]),
                st.sampled_from([b"1", b"1", b"1", b"2"]),
            ),
            min_size=1,
            max_size=3,
        ),
        which=st.sampled_from([None, "replica", "machine"]),
    )
    def a_push_is_repeated(self, pushes: list[Any], which: str | None) -> None:
        self._batch(0, [[Op.SET_POLL_LIMITS, b"", [False] * 4], [Op.DELETE, b"d"], [Op.CREATE, b"d", b"", [], True]])
        for step_us, owner, attempt in [(ATTEMPT_US, b"", b"1"), *pushes]:
            row = [b"x", None, b"", attempt, [0, 0, 0, 0, b"", b""]]
            self._batch(step_us, [[Op.PUSH_ATTEMPTS, b"d", [row], owner]])
            if which is not None:
                self.restart_from_a_snapshot(which)

    @rule(
        late_us=STEPS_US,
        attempts=st.lists(st.sampled_from([b"1", b"1", b"2"]), min_size=1, max_size=3),
        between=st.lists(NAME | SETTLE | PULL, max_size=2),
        restarts=st.booleans(),
    )
    def a_poll_is_repeated(self, late_us: int, attempts: list[bytes], between: list[list[Any]], restarts: bool) -> None:
        row = [b"x", None, b"", None, [0, 0, 0, 0, b"", b""]]
        self._batch(0, [[Op.CREATE, b"d", b"", [], True], [Op.PUSH_ROWS, b"d", [row] * 2, b"", None, 0, True]])
        for attempt in (b"1", *attempts):
            self._one_by_one(0, between)
            self._batch(late_us, [[Op.POLL, b"d", 2, 2 * SECOND, False, True, b"", attempt, 60 * SECOND]])
            if restarts:
                self.restart_from_a_snapshot("replica")
        self._batch(0, [[Op.NACK, b"d", [0, 1], *UNDO]])

    def _resolved(self, command: list[Any]) -> list[Any]:
        op, *arguments = command
        if op == Op.UPDATE and isinstance(arguments[1], tuple):
            return [op, arguments[0], *self._named(*arguments[1]), *arguments[2:]]
        if op == Op.DELETE_POLLED:
            return [op, arguments[0], [self._named(*one) for one in arguments[1]]]
        return super()._resolved(command)

    def _named(self, age: int, how: str) -> tuple[int, int]:
        """Return a message and its tag as they are before the batch."""
        arrival = max(0, self.model.arrivals - age)
        number = self.model.numbers.get(arrival, 0)
        self.before.setdefault(arrival, number)
        tag = {"present": number, "before": self.before[arrival], "none": 0, "wrong": number + 1}[how]
        self.before[arrival] = number
        return arrival, tag_of(tag)

    def _expected(self, command: list[Any]) -> Any:
        op, *arguments = command
        model = self.model
        handlers: dict[Op, Callable[..., Any]] = {
            Op.CREATE: model.create,
            Op.PUSH_ATTEMPTS: model.push_attempts,
            Op.POLL: model.poll,
            Op.UPDATE: model.update,
            Op.DELETE_POLLED: model.delete_polled,
            Op.SET_POLL_LIMITS: model.set_poll_limits,
            Op.SET_API_KEY: model.set_key,
        }
        handler = handlers.get(Op(op))
        return super()._expected(command) if handler is None else handler(*arguments)

    @invariant()
    def same_limits(self) -> None:
        for limits, real in [(self.model.total, self.machine.state.poll_limits), *self._indexes()]:
            assert real.suspended == limits.suspended
            assert real.throttle == limits.throttle
            assert dict(zip(POLL_COUNTERS, real.counters, strict=True)) == {
                counter: limits.counts.get(counter, 0) for counter in POLL_COUNTERS
            }
        assert {key: self.machine.state.api_keys.prefix(key) for key in self.model.keys} == self.model.keys

    def _indexes(self) -> list[Any]:
        rich = {name: queue.store.rich for name, queue in self.machine.state.queues.items()}
        found = {name: one.index.limits for name, one in rich.items() if one is not None and one.index is not None}
        assert sorted(found) == sorted(self.model.indexes)
        return [(self.model.indexes[name], limits) for name, limits in found.items()]

    @invariant()
    def indexes_are_no_larger_than_queues(self) -> None:
        for name in self.model.indexes:
            for machine in (self.machine, self.replica):
                rich = machine.state.queues[name].store.rich
                assert rich is not None
                assert rich.index is not None
                here = {entry.arrival for entry in self.model.queues[name].entries}
                assert set(rich.index._numbers) | set(rich.index._lined) <= here
                for arrival in here & set(self.model.numbers):
                    assert rich.index._numbers.get(arrival, 0) in (0, self.model.numbers[arrival])


TestPolledMachineAgainstModel = PolledMachineAgainstModel.TestCase
TestPolledMachineAgainstModel.settings = settings(max_examples=40)
