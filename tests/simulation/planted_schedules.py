"""Bugs in schedules. Each is a patch for the duration of a run, as in `switches`."""

from __future__ import annotations

from typing import Any

from lmqcluster.core.schedules import schedule, table
from lmqcluster.core.schedules.schedule import Schedule
from lmqcluster.core.schedules.table import Schedules
from lmqcluster.node.schedule_upkeep import ScheduleUpkeep
from tests.simulation.switches import switch

__all__ = ["PLANTED_SCHEDULES"]

_advanced = schedule.advanced
_change = Schedules.change


def _any_supply(self: Schedule, _after_us: int, times: tuple[int, ...], *, done: bool) -> bool:
    return not self.definition.timing.interval_us and (bool(times) or done)


def _drifting(one: Schedule, now_us: int) -> tuple[Schedule, int]:
    """Continue an interval from the time of the push."""
    after, due_us = _advanced(one, now_us)
    if due_us and one.definition.timing.interval_us and after.times:
        return after._replace(times=(now_us + one.definition.timing.interval_us,)), due_us
    return after, due_us


def _forgetful(self: Schedules, one: Schedule) -> None:
    """Lose what is owed when a schedule changes."""
    _change(self, one._replace(floor_us=0))


PLANTED_SCHEDULES: dict[str, Any] = {
    "supplies taken twice": switch([(Schedule, "takes", _any_supply)]),
    "intervals that drift": switch([(table, "advanced", _drifting)]),
    "pauses that miss nothing": switch([(Schedules, "change", _forgetful)]),
    "no supplies": switch([(ScheduleUpkeep, "supply", lambda *_: False)]),
}
"""By name, the context manager of each bug."""
