"""PySyncObj's `SyncObj` with its unsafe parts replaced: every override of the library's internals is in this file.

Every method named ``_SyncObj__...`` overrides a private one of PySyncObj 0.3.17 (pinned). D1 to D33 are the defects
that the overrides fix; ``docs/pysyncobj.md`` explains them. Elections, vote counting and the commit rule are the
library's.

Parts with their own state have their own files: `log_sender` and `snapshot_intake` (the leader's and the follower's
side of replication), `learners`, `catch_up`, `pre_vote_exchange`, `member_history`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping
from queue import Empty
from types import SimpleNamespace
from typing import Any, Final

from pysyncobj import SyncObj
from pysyncobj import syncobj as library
from pysyncobj.config import FAIL_REASON
from pysyncobj.transport import Transport

from ...wire.parts import LARGE_BYTES
from ..base.errors import FatalReplicationError
from ..base.histogram import Histogram
from ..base.membership import MEMBERSHIP, NO_OP, REGULAR, PeerNode, decode_change, encode_change, is_change
from ..base.settings import RaftSettings
from ..base.status import Role
from ..storage.journal.journal import Entry, Journal
from ..storage.snapshots.snapshot_store import SnapshotInfo
from .catch_up import CatchUp, Recovery
from .learners import Learners
from .log_sender import LogSender
from .member_history import MemberHistory
from .pre_vote import PreVote
from .pre_vote_exchange import PreVoteExchange
from .progress import Progress, State
from .snapshot_intake import SnapshotIntake
from .snapshot_port import SnapshotPort
from .view import Message

__all__ = ["CANDIDATE", "FOLLOWER", "LEADER", "RaftCore"]

FOLLOWER, CANDIDATE, LEADER = 0, 1, 2
_ROLES: Final[tuple[Role, ...]] = ("follower", "candidate", "leader")
VOTES_TAKE = 2.0
"""Factor: a candidate waits for votes this many times as long as saving its own vote took, plus the election time."""
VOTES_WAIT_S_MAX = 10.0
"""Longest such time: one stall of this node's disk says nothing about the other disks."""


