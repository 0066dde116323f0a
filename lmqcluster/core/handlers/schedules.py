"""Schedules. Every public method is one command of the state machine."""

from __future__ import annotations

from typing import Any, Final

from ..log import commands as log
from ..log.commands import ScheduleAction
from ..log.items import checked_item
from ..log.results import RefusedError, shown
from ..owners.quotas import checked_owner
from ..queue.options import TIME_US_MAX
from ..schedules.definition import BODY_BYTES_MAX, Definition, checked_name, checked_timing
from ..schedules.schedule import KEPT_MAX, TIMES_MAX, Schedule
from ..state.state import NAME_BYTES_MAX, State
from .checks import checked_push

__all__ = ["ScheduleCommands", "schedule_of"]

_SUPPLIES_MAX: Final = 1_000
_AHEAD_US_MAX: Final = 1 << 61


class ScheduleCommands:
    """The commands."""

    def __init__(self, state: State) -> None:
        self._state = state

    def set(self, command: log.SetSchedule) -> int:
        """Create a schedule, or replace its definition.

        Raises:
            ValueError: a field is malformed.
            RefusedError: ``conflict`` if another client has changed the schedule, ``quota_exceeded``.
        """
        schedules = self._state.schedules
        name, owner = checked_name(command.name), checked_owner(command.owner)
        definition = _checked_definition(command.definition, command.content)
        times = _checked_times(command.times, 0)
        if schedules.ahead_us is None:
            raise RefusedError("no_leader", "the cluster has not set the clock of its schedules yet")
        old = schedules.find(name)
        self._check_queue(name, old, command.was)
        if old is not None and old.definition == definition and old.owner == owner:
            return log.ScheduleResult.UNCHANGED
        schedules.check_room(owner, old, definition.size_bytes())
        schedules.last_serial += 1
        now_us = schedules.unix_us()
        schedule = Schedule(name, owner, schedules.last_serial, definition, now_us)
        if definition.timing.interval_us:
            first = _first_of_interval(definition, now_us)
            schedule = schedule._replace(times=first, done=not first)
        else:
            schedule = schedule._replace(times=times, known_us=times[-1] if times else 0, done=bool(command.done))
        if old is None:
            schedules.put(schedule)
            return log.ScheduleResult.CREATED
        schedules.put(
            schedule._replace(
                created_us=old.created_us,
                paused=old.paused,
                pushed=old.pushed,
                missed=old.missed + bool(old.owed_us),
                refused=old.refused,
                last_us=old.last_us,
            )
        )
        return log.ScheduleResult.REPLACED

    def change(self, command: log.ChangeSchedule) -> int:
        """Pause, resume or remove a schedule, or push its message now.

        Raises:
            ValueError: a field is malformed.
            RefusedError: ``schedule_not_found``, ``conflict`` if another client has changed the schedule.
        """
        schedules, action = self._state.schedules, ScheduleAction(command.action)
        schedule = schedules.find(checked_name(command.name))
        if schedule is None:
            raise RefusedError("schedule_not_found", f"there is no schedule {shown(command.name)}")
        self._check_queue(command.name, schedule, command.was)
        if action is ScheduleAction.REMOVE:
            schedules.remove(schedule.name)
        elif action is ScheduleAction.RUN:
            schedule, flag = schedules.push(schedule, schedules.unix_us())
            schedules.change(schedule)
            return flag
        elif schedule.paused is (action is ScheduleAction.RESUME):
            # What passed during the pause was missed.
            floor_us = schedules.unix_us() if schedule.paused else schedule.floor_us
            schedules.change(schedule._replace(paused=not schedule.paused, floor_us=floor_us))
        return 0

    def supply(self, command: log.SupplyTimes) -> int:
        """Add due times to schedules; return to how many. Rows that another supply has preceded are skipped.

        Raises:
            ValueError: a field is malformed; nothing is added.
        """
        schedules = self._state.schedules
        if type(command.rows) not in (list, tuple) or len(command.rows) > _SUPPLIES_MAX:
            raise ValueError(f"due times are supplied to at most {_SUPPLIES_MAX} schedules at once")
        rows = [_checked_supply(*row) for row in command.rows]
        taken = 0
        for name, serial, after_us, times, skipped, done in rows:
            schedule = schedules.find(name)
            if schedule is None or schedule.serial != serial or not schedule.takes(after_us, times, done=done):
                continue
            fed = schedule._replace(
                times=schedule.times + times,
                known_us=times[-1] if times else schedule.known_us,
                missed=schedule.missed + skipped,
                done=done,
            )
            schedules.change(fed)
            taken += 1
        return taken

    def report_clock(self, command: log.ReportClock) -> bool:
        """Record by how much the clock of a member is ahead of log time.

        Raises:
            ValueError: a field is malformed.
        """
        member, ahead_us = checked_name(command.member), command.ahead_us
        if type(ahead_us) is not int or not -_AHEAD_US_MAX < ahead_us < _AHEAD_US_MAX:
            raise ValueError("the offset of a clock must be an integer")
        self._state.schedules.report(member, ahead_us)
        return True

    def set_clock(self, command: log.SetScheduleClock) -> bool:
        """Set the schedule clock.

        Raises:
            ValueError: a field is malformed.
        """
        ahead_us = command.ahead_us
        if type(ahead_us) is not int or not -_AHEAD_US_MAX < ahead_us < _AHEAD_US_MAX:
            raise ValueError("the offset of a clock must be an integer")
        if type(command.held) is not bool:
            raise ValueError("whether to hold schedules must be true or false")
        self._state.schedules.set_clock(ahead_us, held=command.held)
        return True

    def _check_queue(self, name: bytes, schedule: Schedule | None, was: Any) -> None:
        """Refuse a command whose sender has seen another schedule: it checked the permission for another queue."""
        queue = b"" if schedule is None else schedule.definition.queue
        if was != queue:
            raise RefusedError("conflict", f"the schedule {shown(name)} was changed at the same time; try again")


