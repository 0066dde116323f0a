"""Replicas are compared while they run: one that differs from a majority would serve wrong answers, so it stops itself.

Now and then the leader has a digest taken at one place of the log. Each node makes its own and reports it through the log, so
that all see all reports in the same order, and need no message of their own. A node whose digest is not that of a majority of
the members stops, with the reason in its log; `lmq repair` has it copy everything from the others. A majority never stops.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection
from typing import Any

import structlog

from ...core import Op
from ...core.log import command_layout as layout
from ...core.log.commands import Command
from ...replication.base.errors import FatalReplicationError
from ...replication.replica import Replica
from ..commit.proposer import PendingCommand, Proposer

__all__ = ["DIGEST_EVERY", "ReplicaDigests"]

log = structlog.get_logger("lmq.replica")

DIGEST_EVERY = 60
"""After how many calls of `tend` the leader asks for the next one."""
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

    def tend(self, replica: Replica, proposer: Proposer) -> None:
        """To be called once a second: begin a comparison as the leader, and report this node's digest in the present one."""
        self._calls += 1
        if replica.is_leader() and self._calls % DIGEST_EVERY == 0:
            self._propose(proposer, layout.digest(os.urandom(TOKEN_BYTES)))
        if self._token and replica.id not in self._reports and replica.id in replica.status().members:
            self._propose(proposer, layout.report_digest(self._token, replica.id.encode(), self._own))

    def _propose(self, proposer: Proposer, command: Command) -> None:
        if not self._proposing:
            self._proposing = True
            proposer.add_first(PendingCommand(command, [], self))

    def applied(self, command: Command, result: Any, own_id: str, members: Collection[str]) -> None:
        """A command of a comparison was applied here.

        Raises:
            FatalReplicationError: this replica differs from a majority.
        """
        if command[layout.OP] == Op.DIGEST and type(result) is bytes:
            self._token, self._own, self._reports, self._agreed = command[layout.TOKEN], result, {}, False
        elif command[layout.OP] == Op.REPORT_DIGEST and result is True and command[layout.TOKEN] == self._token:
            self._reports[command[layout.MEMBER].decode()] = command[layout.DIGEST]
            self._judge(own_id, members)

    def _judge(self, own_id: str, members: Collection[str]) -> None:
        votes = Counter(digest for node_id, digest in self._reports.items() if node_id in members)
        if not votes:
            # Who reported is no member any more.
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

    def completed(self, group: PendingCommand, result: object) -> None:  # noqa: ARG002
        """It is in the log (`Sink`)."""
        self._proposing = False

    def failed(self, group: PendingCommand, error: object) -> None:  # noqa: ARG002
        """It may not be; the next call tries again, or the next comparison (`Sink`)."""
        self._proposing = False