class RaftCore(SyncObj):
    """Consensus state of one member. Not thread-safe: one thread makes all calls.

    Args:
        self_id: this node's id.
        members: id to Raft address of the members at the base of the log; without this node it is not (yet) a member.
        transport: carries message dictionaries; its callbacks are set here.
        journal: the log.
        apply: called with (index, command without its type byte) for each committed command, in order, until it returns
            that it was applied; must not raise for any content of a command.
        snapshots: takes, keeps, sends and installs snapshots. If there is a latest snapshot, the state is that of this
            snapshot and its index is the base of the log.
        durable: the log survives a restart, so an entry may leave it only if a snapshot holds it.
        recovering: the node has lost entries that it may have acknowledged (restart without a durable log). Until it
            holds the leader's log as of their first contact it neither votes nor campaigns.
        forgetful: the node may have lost its term and vote too. A member that lost its disk looks like a new one. Its
            acknowledgements do not count until the leader has committed that log without it.

    Attributes:
        link_changed: called with (node, whether it is connected) after the core has processed the change.
        begins_to_lead: called when this node is elected, before it takes any proposal.
        is_held_back: nothing is applied for now, because the state is incomplete.
        is_throttled: nothing is applied for now, because memory grows faster than the disk can write, or because the
            next batch needs pages that are being read.
        needs_snapshot: the state cannot continue with the log, so any newer snapshot is useful.
        applying_s: time in seconds that entries have taken to apply since the start.
    """

    # The library's private state.
    _SyncObj__raftState: int
    _SyncObj__raftLeader: PeerNode | None
    _SyncObj__raftElectionDeadline: float
    _SyncObj__newAppendEntriesTime: float
    _SyncObj__lastResponseTime: dict[PeerNode, float]
    _SyncObj__votedForNodeId: str | None

    def __init__(
        self,
        self_id: str,
        members: Mapping[str, str],
        transport: Transport,
        journal: Journal,
        *,
        apply: Callable[[int, bytes | memoryview], bool],
        snapshots: SnapshotPort,
        settings: RaftSettings,
        rng: random.Random,
        durable: bool = False,
        recovering: bool = False,
        forgetful: bool = False,
    ) -> None:
        # The library's constructor looks at every attribute and calls some overrides, so ours come first.
        self._settings = settings
        self._rng = rng
        self._apply = apply
        self._snapshots = snapshots
        self._durable = durable
        self._pre_vote = PreVote(settings, rng)
        self._recovery = Recovery(recovering=recovering, forgetful=forgetful)
        self._catch_up = CatchUp()
        self._history = MemberHistory(journal, members)
        self._members = dict(members)
        self._handing_over = self._is_taking = False
        self.is_held_back = self.is_throttled = self.needs_snapshot = False
        self._proof_from, self.applying_s = 0, 0.0
        self.link_changed: Callable[[PeerNode, bool], None] = lambda _node, _is_connected: None
        self.begins_to_lead: Callable[[], None] = lambda: None
        self._synced_last = journal.last_index
        # The library's constructor asks for the end of the log.
        self._journal = journal
        others = [PeerNode(node_id, address) for node_id, address in members.items() if node_id != self_id]
        super().__init__(PeerNode(self_id), others, settings.to_library(), nodeClass=PeerNode, transport=transport)
        self._self_id = self_id
        self._transport = transport
        # Sockets are ours; the library has nothing to poll.
        self._poller = SimpleNamespace(poll=lambda _timeout: None)
        self._SyncObj__raftLog = journal
        self._SyncObj__raftCurrentTerm = max(journal.getCurrentTerm(), journal.term_at(journal.last_index))
        self._SyncObj__votedForNodeId = journal.getVotedForNodeId()
        self._SyncObj__raftCommitIndex = journal.first_index
        self._SyncObj__raftLastApplied = journal.first_index
        self._SyncObj__needLoadDumpFile = False
        self._sender = LogSender(self, transport, journal, snapshots, settings, self._SyncObj__connectedNodes)
        self._intake = SnapshotIntake(self, transport, snapshots, self._take_base)
        self._pre_votes = PreVoteExchange(self, transport, journal, self._pre_vote)
        self._learners = Learners(
            transport,
            self._sender,
            self._SyncObj__otherNodes,
            self._SyncObj__raftMatchIndex,
            settings.learner_patience_s,
        )
        self.members_from_log()
        if self._members.keys() == {self_id}:
            # No other member can know more.
            self._recovery.end()

    def doTick(self, timeToWait: float = 0.0) -> None:  # noqa: N802, N803 - the library's names
        """Run one tick. The journal is synced before the next one, so its present entries count as held here then."""
        super().doTick(timeToWait)
        if not self.is_leader():
            self._learners.drop_all()
        self._catch_up.applied(self.applied_index())
        self._journal.applied_last = self.applied_index()
        self._synced_last = self._journal.last_index

    # --- state ----------------------------------------------------------------------------------------------------

    def is_leader(self) -> bool:
        """Return whether this node leads its term, as far as it knows."""
        return bool(self._SyncObj__raftState == LEADER)

    def leader_id(self) -> str | None:
        """Return the id of the last known leader of the current term."""
        leader = self._SyncObj__raftLeader
        return None if leader is None else str(leader.id)

    def role(self) -> Role:
        """Return the role of this node in its term."""
        return _ROLES[self._SyncObj__raftState]

    def term(self) -> int:
        """Return the current term."""
        return int(self._SyncObj__raftCurrentTerm)

    def commit_index(self) -> int:
        """Return the highest index known to be committed."""
        return int(self._SyncObj__raftCommitIndex)

    def applied_index(self) -> int:
        """Return the highest index applied."""
        return int(self._SyncObj__raftLastApplied)

    def match_indexes(self) -> dict[str, int]:
        """On the leader, return the highest index that each member is known to hold; empty on others."""
        if not self.is_leader():
            return {}
        matches = {str(node.id): int(match) for node, match in self._SyncObj__raftMatchIndex.items()}
        matches[self._self_id] = self._journal.last_index
        return {node_id: matches[node_id] for node_id in self._members if node_id in matches}

    def members(self) -> dict[str, str]:
        """Return id to Raft address of all members, by the newest entries of the log."""
        return dict(self._members)

    def members_at(self, index: int) -> dict[str, str]:
        """Return the members by the entries up to `index`, which is in the log."""
        return self._history.at(index)

    def snapshot_floor(self) -> int:
        """Return the index that a snapshot must exceed to be of use: the log has the entries up to it."""
        return self.applied_index() if self.needs_snapshot else self.commit_index()

    def sender(self) -> LogSender:
        """Return the leader's part of replication."""
        return self._sender

    def applied_position(self) -> tuple[int, int, dict[str, str]]:
        """Return index and term of the last applied entry, and the members at that index."""
        index = self.applied_index()
        return index, self._journal.term_at(index), self.members_at(index)

    def was_removed(self) -> bool:
        """Return whether a leader has answered that this node is no longer a member."""
        return self._pre_vote.refused_as_stranger and self._self_id in self._members

    def is_installing(self) -> bool:
        """Return whether a leader's snapshot is being loaded, or the missing parts of this node's own snapshot."""
        return self.is_loading() or self.is_held_back

    def is_loading(self) -> bool:
        """Return whether a snapshot of the leader has arrived and is being loaded."""
        return self._intake.is_installing

    def received_blocks(self) -> int:
        """Return how many blocks of leaders' snapshots have arrived so far."""
        return self._intake.received_blocks

    def is_routine(self, node: PeerNode, message: Message) -> bool:
        """Return whether a follower's answer changes only the leader's record of that follower."""
        return (
            self.is_leader()
            and message["success"]
            and message["counts"]
            and message["term"] == self.term()
            and message["match"] <= self.commit_index()
            and self._sender.has_sent_all(node)
        )

    def snapshots_in_use(self) -> list[SnapshotInfo]:
        """Return the snapshots that are being sent."""
        return self._sender.snapshots_in_use()

    def round_trips(self) -> Mapping[str, Histogram]:
        """Return by member the seconds from a message to it until its answer, its sync included."""
        return self._sender.round_trips

    def is_recovering(self) -> bool:
        """Return whether the node still lacks entries that it may have acknowledged before it restarted."""
        return self._recovery.is_recovering

    def has_caught_up(self) -> bool:
        """Return whether the node has applied, since its start, the entries its leader had at their first contact."""
        return self._catch_up.is_done

    def missing_entries(self) -> int:
        """Return how many of the entries that its leader is known to have the node has not applied."""
        return max(self._catch_up.target or 0, self.commit_index()) - self.applied_index()

    def is_empty(self) -> bool:
        """Return whether the log holds only its first base."""
        return self._journal.last_index <= 1

    # --- calls of the adapter -------------------------------------------------------------------------------------

    def propose(self, *parts: bytes) -> bool:
        """On the leader, append a command, given in parts, with the next tick.

        Returns:
            False if this node does not lead or is handing over.
        """
        return self.propose_command(b"".join((bytes((REGULAR,)), *parts)))

    def propose_command(self, command: bytes) -> bool:
        """Propose a command that begins with its kind, without copying it; see `propose`."""
        if self._handing_over or not self.is_leader():
            return False
        self._applyCommand(command, None)
        return True

    def propose_change(self, verb: str, node_id: str, address: str, done: Callable[[bool], None]) -> None:
        """Add (``add``) or remove (``rem``) a member; `done` gets true once committed, false if refused or lost."""
        if not self.is_leader() or (verb == "rem" and node_id == self._self_id):
            done(False)
            return

        def answered(_result: object, reason: int) -> None:
            # D16: the library would apply the entry again after any other exception.
            try:
                done(reason == FAIL_REASON.SUCCESS)
            except Exception as exc:
                raise FatalReplicationError(f"a membership callback failed: {exc}") from exc

        self._applyCommand(encode_change(verb, node_id, address), answered, MEMBERSHIP)

    def learn(self, node_id: str, address: str) -> int | None:
        """On the leader, replicate to a node that is not a member yet and counts for nothing.

        The leader drops a learner when its leadership ends or the calls for this learner cease, so repeat the call.
        Returns how many entries the learner lacks, None as long as that is unknown.
        """
        node = PeerNode(node_id, address)
        if self.is_leader():
            self._learners.ask(node)
        match = self._learners.match_index(node)
        return self._journal.last_index - match if match else None

    def flush(self, hurried: Collection[PeerNode] | None = None) -> bool:
        """On the leader, send the entries that followers lack; see `LogSender.flush`."""
        return self.is_leader() and self._sender.flush(self._receivers(), hurried)

    def compact(self) -> None:
        """D13: drop applied entries beyond the size limits; of a durable log only those in the latest snapshot."""
        journal = self._journal
        if journal.size_bytes <= self._settings.log_bytes_soft:
            return
        limit = self.applied_index()
        if self._durable:
            latest = self._snapshots.latest()
            limit = min(limit, 0 if latest is None else latest.index)
        limit = min([limit, *self._sender.kept_indexes(self._receivers(), self._SyncObj__raftMatchIndex)])
        if limit > journal.first_index:
            self._history.drop_before(limit)

    def hold_proposals(self, held: bool) -> None:
        """Refuse proposals, so that a follower can catch up with the whole log and take over; or accept them again."""
        self._handing_over = held

    def transfer_leadership(self, node_id: str | None = None) -> bool:
        """Ask the given or an up-to-date follower to take over; False if there is none or this node does not lead."""
        accepted: list[bool] = []
        target = None if node_id is None else PeerNode(node_id)
        self.transferLeadership(target, lambda _result, reason: accepted.append(reason == FAIL_REASON.SUCCESS))
        return accepted == [True]

    def acknowledge_blocks(self) -> None:
        """Acknowledge blocks of the incoming snapshot after the disk has caught up with them."""
        self._intake.acknowledge_blocks()

    def end_recovery(self) -> None:
        """Take part fully; for when no member knows more than this one."""
        self._recovery.end()

    # --- elections, heartbeats and the leader's quorum ------------------------------------------------------------

    def leader_link_lost(self, node: PeerNode) -> None:
        """Campaign soon instead of after the full election time if the broken link to `node` was that to the leader."""
        if node != self._SyncObj__raftLeader or self.is_leader():
            return
        self._pre_vote.leader_lost()
        settings = self._settings
        soon = library.monotonicTime() + self._rng.uniform(settings.leader_lost_min_s, settings.leader_lost_max_s)
        self._SyncObj__raftElectionDeadline = min(self._SyncObj__raftElectionDeadline, soon)

    def beat_is_due(self) -> bool:
        """On the leader, return whether a heartbeat is due; if so, the caller sends it."""
        now_s = library.monotonicTime()
        if not self.is_leader() or now_s < self._SyncObj__newAppendEntriesTime:
            return False
        self._SyncObj__newAppendEntriesTime = now_s + self._settings.heartbeat_s
        return True

    def heard_leader(self, node: PeerNode, term: int) -> bool:
        """Postpone the next campaign if `node` is the leader that this node follows; return whether it is."""
        if self.is_leader() or term != self.term() or node != self._SyncObj__raftLeader:
            return False
        self._put_off_campaign()
        return True

    def heard_follower(self, node: PeerNode, term: int) -> None:
        """On the leader, record that a member follows it."""
        if self.is_leader() and term == self.term() and node in self._SyncObj__otherNodes:
            self._SyncObj__lastResponseTime[node] = library.monotonicTime()

    def on_event_loop_stall(self, seconds: float) -> None:
        """Postpone the campaign, or the end of leadership, by the length of a stall of this member.

        Messages may have arrived since, so no deadline is extended further than if all members had been heard just
        now.
        """
        now_s, deadline_s = library.monotonicTime(), self._SyncObj__raftElectionDeadline
        latest_s = now_s + self._settings.election_max_s
        self._SyncObj__raftElectionDeadline = max(deadline_s, min(deadline_s + seconds, latest_s))
        self._pre_vote.on_event_loop_stall(seconds)
        heard = self._SyncObj__lastResponseTime
        heard.update({node: min(heard_s + seconds, now_s) for node, heard_s in heard.items()})

    def _save_vote(self) -> None:
        """Make term and vote durable if they are new; on slow disks, wait longer for the votes that others save."""
        journal, vote = self._journal, self._SyncObj__votedForNodeId
        if journal.getCurrentTerm() == self.term() and journal.getVotedForNodeId() == vote:
            return
        began_s = library.monotonicTime()
        journal.setCurrentTerm(self.term(), vote)
        saved_s = library.monotonicTime() - began_s
        self._SyncObj__raftElectionDeadline += saved_s + min(VOTES_TAKE * saved_s, VOTES_WAIT_S_MAX)

    def _follow(self, node: PeerNode, term: int) -> None:
        """Accept `node` as the leader of `term`, which is not older than ours, in the same way as the library."""
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

    # --- messages -------------------------------------------------------------------------------------------------

    def receive(self, node: PeerNode, message: Message) -> None:
        """Process a message from a peer."""
        self._SyncObj__onMessageReceived(node, message)

    def _SyncObj__onMessageReceived(self, node: PeerNode, message: Message) -> None:  # noqa: N802
        self._is_taking = True
        self._take(node, message)
        self._is_taking = False
        self._save_vote()

    def _take(self, node: PeerNode, message: Message) -> None:
        kind = message["type"]
        if kind == "append_entries":
            self._on_append(node, message)
        elif kind == "append_reply":
            self._on_append_reply(node, message)
        elif kind == "snapshot":
            self._on_snapshot(node, message)
        elif kind == "snapshot_reply":
            self._on_snapshot_reply(node, message)
        elif kind == "request_vote":
            # A candidate may be a member that this node does not know yet, so any node is considered.
            if not self._recovery.is_recovering:
                SyncObj._SyncObj__onMessageReceived(self, node, message)
        elif kind == "pre_vote":
            self._pre_votes.answer(node, message)
        elif kind == "pre_vote_reply":
            if message["term"] > self.term():
                self._meet_term(message["term"])
            else:
                self._pre_votes.answered(node, message, is_voter=node in self._SyncObj__otherNodes)
        elif kind in ("response_vote", "timeout_now"):
            SyncObj._SyncObj__onMessageReceived(self, node, message)
        else:
            raise ValueError(f"unknown message type {kind!r} from {node.id}")

    def _on_append(self, node: PeerNode, message: Message) -> None:
        """D1, D2, D3, D14, D22: Raft's AppendEntries as in the paper (figure 2, section 5.3)."""
        term, sequence = message["term"], message["seq"]
        if term < self.term():
            self._reply_append(node, sequence, success=False, match=0, hint=0)
            return
        self._follow(node, term)
        self._meet_leader(node, message)
        commit = self._SyncObj__leaderCommitIndex = message["commit_index"]
        if self._intake.is_installing:
            # The log is about to be replaced; this answer only shows the leader that the node is alive.
            self._reply_append(node, sequence, success=False, match=0, hint=1)
            return
        journal = self._journal
        previous, previous_term = message["prevLogIdx"], message["prevLogTerm"]
        entries = message["entries"]
        if previous > journal.last_index:
            self._reply_append(node, sequence, success=False, match=0, hint=journal.last_index + 1)
            return
        if previous < journal.first_index:
            # Everything up to the base is committed, so it matches.
            entries = [entry for entry in entries if entry[1] > journal.first_index]
            verified = max(previous + len(message["entries"]), 0)
            if entries:
                verified = entries[-1][1]
        elif journal.term_at(previous) != previous_term:
            self._refuse_mismatch(node, sequence, previous)
            return
        else:
            verified = previous + len(entries)
        self._store(entries)
        self._SyncObj__raftCommitIndex = max(self.commit_index(), min(commit, verified))
        self._reply_append(node, sequence, success=True, match=verified, hint=0)
        self._recovery.holds(verified, min(commit, verified))

    def _meet_leader(self, node: PeerNode, message: Message) -> None:
        """Record contact with the leader of the current term; it may be the first."""
        self._catch_up.meet(node, message["term"], message["last"])
        self._recovery.meet(node, message["term"], message["last"])

    def _refuse_mismatch(self, node: PeerNode, sequence: int, previous: int) -> None:
        if previous <= self.commit_index():
            raise FatalReplicationError(
                f"leader {node.id} has another entry at index {previous}, which is committed here"
                f" (commit index {self.commit_index()}); this node's log is damaged"
            )
        journal = self._journal
        hint = journal.first_index_of_term(journal.term_at(previous), previous)
        self._reply_append(node, sequence, success=False, match=0, hint=max(hint, self.commit_index() + 1))

    def _store(self, entries: Iterable[Any]) -> None:
        """D1: append new entries; truncate only at a real conflict."""
        journal = self._journal
        changed = False
        for command, index, term in entries:
            if index <= journal.last_index:
                if journal.term_at(index) == term:
                    continue
                if index <= self.commit_index():
                    raise FatalReplicationError(f"an entry conflicts with the committed one at index {index}")
                journal.truncate_from(index)
                self._synced_last = min(self._synced_last, index - 1)
                changed = True
            journal.add(command, index, term)
            changed = changed or is_change(command)
        if changed:
            self.members_from_log()

    def _reply_append(self, node: PeerNode, sequence: int, *, success: bool, match: int, hint: int) -> None:
        self._transport.send(
            node,
            {
                "type": "append_reply",
                "term": self.term(),
                "seq": sequence,
                "success": success,
                "match": match,
                "hint": hint,
                "counts": not self._recovery.is_forgetful,
            },
        )

    def _heard(self, node: PeerNode, message: Message) -> Progress | None:
        """D3, D22: record a reply and return the node's progress, or None if the reply is void.

        A reply is void if it is of another term (a newer one ends our leadership), or if it answers a message of an
        earlier connection: the peer may have restarted since and lost its log.
        """
        term: int = message["term"]
        if term > self.term():
            self._meet_term(term)
            return None
        if not self.is_leader() or term != self.term():
            return None
        if node not in self._SyncObj__otherNodes and node not in self._learners.nodes:
            return None
        progress = self._sender.progress_of(node)
        if message["seq"] < progress.first_sequence:
            return None
        now_s = self._SyncObj__lastResponseTime[node] = library.monotonicTime()
        self._sender.time_answer(node, progress, message["seq"], now_s)
        return progress

    def _meet_term(self, term: int) -> None:
        """Enter a newer term whose leader is not known yet."""
        self._SyncObj__setCurrentTerm(term, None)
        self._SyncObj__setState(FOLLOWER)
        self._SyncObj__raftLeader = None

    def _on_append_reply(self, node: PeerNode, message: Message) -> None:
        progress = self._heard(node, message)
        if progress is None:
            return
        if message["success"]:
            match = min(message["match"], self._journal.last_index)
            if message["counts"] and match > self._SyncObj__raftMatchIndex.get(node, 0):
                self._SyncObj__raftMatchIndex[node] = match
            if not message["counts"]:
                self._prove_leadership()
            if progress.state is not State.SNAPSHOT:
                progress.matched(match, message["seq"])
        elif message["seq"] >= progress.reset_sequence and progress.state is not State.SNAPSHOT:
            # D14: back up by whole terms as hinted, and ignore replies to earlier messages.
            match = self._SyncObj__raftMatchIndex.get(node, 0)
            hint = min(message["hint"], progress.next_index - 1, self._journal.last_index + 1)
            if message["hint"] <= 1:
                # The node has no part in the cluster's founding, so it needs a snapshot, which brings the list of
                # members.
                hint = min(hint, self._journal.first_index)
            progress.become_probe(max(hint, match + 1, 1))

    def _prove_leadership(self) -> None:
        """Commit a new entry, for a member that has lost its disk (see `Recovery.meet`), unless one is pending."""
        last = self._journal.last_index
        if self.commit_index() == last != self._proof_from:
            self._proof_from = last
            self._applyCommand(b"", None, NO_OP)

    # --- sending --------------------------------------------------------------------------------------------------

    def _receivers(self) -> list[PeerNode]:
        """Return the nodes that get the log, followers and learners, in a fixed order."""
        nodes = self._SyncObj__otherNodes
        if self._learners.nodes:
            nodes = nodes | self._learners.nodes
        return sorted(nodes, key=lambda node: str(node.id))

    def _SyncObj__sendAppendEntries(self) -> None:  # noqa: N802
        """D14, D28: called by the library's heartbeat timer."""
        self._SyncObj__newAppendEntriesTime = library.monotonicTime() + self._settings.heartbeat_s
        self._learners.drop_expired()
        for node in self._receivers():
            self._sender.replicate(node, heartbeat=True)

    def _SyncObj__onNodeConnected(self, node: PeerNode) -> None:  # noqa: N802
        """D14: search for the match again: messages of the old link are lost, and a restarted peer may lack its log."""
        SyncObj._SyncObj__onNodeConnected(self, node)
        self._sender.forget(node)
        if self.is_leader() and node in self._SyncObj__otherNodes:
            self._SyncObj__raftMatchIndex[node] = 0
        self.link_changed(node, True)

    def _SyncObj__onNodeDisconnected(self, node: PeerNode) -> None:  # noqa: N802
        """Forget a disconnected node, so that a snapshot in flight to it does not keep the log from being truncated."""
        SyncObj._SyncObj__onNodeDisconnected(self, node)
        self._sender.forget(node)
        self.link_changed(node, False)

    def _SyncObj__onBecomeLeader(self) -> None:  # noqa: N802
        """D3: discard the progress of followers in earlier terms. D24: the pending change is the one in the log."""
        changes = self._journal.changes
        self._SyncObj__changeClusterIDx = changes[-1][0] if changes else None
        self._learners.clear()
        self._sender.begin_term(self._receivers())
        self.begins_to_lead()
        SyncObj._SyncObj__onBecomeLeader(self)
        self._catch_up.lead(self._journal.last_index)

    def _on_snapshot_reply(self, node: PeerNode, message: Message) -> None:
        progress = self._heard(node, message)
        index = None if progress is None else self._sender.snapshot_answered(progress, message)
        if index is not None and index > self._SyncObj__raftMatchIndex.get(node, 0):
            self._SyncObj__raftMatchIndex[node] = index

    def _on_snapshot(self, node: PeerNode, message: Message) -> None:
        """D2, D4, D5: collect, verify, install, and only then acknowledge; commit nothing beyond the snapshot."""
        if message["term"] < self.term():
            self._intake.reply(node, message)
            return
        self._follow(node, message["term"])
        self._meet_leader(node, message)
        self._intake.take(node, message)

    def _take_base(self, info: SnapshotInfo) -> None:
        """D2, D5: replace the log up to an installed snapshot; keep later entries if they continue from it."""
        journal = self._journal
        if journal.first_index <= info.index <= journal.last_index and journal.term_at(info.index) == info.term:
            journal.drop_before(info.index)
        else:
            journal.reset(info.index, info.term)
        self.members_from_log(info.members)
        self._SyncObj__raftLastApplied = info.index
        self._SyncObj__raftCommitIndex = max(self.commit_index(), info.index)
        # Everything in a snapshot is committed.
        self._recovery.holds(info.index, info.index)

    # --- membership -----------------------------------------------------------------------------------------------

    def _SyncObj__parseChangeClusterRequest(self, command: bytes) -> list[Any] | None:  # noqa: N802
        """D28: membership entries are MessagePack, not pickles."""
        return decode_change(command)

    def _SyncObj__changeCluster(self, request: list[Any]) -> bool:  # noqa: N802
        """D24: record the index of the pending change, so that a second one is refused until it is applied."""
        accepted = bool(SyncObj._SyncObj__changeCluster(self, request))
        if accepted:
            self._SyncObj__changeClusterIDx = self._journal.last_index + 1
        return accepted

    def _SyncObj__doChangeCluster(self, request: list[Any], reverse: bool = False) -> bool:  # noqa: ARG002, N802
        """D25: on the leader the new list takes effect with the entry; everywhere else it is derived from the log."""
        verb, node_id, node = request[0], request[1], request[2]
        members = dict(self._members)
        if verb == "add":
            members[node_id] = node.address
        elif verb == "rem" and node_id != self._self_id:
            members.pop(node_id, None)
        if members == self._members:
            return False
        self._learners.promote(node)
        self._set_members(members)
        return True

    def members_from_log(self, base: Mapping[str, str] | None = None) -> None:
        """Set the members, id to Raft address, from the log; `base`, if given, replaces those at the log's base."""
        if base is not None:
            self._history.begin(base)
        self._set_members(self.members_at(self._journal.last_index))

    def _set_members(self, members: dict[str, str]) -> None:
        moved = {node_id for node_id, address in members.items() if self._members.get(node_id, address) != address}
        self._members = members
        wanted = {PeerNode(node_id, address) for node_id, address in members.items() if node_id != self._self_id}
        present = self._SyncObj__otherNodes
        for node in sorted(present - wanted, key=lambda n: str(n.id)):
            present.discard(node)
            self._sender.forget(node)
            self._SyncObj__raftMatchIndex.pop(node, None)
            self._SyncObj__raftNextIndex.pop(node, None)
            self._transport.dropNode(node)
        for node in sorted(wanted, key=lambda n: str(n.id)):
            if node.id in moved and node in present:
                self._transport.addNode(node)
        for node in sorted(wanted - present, key=lambda n: str(n.id)):
            present.add(node)
            self._SyncObj__raftMatchIndex[node] = 0
            self._SyncObj__raftNextIndex[node] = self._journal.last_index + 1
            self._SyncObj__lastResponseTime[node] = library.monotonicTime()
            self._transport.addNode(node)

    # --- proposing, applying and electing ------------------------------------------------------------------------------------

    def _checkCommandsToApply(self) -> None:  # noqa: N802
        """D19: drop accepted commands after losing the leadership.

        The library would forward them under a number that a restart repeats. The proposers send their commands again.
        """
        if self.is_leader():
            SyncObj._checkCommandsToApply(self)
            return
        queue = self._SyncObj__commandsQueue
        while True:
            try:
                _command, callback = queue.get_nowait()
            except Empty:
                return
            if callback is not None:
                callback(None, FAIL_REASON.NOT_LEADER)

    def _SyncObj__applyLogEntries(self) -> bool:  # noqa: N802
        """D15, D16, D17, D28: pass raw bytes to our state machine, which is total.

        Membership took effect when its entry was appended. A long log is applied in pieces, one a tick, so that
        heartbeats continue; so are slow entries.
        """
        if self.is_installing() or self.commit_index() <= self.applied_index():
            return False
        begin_s = library.monotonicTime()
        ends_s = begin_s + self._settings.apply_s_max
        for command, index, term in self._journal.entries(self.applied_index() + 1, self._settings.apply_bytes_max):
            if index > self.commit_index() or self.is_throttled or library.monotonicTime() > ends_s:
                break
            # Avoids a copy of large commands.
            content = command[1:] if len(command) < LARGE_BYTES else memoryview(command)[1:]
            if command[0] == REGULAR and not self._apply(index, content):
                break
            self._SyncObj__raftLastApplied = index
            for proposed_term, callback in self._SyncObj__commandsWaitingCommit.pop(index, ()):
                callback(None, FAIL_REASON.SUCCESS if proposed_term == term else FAIL_REASON.DISCARDED)
        self.applying_s += library.monotonicTime() - begin_s
        return False

    def _SyncObj__connectedToAnyone(self) -> bool:  # noqa: N802
        """D23: called just before a campaign. Only a full member that is sure it could win may disturb the term."""
        # The election time is over, so the leader is silent.
        self._SyncObj__raftLeader = None
        called, self._SyncObj__transferInProgress = self._SyncObj__transferInProgress, False
        if self.is_recovering() or self.is_installing() or self._self_id not in self._members:
            return False
        others = self._SyncObj__otherNodes
        if 2 * (len(others & self._SyncObj__connectedNodes) + 1) <= len(others) + 1:
            return False
        if not others or called or self._pre_vote.won(len(others) + 1):
            self._pre_vote.end()
            return True
        if self._pre_vote.is_due():
            self._pre_votes.ask(others)
        return False

    def _SyncObj__setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:  # noqa: N802, N803
        """Set term and vote. During a message they are saved at its end, once; the library would write them twice."""
        self._SyncObj__raftCurrentTerm, self._SyncObj__votedForNodeId = term, votedForNodeId
        if not self._is_taking:
            self._save_vote()

    def _SyncObj__getCurrentLogIndex(self) -> int:  # noqa: N802
        """D33: avoids the library's read of the last entry."""
        return self._journal.last_index

    def _SyncObj__getCurrentLogTerm(self) -> int:  # noqa: N802
        """D33: avoids the library's read of the last entry."""
        return self._journal.term_at(self._journal.last_index)

    def _SyncObj__getEntries(  # noqa: N802
        self,
        fromIDx: int,  # noqa: N803
        count: int | None = None,
        maxSizeBytes: int | None = None,  # noqa: ARG002, N803
    ) -> list[Entry]:
        """D8: commit no entry in the tick that appends it, not even on a lone member: it is not synced yet.

        D33: the commit rule, the only remaining caller, needs an entry's term and not its command.
        """
        journal = self._journal
        if count != 1 or not journal.first_index <= fromIDx <= min(journal.last_index, self._synced_last):
            return []
        return [Entry(b"", fromIDx, journal.term_at(fromIDx))]

    def _SyncObj__generateRaftTimeout(self) -> float:  # noqa: N802
        """Return a timeout from the node's own generator, which the simulator needs."""
        return self._rng.uniform(self._settings.election_min_s, self._settings.election_max_s)

    def _SyncObj__tryLogCompaction(self) -> None:  # noqa: N802
        """Do nothing: the adapter compacts by bytes."""

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> None:  # noqa: N802, N803
        """Do nothing: snapshots are ours."""
