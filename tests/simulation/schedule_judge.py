"""Judge of schedules: the messages that they push are those of the naive model that follows the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgpack

from lmqcluster.core import Fault, Op
from lmqcluster.core.log.commands import ScheduleAction
from lmqcluster.core.messages.message import loaded
from tests.property.schedule_model import Rule, ScheduleModel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmqcluster.core import Applied, Machine
    from tests.simulation.checkers import Checkers

__all__ = ["SCHEDULED", "ScheduleJudge"]

SCHEDULED = b"scheduled"
"""The queue of all schedules. Nothing is pulled from it."""
SECOND_US = 1_000_000
SUPPLIED_US = 4 * SECOND_US


class ScheduleJudge:
    """Applies the log to the model."""

    def __init__(self, checkers: Checkers) -> None:
        self._checkers = checkers
        self._index = 0
        self.begin_again()

    def begin_again(self) -> None:
        """Forget everything because the cluster has lost it."""
        self._model = ScheduleModel()
        self._serials: dict[bytes, int] = {}
        self._serial = 0
        self._now_us = 0
        self._ahead_us: int | None = None

    @property
    def _unix_us(self) -> int:
        return self._now_us + (self._ahead_us or 0)

    def applied(self, index: int, now_us: int, commands: list[Any], applied: Applied) -> None:
        """Follow an entry of the log, once."""
        if index <= self._index:
            return
        self._index, self._now_us = index, max(now_us, self._now_us)
        if self._ahead_us is not None:
            self._model.advance(self._unix_us)
        for command, result in zip(commands, applied.results, strict=False):
            if not isinstance(result, Fault):
                self._follow(command, result)

    def _follow(self, command: list[Any], result: Any) -> None:
        op, *fields = command
        if op == Op.SET_SCHEDULE_CLOCK:
            self._ahead_us = fields[0]
        elif op == Op.SET_SCHEDULE:
            name, (queue, _message, timing), body, times, done, *_ = fields
            interval_us, cron, _zone, start_us, end_us, jitter_us, once = timing
            rule = Rule(interval_us, start_us, end_us, jitter_us, bool(once), body, queue, cron)
            if self._model.set(name, rule, self._unix_us, times, bool(done)):
                self._serial += 1
                self._serials[name] = self._serial
        elif op == Op.SUPPLY_TIMES:
            for name, serial, after_us, times, skipped, done in fields[0]:
                if self._serials.get(name) == serial:
                    self._model.supply(name, after_us, list(times), skipped, bool(done))
        elif op == Op.CHANGE_SCHEDULE:
            self._change(fields[0], ScheduleAction(fields[1]))
        self._check(command, result)

    def _change(self, name: bytes, action: ScheduleAction) -> None:
        if action is ScheduleAction.REMOVE:
            del self._model.schedules[name]
        elif action is ScheduleAction.RUN:
            self._model.run(name, self._unix_us)
        else:
            self._model.pause(name, action is ScheduleAction.PAUSE, self._unix_us)

    def _check(self, command: list[Any], result: Any) -> None:
        if command[0] == Op.CHANGE_SCHEDULE and result != 0:
            self._checkers.report("wrong result: schedule", f"{command}: {result}")

    def check(self, machines: Mapping[str, Machine]) -> None:
        """Compare the messages of each replica with those of the model at the end of the log."""
        for one in self._model.schedules.values():
            is_cron = not one.rule.interval_us and not one.complete and not one.paused
            if is_cron and not one.waiting and one.known_us < self._unix_us - SUPPLIED_US:
                self._checkers.report("schedule without due times", f"{one.name!r} has had none for a while")
        expected = [(name, due_us, body) for _, name, due_us, body in self._model.pushed]
        for replica, machine in machines.items():
            found = _messages(machine)
            twice = len(found) - len({(name, due_us) for name, due_us, _ in found})
            # A schedule that is run twice at one log time pushes two messages with the same time.
            model_twice = len(expected) - len({(name, due_us) for name, due_us, _ in expected})
            if twice > model_twice:
                self._checkers.report("due time pushed twice", f"{replica}: {twice - model_twice} of {len(found)}")
            elif lost := [one for one in expected if one not in found]:
                self._checkers.report("due time not pushed", f"{replica}: {len(lost)}, such as {lost[:3]}")
            elif found != expected:
                self._checkers.report("due times differ", f"{replica}: {len(found)} messages, expected {len(expected)}")
            for kept in machine.state.schedules:
                waiting = self._model.schedules[kept.name].waiting
                if [*kept.times] != (waiting[:1] if kept.definition.timing.interval_us else waiting):
                    self._checkers.report("upcoming due times differ", f"{replica}: those of {kept.name!r}")


def _body(content: Any) -> bytes:
    assert isinstance(content, bytes)
    return content


def _messages(machine: Machine) -> list[tuple[bytes, int, bytes]]:
    queue = machine.state.queues.get(SCHEDULED)
    if queue is None:
        return []
    messages = [*queue.store.ready]
    if queue.store.backlog is not None:
        messages += queue.store.backlog.messages()
    found = []
    for message in messages:
        attributes = msgpack.unpackb(message.meta[1])
        due_us = round(attributes["scheduled_at"] * SECOND_US)
        found.append((attributes["schedule"].encode(), due_us, _body(loaded(message.content))))
    return found