def _checked_definition(row: Any, content: Any) -> Definition:
    """Return the definition of a command or of a snapshot.

    Raises:
        ValueError: it is malformed.
    """
    queue, (content_type, attributes, options), timing = row
    if type(queue) is not bytes or not 0 < len(queue) <= NAME_BYTES_MAX:
        raise ValueError("a queue name must have 1 to 255 bytes")
    item = checked_item(content, content_type, attributes, None)
    if len(item.content) > BODY_BYTES_MAX:
        raise ValueError(f"the body of a schedule has at most {BODY_BYTES_MAX} bytes")
    push = checked_push(options)
    if push.due_us:
        raise ValueError("the messages of a schedule have no due time")
    return Definition(queue, item, push, checked_timing(timing))


def _first_of_interval(definition: Definition, now_us: int) -> tuple[int, ...]:
    """Return the first due time of an interval that has not passed: the start, or one of those that follow it."""
    timing = definition.timing
    first = start_us = timing.start_us or now_us
    if first <= now_us:
        first += ((now_us - start_us) // timing.interval_us + 1) * timing.interval_us
    return () if timing.end_us and first > timing.end_us else (first,)


def _checked_times(times: Any, after_us: int, most: int = TIMES_MAX) -> tuple[int, ...]:
    if type(times) not in (list, tuple) or len(times) > most:
        raise ValueError(f"a schedule has at most {most} due times ahead")
    before = after_us
    for time_us in times:
        if type(time_us) is not int or not before < time_us <= TIME_US_MAX:
            raise ValueError("due times must be integers in rising order")
        before = time_us
    return tuple(times)


def _checked_supply(
    name: Any, serial: Any, after_us: Any, times: Any, skipped: Any, done: Any
) -> tuple[bytes, int, int, tuple[int, ...], int, bool]:
    if any(type(number) is not int or not 0 <= number <= TIME_US_MAX for number in (serial, after_us, skipped)):
        raise ValueError("a supply of due times is malformed")
    return checked_name(name), serial, after_us, _checked_times(times, after_us), skipped, bool(done)


def schedule_of(row: Any) -> Schedule:
    """Return the schedule of a row of a snapshot.

    Raises:
        ValueError: it is malformed.
    """
    name, owner, serial, definition, created_us, times, *numbers, content = row
    if any(type(one) is not int for one in (serial, created_us, *numbers)):
        raise ValueError("the row of a schedule is malformed")
    known_us, done, floor_us, owed_us, paused, pushed, missed, refused, last_us = numbers
    return Schedule(
        name=checked_name(name),
        owner=checked_owner(owner),
        serial=serial,
        definition=_checked_definition(definition, content),
        created_us=created_us,
        times=_checked_times(times, 0, KEPT_MAX),
        known_us=known_us,
        done=bool(done),
        floor_us=floor_us,
        owed_us=owed_us,
        paused=bool(paused),
        pushed=pushed,
        missed=missed,
        refused=refused,
        last_us=last_us,
    )
