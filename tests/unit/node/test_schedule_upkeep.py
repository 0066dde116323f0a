"""Supplies of due times that a leader proposes."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from lmqcluster.core import Op
from lmqcluster.node import schedule_upkeep
from lmqcluster.node.schedule_upkeep import ScheduleUpkeep

from .command_bench import Bench

HOUR_US = 3_600_000_000


def _leader(bench: Bench) -> Any:
    return SimpleNamespace(
        machine=bench.machine,
        clock=bench.clock,
        is_leader=lambda: True,
        id="n1",
        status=lambda: SimpleNamespace(members=["n1", "n2", "n3"]),
    )


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


class _Time:
    """The wall clock of the leader, hours ahead of log time, and its monotonic clock."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.ahead_us = 0
        self.now_s = 100.0
        self.perf_counter = time.perf_counter

    def time_ns(self) -> int:
        return (self._bench.clock.now_us() + self.ahead_us) * 1_000

    def monotonic(self) -> float:
        return self.now_s


def test_a_late_report_of_a_clock_that_was_set_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench, upkeep = Bench(), ScheduleUpkeep()
        clock = _Time(bench)
        monkeypatch.setattr(schedule_upkeep, "time", clock)

        async def tend(seconds: int) -> int | None:
            for _ in range(seconds):
                clock.now_s += 1
                sent = len(bench.sent)
                upkeep.tend_clock(_leader(bench), bench.proposer, is_full=False)
                await bench.turn()
                if len(bench.sent) > sent:
                    bench.apply(-1)
                    await bench.turn()
            return bench.machine.state.schedules.ahead_us

        bench.foreign([Op.SET_SCHEDULE_CLOCK, 0, False])
        for member, ahead_us in ((b"n2", 6 * HOUR_US), (b"n3", 0)):
            bench.foreign([Op.REPORT_CLOCK, member, ahead_us])
        assert await tend(5) == 0
        # The leader's clock becomes wrong by as much as that of n2, which is set right at the same moment.
        clock.ahead_us = 6 * HOUR_US
        assert await tend(2) == 0
        bench.foreign([Op.REPORT_CLOCK, b"n2", 0])
        assert await tend(10) == 0
        # Two clocks that stay wrong by as much are a majority.
        bench.foreign([Op.REPORT_CLOCK, b"n2", 6 * HOUR_US])
        assert await tend(2) == 0
        assert await tend(2) == 6 * HOUR_US
        # A small change is followed at once.
        clock.ahead_us += 600_000
        assert await tend(1) == clock.ahead_us

    asyncio.run(main())
