"""Commands that the leader itself proposes.

They found the cluster, renew the salt of message ids, raise the machine version, set the time of day, or are an empty batch.
"""

from __future__ import annotations

import os
import time

import structlog

from ..core.log.commands import Barrier, Command, SetSalt, SetTime, Upgrade
from ..replication.replica import Replica
from ..wire.errors import LmqError
from .commit.own_failures import log_failure
from .commit.proposer import PendingCommand, Proposer

__all__ = ["LeaderCommands"]

log = structlog.get_logger("lmq.node")

SALT_BYTES = 10
TIME_STEP_US = 250_000
"""The leader sets the time of day again when it has drifted this far from log time."""


class LeaderCommands:
    """The leader's own commands. Each is proposed ahead of client requests and retried until it is applied."""

    def __init__(self) -> None:
        self._under_way: set[int] = set()

    def begin(self, replica: Replica, proposer: Proposer) -> None:
        """Propose the commands that must precede client requests, if this node leads."""
        if not replica.is_leader():
            return
        if not replica.machine.state.salt:
            # Pulls need the salt.
            self._propose(proposer, SetSalt(os.urandom(SALT_BYTES)))
        # If all members have announced their versions, a new cluster gets its version before the first client request.
        self._upgrade(replica, proposer)
        if replica.lost_receipts.are_possible:
            self._propose(proposer, SetSalt(os.urandom(SALT_BYTES), renews=True))
        # Due times of pushes are relative to it.
        self._set_time(replica, proposer)

    def propose_due(self, replica: Replica, proposer: Proposer) -> None:
        """Set the time of day and raise the machine version to the newest that all members understand, if this node leads.

        Until that upgrade, every node behaves like the oldest program in the cluster, so a rolling upgrade keeps replicas equal.
        """
        if not replica.is_leader():
            return
        self._upgrade(replica, proposer)
        if replica.lost_receipts.are_possible:
            self._propose(proposer, SetSalt(os.urandom(SALT_BYTES), renews=True))
        self._set_time(replica, proposer)

    def _set_time(self, replica: Replica, proposer: Proposer) -> None:
        machine, unix_us = replica.machine, time.time_ns() // 1000
        told_us = machine.state.times.ahead_us
        is_due = told_us is None or abs(unix_us - replica.clock.now_us() - told_us) > TIME_STEP_US
        if is_due:
            self._propose(proposer, SetTime(unix_us))

    def _upgrade(self, replica: Replica, proposer: Proposer) -> None:
        common = replica.common_machine_version()
        if common is not None and common > replica.machine.state.version:
            self._propose(proposer, Upgrade(common))

    def let_time_pass(self, replica: Replica, proposer: Proposer) -> bool:
        """Return whether an expiry is overdue on the leader; if no batch is pending, propose an empty one to advance log time."""
        overdue = replica.is_leader() and replica.machine.state.expiry.next_us <= replica.clock.now_us()
        # A pending batch advances log time too.
        if overdue and not proposer.pending():
            self._propose(proposer, Barrier())
        return overdue

    def _propose(self, proposer: Proposer, command: Command) -> None:
        if command.op not in self._under_way:
            self._under_way.add(command.op)
            proposer.add_first(PendingCommand(command, [], self))

    def completed(self, pending: PendingCommand, result: object) -> None:
        """Note that a command was applied (`Sink`)."""
        self._under_way.discard(pending.command.op)
        if not isinstance(pending.command, Barrier):
            log.info("leader command applied", what=pending.command.op.name.lower(), result=result)

    def failed(self, pending: PendingCommand, error: LmqError) -> None:
        """Note that a command failed or has an unknown outcome (`Sink`)."""
        self._under_way.discard(pending.command.op)
        log_failure(log, "leader command failed, retrying", pending, error)
