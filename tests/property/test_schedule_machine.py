"""Schedules against the naive model: the same messages in the same order, whatever becomes of the clock."""

from __future__ import annotations

from typing import Any

import msgpack
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lmqcluster.core import Fault, Op
from lmqcluster.core.log.commands import ScheduleAction
from lmqcluster.core.messages.message import loaded
from lmqcluster.core.schedules.schedule import wants_times

from .driver import SECOND, Driver, copied, records
from .schedule_model import ModelSchedule, Rule, ScheduleModel

NAMES = st.sampled_from([b"s", b"t", b"u"])
QUEUES = st.sampled_from([b"a", b"b"])
STEPS_US = st.sampled_from([0, 0, 1, SECOND // 2, SECOND, SECOND, 2 * SECOND, 7 * SECOND, 61 * SECOND, 400 * SECOND])
CLOCK_STEPS_US = st.sampled_from([0, 1, -1, SECOND, -SECOND, 50 * SECOND, -50 * SECOND, 600 * SECOND, -600 * SECOND])
JITTERS_US = st.sampled_from([0, 0, 0, 1, SECOND // 2, SECOND])
BODIES = st.binary(max_size=2)


class ScheduleMachineAgainstModel(RuleBasedStateMachine):
    """A machine with schedules, and the model."""

    @initialize(ahead_us=st.sampled_from([0, 12_345, 1_700_000_000 * SECOND]))
    def begin(self, ahead_us: int) -> None:
        self.driver = Driver()
        self.model = ScheduleModel()
        self.ahead_us = ahead_us
        self.driver.do(Op.SET_SCHEDULE_CLOCK, ahead_us, False)
        self.seen = 0

    @property
    def unix_us(self) -> int:
        return self.driver.now_us + self.ahead_us

    def apply(self, step_us: int) -> None:
        """Apply a batch at a later log time, here and in the model."""
        self.driver.now_us += step_us
        self.model.advance(self.unix_us)
        self.driver.tick()
        self.check_messages()

    def check_messages(self) -> None:
        """Compare the messages, after what is due since the last command has happened too."""
        self.driver.tick()
        self.model.advance(self.unix_us)
        pushed = self.model.pushed[self.seen :]
        self.seen = len(self.model.pushed)
        for queue in (b"a", b"b"):
            expected = [one[1:] for one in pushed if one[0] == queue]
            assert self.drained(queue) == expected

    def drained(self, queue: bytes) -> list[tuple[bytes, int, bytes]]:
        """Return all messages of a queue, and remove them."""
        if queue not in self.driver.machine.state.queues:
            return []
        found = []
        while messages := self.driver.do(Op.PULL, queue, 1_000, 0, True):
            for _, _, _, message in messages:
                attributes = msgpack.unpackb(message.meta[1])
                assert attributes["x"] == 1
                due_us = round(attributes["scheduled_at"] * SECOND)
                content = loaded(message.content)
                assert isinstance(content, bytes)
                found.append((attributes["schedule"].encode(), due_us, content))
        return found

    def was(self, name: bytes) -> bytes:
        one = self.model.schedules.get(name)
        return b"" if one is None else one.rule.queue

    @rule(
        step_us=STEPS_US,
        name=NAMES,
        queue=QUEUES,
        interval=st.integers(1, 90),
        start=st.none() | st.integers(-200, 100),
        end=st.none() | st.integers(0, 300),
        jitter_us=JITTERS_US,
        once=st.booleans(),
        body=BODIES,
    )
    def set_interval(
        self,
        step_us: int,
        name: bytes,
        queue: bytes,
        interval: int,
        start: int | None,
        end: int | None,
        jitter_us: int,
        once: bool,
        body: bytes,
    ) -> None:
        now_us = self.unix_us + step_us
        start_us = 0 if start is None else now_us + start * SECOND
        end_us = 0 if end is None else max(start_us, now_us) + end * SECOND
        given = Rule(interval * SECOND, start_us, end_us, jitter_us, once, body, queue)
        self._set(step_us, name, given, [], complete=False)

    @rule(
        step_us=STEPS_US,
        name=NAMES,
        queue=QUEUES,
        gaps=st.lists(st.integers(0, 50), min_size=1, max_size=5),
        jitter_us=JITTERS_US,
        complete=st.booleans(),
        once=st.booleans(),
        body=BODIES,
    )
    def set_cron(
        self,
        step_us: int,
        name: bytes,
        queue: bytes,
        gaps: list[int],
        jitter_us: int,
        complete: bool,
        once: bool,
        body: bytes,
    ) -> None:
        given = Rule(0, 0, 0, jitter_us, once, body, queue)
        self._set(step_us, name, given, self._times(self.unix_us + step_us, gaps), complete=complete)

    def _times(self, after_us: int, gaps: list[int]) -> list[int]:
        times = []
        for gap in gaps:
            after_us += 1 + gap * SECOND
            times.append(after_us)
        return times

    def _set(self, step_us: int, name: bytes, given: Rule, times: list[int], *, complete: bool) -> None:
        cron = (b"", b"") if given.interval_us else (b"* * * * *", b"UTC")
        bounds = [given.start_us, given.end_us, given.jitter_us, int(given.once)]
        definition = [given.queue, [b"t", b"\x81\xa1x\x01", []], [given.interval_us, *cron, *bounds]]
        command = [Op.SET_SCHEDULE, name, definition, given.body, times, complete, self.was(name)]
        self.driver.now_us += step_us
        self.model.advance(self.unix_us)
        result = self.driver.batch(command)[0]
        assert result == self.model.set(name, given, self.unix_us, times, complete), result
        self.check_messages()

    @rule(
        step_us=STEPS_US,
        name=NAMES,
        gaps=st.lists(st.integers(0, 50), max_size=4),
        skipped=st.integers(0, 3),
        complete=st.booleans(),
        stale=st.booleans(),
    )
    def supply(self, step_us: int, name: bytes, gaps: list[int], skipped: int, complete: bool, stale: bool) -> None:
        found = self.driver.machine.state.schedules.find(name)
        if found is None:
            return
        after_us = found.known_us - int(stale)
        if after_us < 0:
            return
        times = self._times(max(after_us, self.unix_us - 30 * SECOND), gaps)
        row = [name, found.serial, after_us, times, skipped, complete]
        self.driver.now_us += step_us
        self.model.advance(self.unix_us)
        result = self.driver.batch([Op.SUPPLY_TIMES, [row, row]])[0]
        expected = sum(self.model.supply(name, after_us, times, skipped, complete) for _ in range(2))
        assert result == expected
        self.check_messages()

    @rule(step_us=STEPS_US, name=NAMES, action=st.sampled_from(ScheduleAction))
    def change(self, step_us: int, name: bytes, action: ScheduleAction) -> None:
        self.driver.now_us += step_us
        self.model.advance(self.unix_us)
        known = name in self.model.schedules
        result = self.driver.batch([Op.CHANGE_SCHEDULE, name, action, self.was(name)])[0]
        assert isinstance(result, Fault) is not known
        if known and action is ScheduleAction.REMOVE:
            del self.model.schedules[name]
        elif known and action is ScheduleAction.RUN:
            self.model.run(name, self.unix_us)
        elif known:
            self.model.pause(name, action is ScheduleAction.PAUSE, self.unix_us)
        self.check_messages()

    @rule(name=NAMES, seconds=st.sampled_from([1, 5, 30, 90]))
    def a_pause(self, name: bytes, seconds: int) -> None:
        self.change(0, name, ScheduleAction.PAUSE)
        self.apply(seconds * SECOND)
        self.change(0, name, ScheduleAction.RESUME)
        self.apply(0)

    @rule(step_us=STEPS_US)
    def time_passes(self, step_us: int) -> None:
        self.apply(step_us)

    @rule(step_us=CLOCK_STEPS_US)
    def the_clock_moves(self, step_us: int) -> None:
        if self.unix_us + step_us <= 0:
            return
        self.model.advance(self.unix_us)
        self.driver.do(Op.SET_SCHEDULE_CLOCK, self.ahead_us + step_us, False)
        self.ahead_us += step_us
        self.apply(0)

    @rule(seconds=st.integers(1, 90))
    def a_minute_second_by_second(self, seconds: int) -> None:
        for _ in range(seconds):
            self.apply(SECOND)

    @rule()
    def restored(self) -> None:
        machine = copied(self.driver.machine)
        assert records(machine) == records(self.driver.machine)
        self.driver = Driver(machine)

    @invariant()
    def same_schedules(self) -> None:
        state = self.driver.machine.state
        assert sorted(one.name for one in state.schedules) == sorted(self.model.schedules)
        for one in state.schedules:
            self.check_schedule(one, self.model.schedules[one.name])
        assert set(state.schedules.hungry) == {one.name for one in state.schedules if wants_times(one)}

    def check_schedule(self, one: Any, expected: ModelSchedule) -> None:
        assert one.times[:1] == tuple(expected.waiting[:1])
        assert (one.pushed, one.paused) == (expected.pushed_total, expected.paused)
        assert one.missed == expected.missed_total + max(0, len(expected.missed) - 1)
        assert one.wake_us() == expected.wake_us()
        assert one.owed_us == (expected.missed[-1] if expected.missed else 0)


TestScheduleMachineAgainstModel = ScheduleMachineAgainstModel.TestCase
TestScheduleMachineAgainstModel.settings = settings(max_examples=120, stateful_step_count=30, deadline=None)
