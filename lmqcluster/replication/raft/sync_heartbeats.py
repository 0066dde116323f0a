"""Heartbeats that a member sends while its Raft core is blocked on an fsync.

Writing a large entry, or a slow disk, can take longer than an election time. Without these messages a healthy leader
would lose its followers, and they would lose the leader. The messages promise nothing and affect only timers, so they
may be sent during a sync, when neither log nor term can change.
"""

from __future__ import annotations

from typing import Final

from pysyncobj import syncobj as library

from ..base.membership import PeerNode
from .view import Carrier, Message, RaftView

__all__ = ["SIGNS", "SyncHeartbeats"]

ANSWER_S: Final = 0.05
"""Shortest time between answers to appended entries or snapshots: half a heartbeat."""
SIGNS: Final = frozenset({"alive", "alive_reply"})
"""Types of messages that are heartbeats and nothing else."""
_OF_LEADERS: Final = frozenset({"alive", "append_entries", "snapshot"})
_OF_FOLLOWERS: Final = frozenset({"alive_reply", "append_reply", "snapshot_reply"})


class SyncHeartbeats:
    """The heartbeats that one member sends and receives.

    Args:
        raft: the member's Raft core.
        carrier: sends messages to members.
    """

    def __init__(self, raft: RaftView, carrier: Carrier) -> None:
        self._raft = raft
        self._carrier = carrier
        self._answered_s = 0.0

    def send(self) -> None:
        """On a leader, send heartbeats to its followers whenever they are due."""
        if self._raft.beat_is_due():
            for node_id in sorted(self._raft.members()):
                self._carrier.send(PeerNode(node_id), {"type": "alive", "term": self._raft.term()})

    def take(self, node: PeerNode, message: Message) -> None:
        """Count a message as a heartbeat; a follower answers its leader. The core handles the rest later."""
        kind = message["type"]
        if kind in _OF_FOLLOWERS:
            self._raft.heard_follower(node, message["term"])
        elif kind in _OF_LEADERS and self._is_time(kind) and self._raft.heard_leader(node, message["term"]):
            self._answered_s = library.monotonicTime()
            self._carrier.send(node, {"type": "alive_reply", "term": message["term"]})

    def _is_time(self, kind: str) -> bool:
        """Return whether to answer: under load, answers to a few of the many entries suffice as heartbeats."""
        return kind in SIGNS or bool(library.monotonicTime() - self._answered_s >= ANSWER_S)
