"""Upkeep of schedules: nodes report their clocks, and the leader sets the schedule clock and supplies due times."""

from __future__ import annotations

import time
from itertools import islice
from typing import Any, Final

import structlog

from ..core.log.commands import Command, ReportClock, SetScheduleClock, SupplyTimes
from ..replication.replica import Replica
from ..wire.errors import LmqError
from .commit.own_failures import log_failure
from .commit.proposer import PendingCommand, Proposer
from .queues.schedules.clocks import STEP_US, TOLERANCE_US, agreed_ahead
from .queues.schedules.supply import supply_of

__all__ = ["ScheduleUpkeep"]

log = structlog.get_logger("lmq.schedules")

SUPPLY_S: Final = 0.004
"""Processor time for supplies of due times in one call."""
SUPPLIES_MAX: Final = 200
"""Most schedules of one command."""
UNKNOWN_MAX: Final = 10_000
"""Most definitions whose due times this node could not compute that it remembers."""
REPORT_PERIOD_S: Final = 1.0
"""A node reports its clock at most once in this time."""
AGREED_S: Final = 3.0
"""A majority must agree for this long before the schedule clock jumps, because reports of clocks that were set are late."""


class ScheduleUpkeep:
    """The commands for schedules that nodes propose. One of each kind is under way at a time."""

    def __init__(self) -> None:
        self._under_way: set[int] = set()
        # The offset to which the schedule clock would have to jump, and since when.
        self._jump: tuple[int, float] | None = None
        # Definitions, by serial number, whose due times this node cannot compute.
        self._unknown: set[int] = set()
        self._reported_s = float("-inf")

    def begin(self, replica: Replica, proposer: Proposer) -> None:
        """Set the schedule clock of a new cluster, if this node leads it."""
        if replica.is_leader() and replica.machine.state.schedules.ahead_us is None:
            self._propose(proposer, SetScheduleClock(_ahead_us(replica), held=False))

    def tend_clock(self, replica: Replica, proposer: Proposer, *, is_full: bool) -> None:
        """Report this node's clock, or set the schedule clock if this node leads; `is_full`: it has no room for messages."""
        schedules, ahead_us = replica.machine.state.schedules, _ahead_us(replica)
        if not replica.is_leader():
            self._jump = None
            self._report(replica, proposer, ahead_us)
            return
        present_us, held = schedules.ahead_us, is_full and len(schedules) > 0
        reports = {member.decode(): offset for member, offset in schedules.clocks.items()}
        agreed_us = agreed_ahead(reports, replica.status().members, replica.id, ahead_us)
        if present_us is None:
            self._propose(proposer, SetScheduleClock(ahead_us, held))
        elif (
            self._is_settled(agreed_us, present_us) and agreed_us is not None and abs(agreed_us - present_us) > STEP_US
        ):
            self._propose(proposer, SetScheduleClock(agreed_us, held))
        elif held != schedules.held:
            self._propose(proposer, SetScheduleClock(present_us, held))

    def _is_settled(self, agreed_us: int | None, present_us: int) -> bool:
        """Return whether the schedule clock need not jump, or has had to jump there for long enough."""
        if agreed_us is None or abs(agreed_us - present_us) <= TOLERANCE_US:
            self._jump = None
            return True
        now_s = time.monotonic()
        if self._jump is None or abs(agreed_us - self._jump[0]) > TOLERANCE_US:
            self._jump = agreed_us, now_s
        return now_s - self._jump[1] >= AGREED_S

    def _report(self, replica: Replica, proposer: Proposer, ahead_us: int) -> None:
        present_us = replica.machine.state.schedules.clocks.get(replica.id.encode())
        if present_us is not None and abs(ahead_us - present_us) <= STEP_US:
            return
        now_s = time.monotonic()
        if now_s - self._reported_s >= REPORT_PERIOD_S and replica.id in replica.status().members:
            self._reported_s = now_s
            self._propose(proposer, ReportClock(replica.id.encode(), ahead_us))

    def supply(self, replica: Replica, proposer: Proposer) -> bool:
        """Supply due times to schedules that want them, if this node leads; return whether some still do."""
        schedules = replica.machine.state.schedules
        if not schedules.hungry or SupplyTimes.op in self._under_way:
            return bool(schedules.hungry)
        if not replica.is_leader() or schedules.ahead_us is None:
            return False
        now_us, end_s = replica.clock.now_us() + schedules.ahead_us, time.perf_counter() + SUPPLY_S
        rows: list[Any] = []
        hungry = (schedule for name in schedules.hungry if (schedule := schedules.find(name)) is not None)
        for schedule in islice((one for one in hungry if one.serial not in self._unknown), SUPPLIES_MAX):
            try:
                rows.append(supply_of(schedule, now_us))
            except LmqError as exc:
                if len(self._unknown) >= UNKNOWN_MAX:
                    self._unknown.clear()
                self._unknown.add(schedule.serial)
                log.warning("due times cannot be computed", schedule=schedule.name, reason=exc.message)
            if time.perf_counter() > end_s:
                break
        if rows:
            self._propose(proposer, SupplyTimes(rows))
        return bool(rows)

    def _propose(self, proposer: Proposer, command: Command) -> None:
        if command.op not in self._under_way:
            self._under_way.add(command.op)
            proposer.add_first(PendingCommand(command, [], self))

    def completed(self, pending: PendingCommand, result: object) -> None:  # noqa: ARG002 - sinks have it
        """Note that a command was applied (`Sink`)."""
        self._under_way.discard(pending.command.op)
        if isinstance(pending.command, SetScheduleClock):
            log.info("schedule clock set", ahead_us=pending.command.ahead_us, held=pending.command.held)

    def failed(self, pending: PendingCommand, error: LmqError) -> None:
        """Note that a command failed or has an unknown outcome; the next call repeats it if needed (`Sink`)."""
        self._under_way.discard(pending.command.op)
        log_failure(log, "schedule command failed", pending, error)


def _ahead_us(replica: Replica) -> int:
    return time.time_ns() // 1000 - replica.clock.now_us()
