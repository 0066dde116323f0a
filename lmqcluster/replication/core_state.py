"""What is read of a Raft core: PySyncObj's private state and that of the parts around it, under names of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pysyncobj import SyncObj

from .catch_up import CatchUp, Recovery
from .histogram import Histogram
from .journal import Journal
from .log_sender import LogSender
from .member_history import MemberHistory
from .membership import PeerNode
from .pre_vote import PreVote
from .raft_view import Message
from .snapshot_intake import SnapshotIntake
from .status import Role
from .storage.snapshot_store import SnapshotInfo

__all__ = ["CANDIDATE", "FOLLOWER", "LEADER", "CoreState"]

FOLLOWER, CANDIDATE, LEADER = 0, 1, 2
_ROLES: Final[tuple[Role, ...]] = ("follower", "candidate", "leader")


class CoreState(SyncObj):
    """The questions that a Raft core answers. Nothing is changed here, and nothing of the library's overridden.

    Attributes:
        is_held_back: nothing is applied for the time being, because the state is not complete.
        is_throttled: nothing is applied for the time being, because memory fills faster than the disk takes it, or the next
            batch needs pages that are being read.
        needs_snapshot: the state cannot go on with the log, so that any snapshot that is newer is of use.
    """

    is_held_back = False
    is_throttled = False
    needs_snapshot = False

    # The library's private state.
    _SyncObj__raftState: int
    _SyncObj__raftLeader: PeerNode | None
    _SyncObj__raftElectionDeadline: float
    # Set by `RaftCore`.
    _self_id: str
    _journal: Journal
    _members: dict[str, str]
    _history: MemberHistory
    _sender: LogSender
    _intake: SnapshotIntake
    _pre_vote: PreVote
    _recovery: Recovery
    _catch_up: CatchUp

    def is_leader(self) -> bool:
        """Whether this node leads its term, as far as it knows."""
        return bool(self._SyncObj__raftState == LEADER)

    def leader_id(self) -> str | None:
        """Id of the last known leader of the current term."""
        leader = self._SyncObj__raftLeader
        return None if leader is None else str(leader.id)

    def role(self) -> Role:
        """What this node is in its term."""
        return _ROLES[self._SyncObj__raftState]

    def term(self) -> int:
        """Current term."""
        return int(self._SyncObj__raftCurrentTerm)

    def commit_index(self) -> int:
        """Highest index known to be committed."""
        return int(self._SyncObj__raftCommitIndex)

    def applied_index(self) -> int:
        """Highest index applied."""
        return int(self._SyncObj__raftLastApplied)

    def match_indexes(self) -> dict[str, int]:
        """On the leader, what each member is known to hold; empty on others."""
        if not self.is_leader():
            return {}
        matches = {str(node.id): int(match) for node, match in self._SyncObj__raftMatchIndex.items()}
        matches[self._self_id] = self._journal.last_index
        return {node_id: matches[node_id] for node_id in self._members if node_id in matches}

    def members(self) -> dict[str, str]:
        """Id to Raft address of all members, by the newest entries of the log."""
        return dict(self._members)

    def members_at(self, index: int) -> dict[str, str]:
        """The members by the entries up to `index`, which is in the log."""
        return self._history.at(index)

    def snapshot_floor(self) -> int:
        """Snapshots up to this index are of no use: the log has what follows from them."""
        return self.applied_index() if self.needs_snapshot else self.commit_index()

    def sender(self) -> LogSender:
        """What a leader knows of its followers."""
        return self._sender

    def applied_position(self) -> tuple[int, int, dict[str, str]]:
        """Index and term of the last applied entry, and the members by then."""
        index = self.applied_index()
        return index, self._journal.term_at(index), self.members_at(index)

    def was_removed(self) -> bool:
        """Whether the cluster has told this node that it is no member any more."""
        return self._pre_vote.refused_as_stranger and self._self_id in self._members

    def is_installing(self) -> bool:
        """Whether a snapshot of the leader is being loaded, or what this node's own snapshot lacks."""
        return self.is_loading() or self.is_held_back

    def is_loading(self) -> bool:
        """Whether a snapshot of the leader has come and is being loaded."""
        return self._intake.is_installing

    def received_blocks(self) -> int:
        """How many blocks of snapshots of leaders have come so far."""
        return self._intake.received_blocks

    def is_routine(self, node: PeerNode, message: Message) -> bool:
        """Whether a follower's answer changes nothing but what is known of that follower."""
        return (
            self.is_leader()
            and message["success"]
            and message["counts"]
            and message["term"] == self.term()
            and message["match"] <= self.commit_index()
            and self._sender.has_sent_all(node)
        )

    def snapshots_in_use(self) -> list[SnapshotInfo]:
        """Those that are being sent."""
        return self._sender.snapshots_in_use()

    def round_trips(self) -> Mapping[str, Histogram]:
        """By member, seconds from a message to it until its answer, its sync included."""
        return self._sender.round_trips

    def is_recovering(self) -> bool:
        """Whether the node still lacks entries that it may have acknowledged in a former life."""
        return self._recovery.is_recovering

    def has_caught_up(self) -> bool:
        """Whether the node has applied, since it started, what its leader had when they first met."""
        return self._catch_up.is_done

    def missing_entries(self) -> int:
        """How many entries the node lacks of what it knows its leader to have."""
        return max(self._catch_up.target or 0, self.commit_index()) - self.applied_index()

    def is_empty(self) -> bool:
        """Whether the log holds nothing but its first base."""
        return self._journal.last_index <= 1
