"""What a node does again and again as long as it runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from ..replication.base.histogram import Histogram
from ..replication.replica import Replica
from .access.clients import NODE
from .access.upkeep import AccessUpkeep
from .leader_commands import LeaderCommands
from .membership.changes import Membership
from .membership.replica_digests import ReplicaDigests
from .membership.standing import health, impasse
from .metrics.stats import Stats
from .process.disk_budget import DiskBudget
from .process.memory import stored_bytes
from .queues.service import QueueService
from .state_log import StateLog

__all__ = ["EXPIRY_PERIOD_S", "UPGRADE_PERIOD_S", "PeriodicWork"]

STATS_PERIOD_S = 5.0
LAG_PERIOD_S = 0.25
UPGRADE_PERIOD_S = 0.25
EXPIRY_PERIOD_S = 0.05
"""A lease that nobody touches ends at most about this much late, unless very many end at once."""
OVERDUE_PERIOD_S = 0.01
ACCESS_PERIOD_S = 0.5
STATE_PERIOD_S = 0.5


class PeriodicWork:
    """The work; each part of it returns after how many seconds it is to be done again.

    Args:
        replica: returns the present one; another after the node has joined or left a cluster.
        service: is told what is stored, and takes what the leader proposes.
        memory_bytes_max: above it pushes are refused.
        disk: whether there is room on the disk.
        loop_lag: takes by how many seconds timers are late.
        stats, membership, access, own_commands, digests: are kept up to date.
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
        membership: Membership,
        access: AccessUpkeep,
        own_commands: LeaderCommands,
        digests: ReplicaDigests,
    ) -> None:
        self._replica = replica
        self._service = service
        self._memory_bytes_max = memory_bytes_max
        self._disk = disk
        self._loop_lag = loop_lag
        self._stats = stats
        self._membership = membership
        self._access = access
        self._own_commands = own_commands
        self._digests = digests
        self._state_log = StateLog()
        self._lag_due_s = time.monotonic()
        self._is_retired = False
        self._loop = asyncio.get_running_loop()
        self._stats_task: asyncio.Task[None] | None = None
        self._timers: dict[Callable[[], float], asyncio.TimerHandle] = {}

    def start(self) -> None:
        """Do everything now, and from now on again and again."""
        self._lag_due_s = time.monotonic()
        for work in (
            self.note_state,
            self.sample_lag,
            self.tend_cluster,
            self.let_time_pass,
            self.tend_access,
        ):
            self._repeat(work)
        self._stats_task = self._loop.create_task(self.keep_stats())

    def retire(self) -> None:
        """The node is shutting down: that it is not ready is no news any more."""
        self._is_retired = True

    def close(self) -> None:
        """Do nothing any more."""
        if self._stats_task is not None:
            self._stats_task.cancel()
        for timer in self._timers.values():
            timer.cancel()

    def _repeat(self, work: Callable[[], float]) -> None:
        self._timers[work] = self._loop.call_later(work(), self._repeat, work)

    def note_state(self) -> float:
        """Tell what the replica holds and whether the node can serve."""
        replica, service = self._replica(), self._service
        service.stored_bytes = stored_bytes(replica.machine)
        self._state_log.note_memory(service.stored_bytes, self._memory_bytes_max)
        self._disk.look(replica.kept_bytes())
        service.disk_shortage = self._disk.shortage
        self._state_log.note_disk(self._disk.shortage)
        if not self._is_retired:
            self._membership.tend()
            status = replica.status()
            self._state_log.note_health(health(status, is_stopping=False))
            self._state_log.note_problem(impasse(status))
        return STATE_PERIOD_S

    def sample_lag(self) -> float:
        """Note how late this very call is."""
        now_s = time.monotonic()
        self._loop_lag.observe(max(0.0, now_s - self._lag_due_s))
        self._lag_due_s = now_s + LAG_PERIOD_S
        return LAG_PERIOD_S

    async def keep_stats(self) -> None:
        """Have the rates of the queues follow their counters, in slices, until cancelled."""
        due_s = self._loop.time()
        while True:
            queues = list(self._replica().machine.queues.values())
            steps = self._stats.ticking((queue.name, queue.pushed_total, queue.pulled_total) for queue in queues)
            async for _step in self._service.turns.each(steps, NODE):
                pass
            due_s = max(due_s + STATS_PERIOD_S, self._loop.time())
            await asyncio.sleep(due_s - self._loop.time())

    def tend_cluster(self) -> float:
        """As the leader, move the cluster to the next machine version, and have replicas compared."""
        replica, proposer = self._replica(), self._service.proposer
        self._own_commands.tend(replica, proposer)
        self._digests.tend(replica, proposer)
        return UPGRADE_PERIOD_S

    def let_time_pass(self) -> float:
        """As the leader, have log time pass if something is overdue."""
        overdue = self._own_commands.let_time_pass(self._replica(), self._service.proposer)
        return OVERDUE_PERIOD_S if overdue else EXPIRY_PERIOD_S

    def tend_access(self) -> float:
        """Follow the tokens of the cluster."""
        self._access.tend(self._service)
        return ACCESS_PERIOD_S
