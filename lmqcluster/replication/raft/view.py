"""The view that other parts of a member have of its Raft core, and of the transport."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ..base.membership import PeerNode

__all__ = ["Carrier", "Message", "RaftView"]

Message = dict[str, Any]


class RaftView(Protocol):
    """What the parts around `RaftCore` read of the state of consensus, and the heartbeats that they pass to it."""

    def term(self) -> int:
        """Current term."""

    def commit_index(self) -> int:
        """Highest index known to be committed."""

    def applied_index(self) -> int:
        """Highest index applied."""

    def snapshot_floor(self) -> int:
        """Snapshots up to this index are of no use: the log has what follows from them."""

    def members(self) -> Mapping[str, str]:
        """Id to Raft address of all members, by the newest entries of the log."""

    def is_leader(self) -> bool:
        """Whether this node leads its term, as far as it knows."""

    def is_recovering(self) -> bool:
        """Whether the node still lacks entries that it may have acknowledged in a former life."""

    def beat_is_due(self) -> bool:
        """On the leader, whether it is time for a heartbeat; the caller sends it."""

    def heard_leader(self, node: PeerNode, term: int) -> bool:
        """Put off the next campaign if `node` is the leader that this node follows; returns whether it is."""

    def heard_follower(self, node: PeerNode, term: int) -> None:
        """On the leader, note that a member follows it."""


class Carrier(Protocol):
    """Brings messages to peers."""

    def send(self, node: PeerNode, message: Message) -> bool:
        """Queue a message; False if the peer is not connected."""
