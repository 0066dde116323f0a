"""The interface of the Raft core, and of the transport, to other parts of a member."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ..base.membership import PeerNode

__all__ = ["Carrier", "Message", "RaftView"]

Message = dict[str, Any]


class RaftView(Protocol):
    """The state of consensus that the parts around `RaftCore` read, and the heartbeats that they pass to it."""

    def term(self) -> int:
        """Return the current term."""

    def commit_index(self) -> int:
        """Return the highest index known to be committed."""

    def applied_index(self) -> int:
        """Return the highest index applied."""

    def snapshot_floor(self) -> int:
        """Return the index that a snapshot must exceed to be of use: the log has the entries up to it."""

    def members(self) -> Mapping[str, str]:
        """Return id to Raft address of all members, by the newest entries of the log."""

    def is_leader(self) -> bool:
        """Return whether this node leads its term, as far as it knows."""

    def is_recovering(self) -> bool:
        """Return whether the node still lacks entries that it may have acknowledged before it restarted."""

    def beat_is_due(self) -> bool:
        """On the leader, return whether a heartbeat is due; if so, the caller sends it."""

    def heard_leader(self, node: PeerNode, term: int) -> bool:
        """Postpone the next campaign if `node` is the leader that this node follows; return whether `node` is that leader."""

    def heard_follower(self, node: PeerNode, term: int) -> None:
        """On the leader, record that a member follows it."""


class Carrier(Protocol):
    """Sends messages to peers."""

    def send(self, node: PeerNode, message: Message) -> bool:
        """Queue a message; False if the peer is not connected."""
