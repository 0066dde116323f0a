"""Supplies of due times that a leader proposes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from lmqcluster.core import Op
from lmqcluster.node import schedule_upkeep
from lmqcluster.node.schedule_upkeep import ScheduleUpkeep

from .command_bench import Bench


def _leader(bench: Bench) -> Any:
    return SimpleNamespace(machine=bench.machine, clock=bench.clock, is_leader=lambda: True)


def _set_schedule(bench: Bench, name: bytes, zone: bytes, was: bytes = b"") -> None:
    definition = [b"q", [None, b"", []], [0, b"* * * * *", zone, 0, 0, 0, 0]]
    bench.foreign([Op.SET_SCHEDULE, name, definition, b"", [], False, was])


def test_schedules_of_unknown_zones_are_logged_once_and_do_not_delay_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule_upkeep, "SUPPLIES_MAX", 2)

    async def main() -> None:
        bench, upkeep = Bench(), ScheduleUpkeep()
        bench.foreign([Op.SET_SCHEDULE_CLOCK, 1_790_000_000_000_000, False])
        for number in range(3):
            _set_schedule(bench, b"unknown-%d" % number, b"No/Such_Zone")
        _set_schedule(bench, b"known", b"UTC")
        with capture_logs() as logs:
            for _period in range(4):
                if not upkeep.supply(_leader(bench), bench.proposer):
                    continue
                await bench.turn()
                bench.apply(-1)
                await bench.turn()
        schedules = bench.machine.state.schedules
        known = schedules.find(b"known")
        assert known is not None
        assert known.times
        assert list(schedules.hungry) == [b"unknown-0", b"unknown-1", b"unknown-2"]
        assert sorted(one["schedule"] for one in logs) == list(schedules.hungry)
        _set_schedule(bench, b"unknown-0", b"Europe/Berlin", b"q")
        assert upkeep.supply(_leader(bench), bench.proposer), "another definition is tried again"

    asyncio.run(main())
