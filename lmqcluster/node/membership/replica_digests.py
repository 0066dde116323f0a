"""Comparison of running replicas: a replica that differs from a majority would serve wrong results, so it stops itself.

The leader periodically proposes a digest at one position of the log. Each node computes its digest and reports it through the
log, so all nodes see all reports in the same order and no separate message is needed. If a node's digest differs from that of a
majority of the members, the node stops and logs the reason. `lmq repair` makes it copy everything from the others. A majority
never stops.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection
from typing import Any

import structlog

from ...core.log.commands import Command, Digest, ReportDigest
from ...replication.base.errors import FatalReplicationError
from ...replication.replica import Replica
from ..commit.proposer import PendingCommand, Proposer

__all__ = ["DIGEST_EVERY", "ReplicaDigests"]

log = structlog.get_logger("lmq.replica")

DIGEST_EVERY = 60
"""Number of calls of `compare_when_due` between comparisons."""
TOKEN_BYTES = 8


class ReplicaDigests:
    """The latest comparison, as this node knows it.

    Attributes:
        compared_total: comparisons in which a majority agreed.
    """

    def __init__(self) -> None:
        self._token = b""
        self._own = b""
        self._reports: dict[str, bytes] = {}
        self._calls = 0
        self._proposing = False
        self._agreed = False
        self.compared_total = 0

    def compare_when_due(self, replica: Replica, proposer: Proposer) -> None:
        """Begin a comparison if this node leads and it is time, and report this node's digest; called periodically."""
        self._calls += 1
        if replica.is_leader() and self._calls % DIGEST_EVERY == 0:
            self._propose(proposer, Digest(os.urandom(TOKEN_BYTES)))
        if self._token and replica.id not in self._reports and replica.id in replica.status().members:
            self._propose(proposer, ReportDigest(self._token, replica.id.encode(), self._own))

    def _propose(self, proposer: Proposer, command: Command) -> None:
        if not self._proposing:
            self._proposing = True
            proposer.add_first(PendingCommand(command, [], self))

    def applied(self, command: Command, result: Any, own_id: str, members: Collection[str]) -> None:
        """Handle an applied command of a comparison.

        Raises:
            FatalReplicationError: this replica differs from a majority.
        """
        if isinstance(command, Digest) and type(result) is bytes:
            self._token, self._own, self._reports, self._agreed = command.token, result, {}, False
        elif isinstance(command, ReportDigest) and result is True and command.token == self._token:
            self._reports[command.member.decode()] = command.digest
            self._judge(own_id, members)

    def _judge(self, own_id: str, members: Collection[str]) -> None:
        votes = Counter(digest for node_id, digest in self._reports.items() if node_id in members)
        if not votes:
            # The nodes that reported are no longer members.
            return
        digest, count = votes.most_common(1)[0]
        if 2 * count <= len(members):
            return
        self.compared_total += not self._agreed
        self._agreed = True
        odd = sorted(one for one, shown in self._reports.items() if shown != digest)
        if odd:
            log.error("replicas differ from the majority", nodes=odd)
        if own_id in members and self._own != digest:
            raise FatalReplicationError(
                f"the state of this replica differs from that of {count} of {len(members)} members; stop the node and run"
                " 'lmq repair', so that it copies everything from the others"
            )

    def completed(self, pending: PendingCommand, result: object) -> None:  # noqa: ARG002
        """Note that the command was applied (`Sink`)."""
        self._proposing = False

    def failed(self, pending: PendingCommand, error: object) -> None:  # noqa: ARG002
        """Note that the command may not have been applied; the next `compare_when_due` or comparison retries (`Sink`)."""
        self._proposing = False
