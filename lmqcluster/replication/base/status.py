"""The status of a member and its view of the cluster at one moment, as one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from .node_info import NodeInfo

__all__ = ["ReplicaStatus", "Role"]

Role = Literal["leader", "candidate", "follower"]


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """The status of a member.

    Attributes:
        id: the member itself.
        address: where peers can dial it.
        role: its role in its term.
        leader: the last known leader of the term.
        term: its term.
        commit_index, applied_index: the highest index that it knows to be committed, and that it has applied.
        missing_entries: how many of the entries that its leader is known to have it has not applied.
        has_caught_up: it has applied, since it started, the entries that its leader had at their first contact.
        members: id to Raft address of all members, by the newest entries of the log.
        match_indexes: on the leader, the highest index that each member is known to hold; empty on others.
        connected: the peers that it can send to.
        about: the descriptions that the peers and this member send of themselves.
        has_left: it has left its cluster and has joined none since.
        was_removed: a leader has answered that it is no longer a member.
        is_installing: it is loading a snapshot, or waits for pages that it lacks.
        is_recovering: it lacks entries that it may have acknowledged, so it does not vote.
        durability: what an acknowledged write survives, see `NodeStorage`.
        snapshot_index: the last entry of the newest snapshot, 0 if there is none.
        log_entries, log_bytes: the size of the log.
        machine_version: the version of the replicated machine that is in force.
        is_founded: the first leader of the cluster has founded it.
        obstacle: why the node cannot find the founding members, empty if unknown; None if it has found them.
    """

    id: str
    address: str
    role: Role
    leader: str | None
    term: int
    commit_index: int
    applied_index: int
    missing_entries: int
    has_caught_up: bool
    members: Mapping[str, str]
    match_indexes: Mapping[str, int]
    connected: frozenset[str]
    about: Mapping[str, NodeInfo]
    has_left: bool
    was_removed: bool
    is_installing: bool
    is_recovering: bool
    durability: str
    snapshot_index: int
    log_entries: int
    log_bytes: int
    machine_version: int
    is_founded: bool
    obstacle: str | None = None

    @property
    def is_leader(self) -> bool:
        """Return whether the member leads, as far as it knows."""
        return self.role == "leader"

    @property
    def has_leader(self) -> bool:
        """Return whether a leader is known and can be reached."""
        return self.leader is not None and self.reaches(self.leader)

    def reaches(self, member: str) -> bool:
        """Return whether a member is this one or connected to it."""
        return member == self.id or member in self.connected

    def has_forgotten(self, member: str) -> bool:
        """Return whether a member reports that it may have lost entries that it acknowledged."""
        if member == self.id:
            return self.is_recovering
        about = self.about.get(member)
        return about is not None and about.recovering

    def is_able(self, member: str) -> bool:
        """Return whether a member can be reached from this one and counts for the quorum."""
        return self.reaches(member) and member in self.about and not self.has_forgotten(member)

    def name_of(self, member: str) -> str:
        """Return the name of a member for people; its id if it has not announced one."""
        about = self.about.get(member)
        return (about.name if about else "") or member
