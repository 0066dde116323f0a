"""What a leader proposes of itself: founding the cluster, a new salt of message ids, the next machine version, the time of day,
an empty batch.
"""

from __future__ import annotations

import os
import time

import structlog

from ..core import Op
from ..core.log import command_layout as layout
from ..core.log.commands import Command
from ..replication.replica import Replica
from ..wire.errors import LmqError
from .commit.proposer import PendingCommand, Proposer

__all__ = ["LeaderCommands"]

log = structlog.get_logger("lmq.node")

SALT_BYTES = 10
TIME_STEP_US = 250_000
"""The leader tells the time of day again when it has moved so far against log time."""


class LeaderCommands:
    """Each is proposed before all requests of clients, and again until it is done."""

    def __init__(self) -> None:
        self._under_way: set[int] = set()

    def begin(self, replica: Replica, proposer: Proposer) -> None:
        """This node may have begun to lead: propose what must precede anybody's request."""
        if not replica.is_leader():
            return
        if not replica.machine.salt:
            # Pulls need it.
            self._propose(proposer, layout.found(os.urandom(SALT_BYTES)))
        # A new cluster has its version before anybody's request if all members have been heard of.
        self._upgrade(replica, proposer)
        if replica.lost_receipts.are_possible:
            self._propose(proposer, layout.renew_salt(os.urandom(SALT_BYTES)))
        # The due times of pushes count by it.
        self._set_time(replica, proposer)

    def tend(self, replica: Replica, proposer: Proposer) -> None:
        """As the leader, tell the time of day, and move the cluster to the newest machine version that all members understand.

        Until then every node behaves as the oldest program among them does, so that a rolling upgrade keeps replicas equal.
        """
        if not replica.is_leader():
            return
        self._upgrade(replica, proposer)
        if replica.lost_receipts.are_possible:
            self._propose(proposer, layout.renew_salt(os.urandom(SALT_BYTES)))
        self._set_time(replica, proposer)

    def _set_time(self, replica: Replica, proposer: Proposer) -> None:
        machine, unix_us = replica.machine, time.time_ns() // 1000
        told_us = machine.times.ahead_us
        is_due = told_us is None or abs(unix_us - replica.clock.now_us() - told_us) > TIME_STEP_US
        if is_due:
            self._propose(proposer, layout.set_time(unix_us))

    def _upgrade(self, replica: Replica, proposer: Proposer) -> None:
        common = replica.common_machine_version()
        if common is not None and common > replica.machine.version:
            self._propose(proposer, layout.upgrade(common))

    def let_time_pass(self, replica: Replica, proposer: Proposer) -> bool:
        """As the leader, have log time pass if something is overdue and no batch comes; returns whether something is."""
        overdue = replica.is_leader() and replica.machine.expiry.next_us <= replica.clock.now_us()
        # A batch that is under way does as well.
        if overdue and not proposer.pending():
            self._propose(proposer, layout.barrier())
        return overdue

    def _propose(self, proposer: Proposer, command: Command) -> None:
        if command[layout.OP] not in self._under_way:
            self._under_way.add(command[layout.OP])
            proposer.add_first(PendingCommand(command, [], self))

    def completed(self, group: PendingCommand, result: object) -> None:
        """One is done (`Sink`)."""
        self._under_way.discard(group.command[layout.OP])
        if group.command[layout.OP] != Op.BARRIER:
            log.info("leader command applied", what=Op(group.command[layout.OP]).name.lower(), result=result)

    def failed(self, group: PendingCommand, error: LmqError) -> None:
        """One is not done, or that is unknown (`Sink`)."""
        self._under_way.discard(group.command[layout.OP])
        log.warning(
            "leader command failed, retrying", what=Op(group.command[layout.OP]).name.lower(), reason=error.message
        )
