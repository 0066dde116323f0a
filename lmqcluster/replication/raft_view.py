"""What the parts of the Raft core need of it and of its transport."""

from __future__ import annotations

from typing import Any, Protocol

from .membership import PeerNode

__all__ = ["Carrier", "Message", "RaftView"]

Message = dict[str, Any]


class RaftView(Protocol):
    """The state of consensus, as `RaftCore` knows it."""

    def term(self) -> int:
        """Current term."""

    def commit_index(self) -> int:
        """Highest index known to be committed."""

    def is_leader(self) -> bool:
        """Whether this node leads its term, as far as it knows."""


class Carrier(Protocol):
    """Brings messages to peers."""

    def send(self, node: PeerNode, message: Message) -> bool:
        """Queue a message; False if the peer is not connected."""
