"""Signs of life of members whose cores rest because they wait for their disks.

Writing a large entry, or a slow disk, can take longer than an election time. Without these messages a sound leader would lose its
followers' trust, and they would lose its. They promise nothing and touch nothing but timers, so they may pass while a sync is
under way, when neither log nor term can change.
"""

from __future__ import annotations

from typing import Final

from pysyncobj import syncobj as library

from ..base.membership import PeerNode
from .view import Carrier, Message, RaftView

__all__ = ["SIGNS", "SyncHeartbeats"]

ANSWER_S: Final = 0.05
"""From one answer to appended entries or a snapshot to the next: half a heartbeat."""
SIGNS: Final = frozenset({"alive", "alive_reply"})
"""Messages that are signs of life and nothing else."""
_OF_LEADERS: Final = frozenset({"alive", "append_entries", "snapshot"})
_OF_FOLLOWERS: Final = frozenset({"alive_reply", "append_reply", "snapshot_reply"})


class SyncHeartbeats:
    """Those that one member sends and takes.

    Args:
        raft: the member's Raft core.
        carrier: brings messages to members.
    """

    def __init__(self, raft: RaftView, carrier: Carrier) -> None:
        self._raft = raft
        self._carrier = carrier
        self._answered_s = 0.0

    def send(self) -> None:
        """On a leader, tell its followers whenever a heartbeat is due."""
        if self._raft.beat_is_due():
            for node_id in sorted(self._raft.members()):
                self._carrier.send(PeerNode(node_id), {"type": "alive", "term": self._raft.term()})

    def take(self, node: PeerNode, message: Message) -> None:
        """A message shows that a member lives; a follower answers its leader. What else it says waits for the core."""
        kind = message["type"]
        if kind in _OF_FOLLOWERS:
            self._raft.heard_follower(node, message["term"])
        elif kind in _OF_LEADERS and self._is_time(kind) and self._raft.heard_leader(node, message["term"]):
            self._answered_s = library.monotonicTime()
            self._carrier.send(node, {"type": "alive_reply", "term": message["term"]})

    def _is_time(self, kind: str) -> bool:
        """Whether to answer: of the many entries that come under load, a few are signs enough."""
        return kind in SIGNS or bool(library.monotonicTime() - self._answered_s >= ANSWER_S)
