"""What transfers of leadership and requests of peers need of a member of the cluster."""

from __future__ import annotations

from typing import Protocol

from ..core import Machine
from .meta import NodeMeta
from .raft_core import RaftCore
from .transport import PeerTransport

__all__ = ["Member"]


class Member(Protocol):
    """The part of `Replica` that they use.

    Attributes:
        core, machine, transport, meta: as there.
    """

    core: RaftCore
    machine: Machine
    transport: PeerTransport
    meta: NodeMeta

    def wake(self) -> None:
        """Run a step in this turn of the event loop."""

    def failed(self, error: Exception) -> None:
        """Replication cannot go on."""

    def is_able(self, node_id: str) -> bool:
        """Whether a member can be reached from here and counts for the quorum."""
