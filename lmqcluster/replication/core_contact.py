"""When a Raft core has last heard of the others of its term, which decides whether it campaigns or steps down."""

from __future__ import annotations

import random

from pysyncobj import syncobj as library

from .core_state import FOLLOWER, CoreState
from .membership import PeerNode
from .settings import RaftSettings

__all__ = ["CoreContact"]


VOTES_TAKE = 2.0
"""How many times as long as a candidate's own vote took to save it waits for those of others, besides the election time."""
VOTES_WAIT_S_MAX = 10.0
"""Longest such time: a disk that hung once says nothing about the others."""


class CoreContact(CoreState):
    """The timers of elections, heartbeats and the leader's quorum, which are the library's private state."""

    # Set by `RaftCore`.
    _settings: RaftSettings
    _rng: random.Random
    # The library's private state.
    _SyncObj__newAppendEntriesTime: float
    _SyncObj__lastResponseTime: dict[PeerNode, float]
    _SyncObj__votedForNodeId: str | None

    def leader_link_lost(self, node: PeerNode) -> None:
        """The link to `node` broke: if it led, campaign soon instead of after the full election time."""
        if node != self._SyncObj__raftLeader or self.is_leader():
            return
        self._pre_vote.leader_lost()
        settings = self._settings
        soon = library.monotonicTime() + self._rng.uniform(settings.leader_lost_min_s, settings.leader_lost_max_s)
        self._SyncObj__raftElectionDeadline = min(self._SyncObj__raftElectionDeadline, soon)

    def beat_is_due(self) -> bool:
        """On the leader, whether it is time for a heartbeat; it is then the caller who sees to it."""
        now_s = library.monotonicTime()
        if not self.is_leader() or now_s < self._SyncObj__newAppendEntriesTime:
            return False
        self._SyncObj__newAppendEntriesTime = now_s + self._settings.heartbeat_s
        return True

    def heard_leader(self, node: PeerNode, term: int) -> bool:
        """Put off the next campaign if `node` is the leader that this node follows; returns whether it is."""
        if self.is_leader() or term != self.term() or node != self._SyncObj__raftLeader:
            return False
        self._put_off_campaign()
        return True

    def heard_follower(self, node: PeerNode, term: int) -> None:
        """On the leader, note that a member follows it."""
        if self.is_leader() and term == self.term() and node in self._SyncObj__otherNodes:
            self._SyncObj__lastResponseTime[node] = library.monotonicTime()

    def stood_still(self, seconds: float) -> None:
        """This member has not listened for so long: put off its campaign, or the end of its leadership, by as much.

        Somebody may have been heard since, so nothing is put off for longer than if all had been heard just now.
        """
        now_s, deadline_s = library.monotonicTime(), self._SyncObj__raftElectionDeadline
        latest_s = now_s + self._settings.election_max_s
        self._SyncObj__raftElectionDeadline = max(deadline_s, min(deadline_s + seconds, latest_s))
        self._pre_vote.stood_still(seconds)
        heard = self._SyncObj__lastResponseTime
        heard.update({node: min(heard_s + seconds, now_s) for node, heard_s in heard.items()})

    def _save_vote(self) -> None:
        """Make term and vote durable if they are new. On slow disks a candidate waits longer for the others, who save theirs."""
        journal, vote = self._journal, self._SyncObj__votedForNodeId
        if journal.getCurrentTerm() == self.term() and journal.getVotedForNodeId() == vote:
            return
        began_s = library.monotonicTime()
        journal.setCurrentTerm(self.term(), vote)
        saved_s = library.monotonicTime() - began_s
        self._SyncObj__raftElectionDeadline += saved_s + min(VOTES_TAKE * saved_s, VOTES_WAIT_S_MAX)

    def _follow(self, node: PeerNode, term: int) -> None:
        """Accept `node` as the leader of `term`, which is not older than ours; as the library does it."""
        if term > self.term():
            self._SyncObj__transferInProgress = False
        self._put_off_campaign()
        self._SyncObj__raftLeader = node
        if term > self.term():
            self._SyncObj__setCurrentTerm(term, None)
        self._SyncObj__setState(FOLLOWER)

    def _put_off_campaign(self) -> None:
        if not self._SyncObj__transferInProgress:
            timeout_s = self._SyncObj__generateRaftTimeout()
            self._SyncObj__raftElectionDeadline = library.monotonicTime() + timeout_s
        self._pre_vote.leader_heard()
