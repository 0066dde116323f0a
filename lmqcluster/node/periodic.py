"""Periodic work of a node."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from ..replication.base.histogram import Histogram
from ..replication.replica import Replica
from .access.clients import NODE
from .access.upkeep import AccessUpkeep
from .leader_commands import LeaderCommands
from .membership.replica_digests import ReplicaDigests
from .membership.standing import health, impasse
from .metrics.stats import Stats
from .process.disk_budget import DiskBudget
from .process.memory import stored_bytes
from .queues.service import QueueService
from .schedule_upkeep import ScheduleUpkeep
from .state_log import StateLog

__all__ = ["EXPIRY_PERIOD_S", "LEADER_PERIOD_S", "PeriodicWork"]

STATS_PERIOD_S = 5.0
LAG_PERIOD_S = 0.25
LEADER_PERIOD_S = 0.25
"""A node that becomes the leader begins a leader's work at most about this much later."""
EXPIRY_PERIOD_S = 0.05
"""A lease on an idle cluster expires at most about this much late, unless very many expire at once."""
OVERDUE_PERIOD_S = 0.01
ACCESS_PERIOD_S = 0.5
STATE_PERIOD_S = 0.5


class PeriodicWork:
    """Periodic tasks; each returns the seconds until its next run.

    Args:
        replica: returns the current replica, which is replaced when the node joins or leaves a cluster.
        service: receives the stored bytes and the commands that the leader proposes.
        memory_bytes_max: the limit above which pushes are refused.
        disk: the disk budget.
        loop_lag: histogram of the lateness of timers in seconds.
        stats, access, leader_commands, schedules, digests: the parts to keep up to date.
    """

    def __init__(
        self,
        replica: Callable[[], Replica],
        service: QueueService,
        *,
        memory_bytes_max: int,
        disk: DiskBudget,
        loop_lag: Histogram,
        stats: Stats,
        access: AccessUpkeep,
        leader_commands: LeaderCommands,
        schedules: ScheduleUpkeep,
        digests: ReplicaDigests,
    ) -> None:
        self._replica = replica
        self._service = service
        self._memory_bytes_max = memory_bytes_max
        self._disk = disk
        self._loop_lag = loop_lag
        self._stats = stats
        self._access = access
        self._leader_commands = leader_commands
        self._schedules = schedules
        self._digests = digests
        self._state_log = StateLog()
        self._is_retired = False
        self._loop = asyncio.get_running_loop()
        self._stats_task: asyncio.Task[None] | None = None
        self._timers: dict[Callable[[], float], asyncio.TimerHandle] = {}
        self._begun_ms = 0
        self._lag_due_s = 0.0

    def start(self) -> None:
        """Run all tasks now, then periodically."""
        self._begun_ms = round(self._loop.time() * 1000)
        self._lag_due_s = self._loop.time()
        for work in (
            self.note_state,
            self.sample_lag,
            self.tend_cluster,
            self.let_time_pass,
            self.supply_schedules,
            self.tend_access,
        ):
            self._repeat(work)
        self._stats_task = self._loop.create_task(self.keep_stats())

    def retire(self) -> None:
        """Stop logging readiness, because the node is shutting down."""
        self._is_retired = True

    def close(self) -> None:
        """Cancel all tasks."""
        if self._stats_task is not None:
            self._stats_task.cancel()
        for timer in self._timers.values():
            timer.cancel()

    def _repeat(self, work: Callable[[], float]) -> None:
        self._timers[work] = self._loop.call_at(self._next_s(work()), self._repeat, work)

    def _next_s(self, period_s: float) -> float:
        """Return when the next period ends, counted from the start, so that tasks share wake-ups of the process."""
        period_ms = round(period_s * 1000)
        periods = (round(self._loop.time() * 1000) - self._begun_ms) // period_ms + 1
        return (self._begun_ms + periods * period_ms) / 1000

    def note_state(self) -> float:
        """Update memory and disk usage, and log changes of readiness."""
        replica, service = self._replica(), self._service
        service.sender.stored_bytes = stored_bytes(replica.machine)
        self._state_log.note_memory(service.sender.stored_bytes, self._memory_bytes_max)
        self._disk.look(replica.kept_bytes())
        service.sender.disk_shortage = self._disk.shortage
        self._state_log.note_disk(self._disk.shortage)
        if not self._is_retired:
            status = replica.status()
            self._state_log.note_health(health(status, is_stopping=False))
            self._state_log.note_problem(impasse(status))
        return STATE_PERIOD_S

    def sample_lag(self) -> float:
        """Record how late this call is."""
        self._loop_lag.observe(max(0.0, time.monotonic() - self._lag_due_s))
        self._lag_due_s = self._next_s(LAG_PERIOD_S)
        return LAG_PERIOD_S

    async def keep_stats(self) -> None:
        """Update the rates of the queues from their counters, in slices, until cancelled."""
        due_s = self._loop.time()
        while True:
            queues = list(self._replica().machine.state.queues.values())
            steps = self._stats.ticking(
                (queue.name, queue.counters.pushed_total, queue.counters.pulled_total) for queue in queues
            )
            async for _step in self._service.sender.turns.each(steps, NODE):
                pass
            due_s = max(due_s + STATS_PERIOD_S, self._loop.time())
            await asyncio.sleep(due_s - self._loop.time())

    def tend_cluster(self) -> float:
        """Run the leader's periodic commands, and compare replicas."""
        replica, proposer = self._replica(), self._service.sender.proposer
        self._leader_commands.propose_due(replica, proposer)
        self._schedules.tend_clock(replica, proposer, is_full=self._service.sender.is_full())
        self._digests.compare_when_due(replica, proposer)
        return LEADER_PERIOD_S

    def let_time_pass(self) -> float:
        """Advance log time if this node leads and an expiry is overdue."""
        replica = self._replica()
        if not replica.is_leader():
            return LEADER_PERIOD_S
        overdue = self._leader_commands.let_time_pass(replica, self._service.sender.proposer)
        return OVERDUE_PERIOD_S if overdue else EXPIRY_PERIOD_S

    def supply_schedules(self) -> float:
        """Supply due times to the schedules that want some, if this node leads."""
        more = self._schedules.supply(self._replica(), self._service.sender.proposer)
        return EXPIRY_PERIOD_S if more else LEADER_PERIOD_S

    def tend_access(self) -> float:
        """Follow the tokens of the cluster and revoke expired ones."""
        self._access.revoke_expired(self._service)
        return ACCESS_PERIOD_S
