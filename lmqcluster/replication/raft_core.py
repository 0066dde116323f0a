"""PySyncObj's `SyncObj` with its unsafe parts replaced.

Every method named ``_SyncObj__...`` overrides a private one of PySyncObj 0.3.17 (pinned) and says which defect it mends:

* D1  overlapping entries truncated what matched, committed entries included
* D2  the commit index followed the leader's beyond what had been verified
* D3  replies carried no term, so those of an earlier term counted
* D4  a failed snapshot load was acknowledged
* D5  a snapshot replaced a longer matching log
* D8  entries counted before they were synced
* D14 backing up after a mismatch never ended on slow links
* D15 a command that raised stopped apply on all members
* D16 a callback that raised applied its entry twice
* D19 forwarded commands were confused after a restart
* D17 an entry that failed shifted the index of those behind it, and a long log was applied in one go
* D22 stale terms were not answered
* D23 no pre-vote: a node that had been cut off disturbed the cluster with its higher term
* D24 two membership changes could be pending at once
* D25 the member list was not that of the log after truncation
* D28 pickles in log and messages
* D33 reading whole entries where only their term was needed

What stays the library's: elections, vote counting, the commit rule.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from queue import Empty
from typing import Any, Final

from pysyncobj import SyncObj
from pysyncobj import syncobj as library
from pysyncobj.config import FAIL_REASON
from pysyncobj.transport import Transport

from .follower_progress import Progress, SnapshotTransfer
from .histogram import Histogram
from .journal import Entry, Journal
from .membership import MEMBERSHIP, NO_OP, REGULAR, PeerNode, apply_change, decode_change, encode_change, is_change
from .pre_vote import PreVote
from .settings import RaftSettings
from .snapshot_port import SnapshotPort, SnapshotReceiver
from .status import Role
from .storage.snapshot_store import SnapshotInfo

__all__ = ["FatalReplicationError", "RaftCore"]

FOLLOWER, CANDIDATE, LEADER = 0, 1, 2
_ROLES: Final[tuple[Role, ...]] = ("follower", "candidate", "leader")

Message = dict[str, Any]


class FatalReplicationError(RuntimeError):
    """The node must stop: going on could break a promise; restarting is safe."""


class _NullPoller:
    """Sockets are ours; the library has nothing to poll."""

    def poll(self, _timeout: float) -> None:
        return


class RaftCore(SyncObj):
    """One member's consensus state. Not thread-safe: one thread calls everything.

    Args:
        self_id: this node's id.
        members: id to Raft address of the members at the base of the log; without this node it is not (yet) a member.
        transport: carries message dictionaries; its callbacks are set here.
        journal: the log.
        apply: called with (index, command without its type byte) for each committed command, once and in order; must not
            raise for anything that a command can hold.
        snapshots: takes, keeps, sends and installs snapshots. The state is that of its latest one, if there is any, and the log's
            base is that snapshot's index.
        durable: the log survives a restart, so nothing may leave it that no snapshot holds.
        recovering: the node has forgotten entries that it may have acknowledged (restart without a durable log). Until it
            holds the leader's log as of their first contact it neither votes nor campaigns.
        forgetful: it may have forgotten its term and vote too (a member that lost its disk is not told from a new one). Then even
            what it acknowledges must not count until the leader has committed that log without it.
    """

    # The library's private state that the overrides read and write.
    _SyncObj__raftState: int
    _SyncObj__raftLeader: PeerNode | None
    _SyncObj__raftElectionDeadline: float

    def __init__(
        self,
        self_id: str,
        members: Mapping[str, str],
        transport: Transport,
        journal: Journal,
        *,
        apply: Callable[[int, bytes], None],
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
        self._progress: dict[PeerNode, Progress] = {}
        self._learners: dict[PeerNode, float] = {}
        self._pre_vote = PreVote(settings, rng)
        self._sequence = 0
        # For a leader: seconds from a message to a member until its answer, the member's sync included.
        self.round_trips: dict[str, Histogram] = {}
        self._handing_over = False
        self._base_members = dict(members)
        self._members = dict(members)
        self._recovering = recovering or forgetful
        self._forgetful = forgetful
        self._recovery_contact: tuple[PeerNode, int] | None = None
        self._recovery_target = 0
        self._proof_from = 0
        # What a node that has just started lacks of what its first leader had, see `has_caught_up`.
        self._catch_up_contact: tuple[PeerNode, int] | None = None
        self._catch_up_target: int | None = None
        self._caught_up = False
        self._incoming: tuple[int, int, SnapshotReceiver] | None = None
        self._last_block: tuple[PeerNode, Message] | None = None
        self._installing = False
        self._synced_last = journal.last_index
        # The library's constructor asks for the end of its own log.
        self._journal = journal
        others = [PeerNode(node_id, address) for node_id, address in members.items() if node_id != self_id]
        super().__init__(PeerNode(self_id), others, settings.to_library(), nodeClass=PeerNode, transport=transport)
        self._self_id = self_id
        self._transport = transport
        self._journal = journal
        self._poller = _NullPoller()
        self._SyncObj__raftLog = journal
        self._SyncObj__raftCurrentTerm = max(journal.getCurrentTerm(), journal.term_at(journal.last_index))
        self._SyncObj__votedForNodeId = journal.getVotedForNodeId()
        self._SyncObj__raftCommitIndex = journal.first_index
        self._SyncObj__raftLastApplied = journal.first_index
        self._SyncObj__needLoadDumpFile = False
        if journal.changes:
            self._members_from_log()
        if self._members.keys() == {self_id}:
            # There is nobody who could know more.
            self._recovering = self._forgetful = False

    def doTick(self, timeToWait: float = 0.0) -> None:  # noqa: N802, N803 - the library's names
        """One tick. The journal is synced before the next one, so what is in it now may then count as held here."""
        super().doTick(timeToWait)
        if self._learners and not self.is_leader():
            self._drop_learners(list(self._learners))
        if not self._caught_up:
            self._note_catch_up()
        self._synced_last = self._journal.last_index

    # --- what the adapter calls -----------------------------------------------------------------------------------

    def propose(self, command: bytes) -> bool:
        """Append a command on the leader with the next tick; False if this node does not lead or is handing over."""
        if self._handing_over or not self.is_leader():
            return False
        self._applyCommand(command, None, REGULAR)
        return True

    def propose_change(self, verb: str, node_id: str, address: str, done: Callable[[bool], None]) -> None:
        """Add (``add``) or remove (``rem``) a member; `done(True)` once committed, `done(False)` if refused or lost."""
        if not self.is_leader() or (verb == "rem" and node_id == self._self_id):
            done(False)
            return

        def answered(_result: object, reason: int) -> None:
            done(reason == FAIL_REASON.SUCCESS)

        self._applyCommand(encode_change(verb, node_id, address), _guarded(answered), MEMBERSHIP)

    def learn(self, node_id: str, address: str) -> None:
        """On the leader, replicate to a node that is no member yet and counts for nothing.

        A learner is forgotten with the leadership, or when nobody asks for it any more: call this again and again.
        """
        node = PeerNode(node_id, address)
        if self.is_leader() and node not in self._SyncObj__otherNodes:
            self._learners[node] = library.monotonicTime() + self._settings.learner_patience_s
            self._transport.addNode(node)

    def learner_lag(self, node_id: str) -> int | None:
        """How many entries a learner lacks; None as long as that is unknown."""
        node = PeerNode(node_id)
        match = self._SyncObj__raftMatchIndex.get(node, 0) if node in self._learners else 0
        return self._journal.last_index - match if match else None

    def _forget_learners(self) -> None:
        now = library.monotonicTime()
        self._drop_learners([node for node, deadline in self._learners.items() if deadline < now])

    def _drop_learners(self, nodes: Iterable[PeerNode]) -> None:
        for node in nodes:
            del self._learners[node]
            if node not in self._SyncObj__otherNodes:
                self._progress.pop(node, None)
                self._SyncObj__raftMatchIndex.pop(node, None)
                self._transport.dropNode(node)

    def flush(self) -> None:
        """On the leader, send what followers lack: new entries and a commit index they do not know."""
        if self.is_leader():
            for node in self._receivers():
                self._replicate(node, heartbeat=False)

    def compact(self) -> None:
        """Drop applied entries beyond the size limits; of a durable log only what the latest snapshot holds."""
        journal, settings = self._journal, self._settings
        if journal.size_bytes <= settings.log_bytes_soft:
            return
        limit = self.applied_index()
        if self._durable:
            latest = self._snapshots.latest()
            limit = 0 if latest is None else latest.index
        limit = min([limit, *self._kept_snapshots()])
        if self.is_leader():
            for node in self._receivers():
                if self._needs_log(node) and journal.size_bytes <= self._log_bytes_for(node):
                    limit = min(limit, self._SyncObj__raftMatchIndex.get(node, 0))
        if limit > journal.first_index:
            self._drop_before(limit)

    def _kept_snapshots(self) -> list[int]:
        """Indexes of snapshots on their way to a follower, or soon to be: what follows is needed as soon as one has arrived."""
        kept = [p.snapshot.info.index for p in self._progress.values() if p.snapshot is not None]
        if self.is_leader() and any(self._awaits_snapshot(node) for node in self._receivers()):
            latest, under_way = self._snapshots.latest(), self._snapshots.under_way()
            soon = [latest.index if latest is not None else 0, under_way or 0]
            kept += [index for index in soon if index >= self._journal.first_index]
        return kept

    def _awaits_snapshot(self, node: PeerNode) -> bool:
        return self._needs_log(node) and self._progress_of(node).next_index <= self._journal.first_index

    def _needs_log(self, node: PeerNode) -> bool:
        """Whether the node goes on from an entry that is still in the log, or will do so from a snapshot."""
        return node in self._SyncObj__connectedNodes and self._progress_of(node).snapshot is None

    def _log_bytes_for(self, node: PeerNode) -> int:
        """How long the log may become for the sake of a node."""
        return max(self._settings.log_bytes_hard, self._progress_of(node).log_bytes)

    def _drop_before(self, index: int) -> None:
        for _, command in self._journal.drop_before(index):
            self._base_members = apply_change(self._base_members, command)

    def hold_proposals(self, held: bool) -> None:
        """Take no more proposals, so that a follower can catch up with the whole log and take over; or take them again."""
        self._handing_over = held

    def transfer_leadership(self, node_id: str | None = None) -> bool:
        """Ask a follower that is up to date, or this one, to take over; False if there is none or this node does not lead."""
        accepted: list[bool] = []
        target = None if node_id is None else PeerNode(node_id)
        self.transferLeadership(target, lambda _result, reason: accepted.append(reason == FAIL_REASON.SUCCESS))
        return accepted == [True]

    def leader_link_lost(self, node: PeerNode) -> None:
        """The link to `node` broke: if it led, campaign soon instead of after the full election time."""
        if node != self._SyncObj__raftLeader or self.is_leader():
            return
        self._pre_vote.leader_lost()
        settings = self._settings
        soon = library.monotonicTime() + self._rng.uniform(settings.leader_lost_min_s, settings.leader_lost_max_s)
        self._SyncObj__raftElectionDeadline = min(self._SyncObj__raftElectionDeadline, soon)

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

    def applied_position(self) -> tuple[int, int, dict[str, str]]:
        """Index and term of the last applied entry, and the members by then."""
        index = self.applied_index()
        return index, self._journal.term_at(index), self._members_at(index)

    def committed_members(self) -> dict[str, str]:
        """Id to Raft address of the members by the entries that are committed."""
        return self._members_at(self.commit_index())

    def was_removed(self) -> bool:
        """Whether the cluster has told this node that it is no member any more."""
        return self._pre_vote.refused_as_stranger and self._self_id in self._members

    def is_installing(self) -> bool:
        """Whether a snapshot of the leader is being loaded."""
        return self._installing

    def snapshots_in_use(self) -> list[SnapshotInfo]:
        """Those that are being sent."""
        return [p.snapshot.info for p in self._progress.values() if p.snapshot is not None]

    def is_recovering(self) -> bool:
        """Whether the node still lacks entries that it may have acknowledged in a former life."""
        return self._recovering

    def has_caught_up(self) -> bool:
        """Whether the node has applied, since it started, what its leader had when they first met."""
        return self._caught_up

    def missing_entries(self) -> int:
        """How many entries the node lacks of what it knows its leader to have."""
        return max(self._catch_up_target or 0, self.commit_index()) - self.applied_index()

    def _note_catch_up(self) -> None:
        if self._catch_up_target is not None and self.applied_index() >= self._catch_up_target:
            self._caught_up = True

    def is_empty(self) -> bool:
        """Whether the log holds nothing but its first base."""
        return self._journal.last_index <= 1

    def end_recovery(self) -> None:
        """Take part fully; for when no member knows more than this one."""
        self._recovering = self._forgetful = False

    # --- messages -------------------------------------------------------------------------------------------------

    def _SyncObj__onMessageReceived(self, node: PeerNode, message: Message) -> None:  # noqa: N802
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
            # A candidate may be a member that this node has not heard of yet, so anybody's is considered.
            if not self._recovering:
                SyncObj._SyncObj__onMessageReceived(self, node, message)
        elif kind == "pre_vote":
            self._on_pre_vote(node, message)
        elif kind == "pre_vote_reply":
            self._on_pre_vote_reply(node, message)
        elif kind in ("response_vote", "timeout_now"):
            SyncObj._SyncObj__onMessageReceived(self, node, message)
        else:
            raise ValueError(f"unknown message type {kind!r} from {node.id}")

    def _follow(self, node: PeerNode, term: int) -> None:
        """Accept `node` as the leader of `term`, which is not older than ours; as the library does it."""
        if term > self.term():
            self._SyncObj__transferInProgress = False
        if not self._SyncObj__transferInProgress:
            timeout = self._SyncObj__generateRaftTimeout()
            self._SyncObj__raftElectionDeadline = library.monotonicTime() + timeout
        self._pre_vote.leader_heard()
        self._SyncObj__raftLeader = node
        if term > self.term():
            self._SyncObj__setCurrentTerm(term, None)
        self._SyncObj__setState(FOLLOWER)

    def _on_append(self, node: PeerNode, message: Message) -> None:
        """D1, D2, D3, D14, D22: Raft's AppendEntries as the paper has it (figure 2, section 5.3)."""
        term, sequence = message["term"], message["seq"]
        if term < self.term():
            self._reply_append(node, sequence, success=False, match=0, hint=0)
            return
        self._follow(node, term)
        self._meet_leader(node, message)
        commit = self._SyncObj__leaderCommitIndex = message["commit_index"]
        if self._installing:
            # The log is about to be replaced; this only tells the leader that the node lives.
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
        self._recover_up_to(min(commit, verified) if self._forgetful else verified)

    def _meet_leader(self, node: PeerNode, message: Message) -> None:
        """At the first contact with a leader, note what this node lacks, and what it must hold to be trusted if it has forgotten.

        If it may have forgotten its vote too, the leader may be one that has lost its place to another with that vote. It is not
        if it commits, without this node, an entry that it did not have yet.
        """
        contact = (node, message["term"])
        if not self._caught_up and self._catch_up_contact != contact:
            self._catch_up_contact, self._catch_up_target = contact, message["last"]
        if self._recovering and self._recovery_contact != contact:
            self._recovery_contact = contact
            self._recovery_target = message["last"] + self._forgetful

    def _recover_up_to(self, index: int) -> None:
        """This node holds the leader's log up to `index`."""
        if self._recovering and index >= self._recovery_target:
            self._recovering = self._forgetful = False

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
        """D1: append what is new; truncate only at a real conflict."""
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
            self._members_from_log()

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
                "counts": not self._forgetful,
            },
        )

    def _heard(self, node: PeerNode, message: Message) -> Progress | None:
        """D3, D22: account a reply; None if it says nothing, because it is of another term (which, if newer, ends our
        leadership) or answers what was sent on an earlier connection, maybe to an earlier life of a peer that lost its log.
        """
        term: int = message["term"]
        if term > self.term():
            self._meet_term(term)
            return None
        if not self.is_leader() or term != self.term():
            return None
        if node not in self._SyncObj__otherNodes and node not in self._learners:
            return None
        progress = self._progress_of(node)
        if message["seq"] < progress.first_sequence:
            return None
        now_s = self._SyncObj__lastResponseTime[node] = library.monotonicTime()
        if 0 < progress.timed_sequence <= message["seq"]:
            progress.timed_sequence = 0
            self._note_round_trip(str(node.id), now_s - progress.timed_s)
        return progress

    def _note_round_trip(self, node_id: str, seconds: float) -> None:
        round_trips = self.round_trips.get(node_id)
        if round_trips is None:
            round_trips = self.round_trips[node_id] = Histogram()
        round_trips.observe(seconds)

    def _meet_term(self, term: int) -> None:
        """Somebody is in a newer term, whose leader is not known yet."""
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
            if progress.snapshot is None:
                progress.matched(match, message["seq"])
        elif message["seq"] >= progress.reset_sequence and progress.snapshot is None:
            # D14: back up by whole terms as hinted, and ignore what was sent before.
            match = self._SyncObj__raftMatchIndex.get(node, 0)
            hint = min(message["hint"], progress.next_index - 1, self._journal.last_index + 1)
            if message["hint"] <= 1:
                # It has no part in the cluster's founding, so it needs a snapshot, which brings the list of members.
                hint = min(hint, self._journal.first_index)
            progress.probe_from(max(hint, match + 1, 1))

    def _prove_leadership(self) -> None:
        """Commit something new, for a member that has lost its disk (see `_meet_leader`), unless that is under way."""
        last = self._journal.last_index
        if self.commit_index() == last != self._proof_from:
            self._proof_from = last
            self._applyCommand(b"", None, NO_OP)

    # --- sending --------------------------------------------------------------------------------------------------

    def _receivers(self) -> list[PeerNode]:
        """Who gets the log: followers and learners, in a fixed order."""
        nodes = self._SyncObj__otherNodes
        if self._learners:
            nodes = nodes | self._learners.keys()
        return sorted(nodes, key=lambda node: str(node.id))

    def _progress_of(self, node: PeerNode) -> Progress:
        progress = self._progress.get(node)
        if progress is None:
            progress = self._progress[node] = Progress.begin(self._journal.last_index + 1, self._sequence)
        return progress

    def _SyncObj__sendAppendEntries(self) -> None:  # noqa: N802
        """D14, D28: the library's heartbeat timer calls this."""
        self._SyncObj__newAppendEntriesTime = library.monotonicTime() + self._settings.heartbeat_s
        self._forget_learners()
        for node in self._receivers():
            self._replicate(node, heartbeat=True)

    def _replicate(self, node: PeerNode, *, heartbeat: bool) -> None:
        if node not in self._SyncObj__connectedNodes:
            return
        progress = self._progress_of(node)
        if progress.snapshot is None and progress.next_index <= self._journal.first_index:
            self._begin_snapshot(progress)
            if progress.snapshot is None:
                if heartbeat:
                    self._send_empty(node, progress)
                return
        if progress.snapshot is not None:
            self._send_snapshot(node, progress, progress.snapshot, heartbeat=heartbeat)
            return
        last, commit = self._journal.last_index, self.commit_index()
        while True:
            entries: list[Entry] = []
            if (
                progress.next_index <= last
                and progress.window_open()
                and not (progress.probing and progress.probe_sent)
            ):
                entries = self._journal.entries(progress.next_index, self._settings.append_bytes_max)
            unaware = progress.commit_sent < commit or (progress.probing and not progress.probe_sent)
            if not (entries or heartbeat or unaware):
                return
            self._send_append(node, progress, entries)
            heartbeat = False

    def _number(self, progress: Progress) -> None:
        """D3: number the next message; numbers are never used twice, whatever becomes of `progress`."""
        self._sequence += 1
        progress.sequence = self._sequence
        if not progress.timed_sequence:
            progress.timed_sequence, progress.timed_s = self._sequence, library.monotonicTime()

    def _send_append(self, node: PeerNode, progress: Progress, entries: list[Entry]) -> None:
        previous = progress.next_index - 1
        self._number(progress)
        self._transport.send(
            node,
            {
                "type": "append_entries",
                "term": self.term(),
                "seq": progress.sequence,
                "commit_index": self.commit_index(),
                "prevLogIdx": previous,
                "prevLogTerm": self._journal.term_at(previous),
                "last": self._journal.last_index,
                "entries": entries,
            },
        )
        progress.commit_sent = self.commit_index()
        if progress.probing:
            progress.probe_sent = True
        elif entries:
            progress.sent(entries[-1].idx, sum(len(entry.command) for entry in entries))

    def _SyncObj__onNodeConnected(self, node: PeerNode) -> None:  # noqa: N802
        """D14: a new link carries nothing of the old one, so look for the match again; a restarted peer may have lost its log."""
        SyncObj._SyncObj__onNodeConnected(self, node)
        self._progress.pop(node, None)
        if self.is_leader() and node in self._SyncObj__otherNodes:
            self._SyncObj__raftMatchIndex[node] = 0

    def _SyncObj__onNodeDisconnected(self, node: PeerNode) -> None:  # noqa: N802
        """A snapshot on its way to a node that is gone must not keep the log from being cut."""
        SyncObj._SyncObj__onNodeDisconnected(self, node)
        self._progress.pop(node, None)

    def _SyncObj__onBecomeLeader(self) -> None:  # noqa: N802
        """D3: what was known of followers in earlier terms is void. D24: the pending change is the log's."""
        changes = self._journal.changes
        self._SyncObj__changeClusterIDx = changes[-1][0] if changes else None
        start = self._journal.last_index + 1
        self._learners.clear()
        self._progress = {node: Progress.begin(start, self._sequence) for node in self._receivers()}
        SyncObj._SyncObj__onBecomeLeader(self)
        if not self._caught_up:
            # Its own first entry: what is before it is committed with it.
            self._catch_up_target = self._journal.last_index

    # --- snapshots ------------------------------------------------------------------------------------------------

    def _begin_snapshot(self, progress: Progress) -> None:
        """Send the latest snapshot if the log goes on from it; otherwise ask for a new one, and begin when it is there."""
        latest = self._snapshots.latest()
        if latest is None or latest.index < self._journal.first_index:
            self._snapshots.request()
        else:
            progress.snapshot = SnapshotTransfer(latest)

    def _send_snapshot(
        self, node: PeerNode, progress: Progress, transfer: SnapshotTransfer, *, heartbeat: bool
    ) -> None:
        while transfer.may_send():
            number = transfer.sent
            transfer.sent += 1
            heartbeat = False
            self._send_block(node, progress, transfer, number)
        if heartbeat and transfer.is_stalled():
            # An answer, or blocks behind a lost one, may have been lost: go on from what is known to be there.
            transfer.sent = min(transfer.acknowledged, transfer.info.blocks - 1)
            self._send_snapshot(node, progress, transfer, heartbeat=False)
        elif heartbeat:
            self._send_empty(node, progress)

    def _send_empty(self, node: PeerNode, progress: Progress) -> None:
        """Keep the follower from campaigning; its refusal is ignored as long as it waits for a snapshot."""
        last = self._journal.last_index
        self._number(progress)
        self._transport.send(
            node,
            {
                "type": "append_entries",
                "term": self.term(),
                "seq": progress.sequence,
                "commit_index": 0,
                "prevLogIdx": last,
                "prevLogTerm": self._journal.term_at(last),
                "last": last,
                "entries": [],
            },
        )

    def _send_block(self, node: PeerNode, progress: Progress, transfer: SnapshotTransfer, number: int) -> None:
        self._number(progress)
        self._transport.send(
            node,
            {
                "type": "snapshot",
                "term": self.term(),
                "seq": progress.sequence,
                "index": transfer.info.index,
                "index_term": transfer.info.term,
                "number": number,
                "count": transfer.info.blocks,
                "last": self._journal.last_index,
                "data": self._snapshots.read_block(transfer.info, number),
            },
        )

    def _on_snapshot_reply(self, node: PeerNode, message: Message) -> None:
        progress = self._heard(node, message)
        if progress is None or progress.snapshot is None or message["index"] != progress.snapshot.info.index:
            return
        if message["installed"]:
            index = progress.snapshot.info.index
            progress.snapshot = None
            # It has to catch up with what was added meanwhile; cutting that would send it another snapshot, and so for ever.
            progress.log_bytes = 2 * self._journal.size_bytes
            if index > self._SyncObj__raftMatchIndex.get(node, 0):
                self._SyncObj__raftMatchIndex[node] = index
            progress.probe_from(index + 1)
        elif message["restart"]:
            progress.snapshot = None
        else:
            progress.snapshot.acknowledge(message["number"] + 1)

    def _on_snapshot(self, node: PeerNode, message: Message) -> None:
        """D2, D4, D5: collect, verify, install, and only then acknowledge; commit nothing beyond the snapshot."""
        if message["term"] < self.term():
            self._reply_snapshot(node, message)
            return
        self._follow(node, message["term"])
        self._meet_leader(node, message)
        if message["index"] <= self.commit_index():
            self._reply_snapshot(node, message, installed=True)
            return
        if self._installing:
            return
        receiver = self._receiver_of(message)
        if receiver is None:
            self._reply_snapshot(node, message, restart=True)
            return
        if receiver.next_block < message["count"]:
            self._last_block = (node, message)
            if not receiver.is_busy():
                self.acknowledge_blocks()
            return
        self._incoming = None
        self._installing = True
        self._snapshots.install(receiver, lambda info: self._loaded(node, message, info))

    def acknowledge_blocks(self) -> None:
        """Tell the leader how many blocks of the snapshot under way have come, so that it sends more."""
        if self._incoming is not None and self._last_block is not None:
            node, message = self._last_block
            self._reply_snapshot(node, message, number=self._incoming[2].next_block - 1)

    def _receiver_of(self, message: Message) -> SnapshotReceiver | None:
        """The transfer that a block belongs to, with the block taken; None if it must begin again."""
        source = (message["index"], message["index_term"])
        if message["number"] == 0 and (self._incoming is None or not self._incoming[2].resumes(message["data"])):
            self._drop_incoming()
            self._incoming = (*source, self._snapshots.receive(*source))
        if self._incoming is None or self._incoming[:2] != source:
            return None
        receiver = self._incoming[2]
        if message["number"] == receiver.next_block:
            try:
                receiver.take(message["number"], message["data"])
            except ValueError:
                self._drop_incoming()
                return None
        # Blocks that came before are held already, and those behind a gap come again.
        return receiver

    def _drop_incoming(self) -> None:
        if self._incoming is not None:
            self._incoming[2].abandon()
            self._incoming = None

    def _loaded(self, node: PeerNode, message: Message, info: SnapshotInfo | None) -> bool:
        """The snapshot is verified, durable and loaded (None: it was damaged); says whether it shall replace the state."""
        self._installing = False
        taken = info is not None and info.index > self.commit_index()
        if info is not None and taken:
            self._take_base(info)
        self._reply_snapshot(node, message, installed=info is not None, restart=info is None)
        return taken

    def _take_base(self, info: SnapshotInfo) -> None:
        journal = self._journal
        if journal.first_index <= info.index <= journal.last_index and journal.term_at(info.index) == info.term:
            self._drop_before(info.index)
        else:
            journal.reset(info.index, info.term)
        self._base_members = dict(info.members)
        self._members_from_log()
        self._SyncObj__raftLastApplied = info.index
        self._SyncObj__raftCommitIndex = max(self.commit_index(), info.index)
        # What a snapshot holds is committed.
        self._recover_up_to(info.index)

    def _reply_snapshot(
        self,
        node: PeerNode,
        message: Message,
        *,
        number: int | None = None,
        installed: bool = False,
        restart: bool = False,
    ) -> None:
        self._transport.send(
            node,
            {
                "type": "snapshot_reply",
                "term": self.term(),
                "seq": message["seq"],
                "index": message["index"],
                "number": message["number"] if number is None else number,
                "installed": installed,
                "restart": restart,
            },
        )

    # --- pre-vote --------------------------------------------------------------------------------------------------

    def _ask_pre_votes(self) -> None:
        """D23: find out whether an election could be won before disturbing the term."""
        message = {
            "type": "pre_vote",
            "term": self.term(),
            "round": self._pre_vote.begin(),
            "last_log_index": self._journal.last_index,
            "last_log_term": self._journal.term_at(self._journal.last_index),
        }
        for node in sorted(self._SyncObj__otherNodes, key=lambda n: str(n.id)):
            self._transport.send(node, message)

    def _on_pre_vote(self, node: PeerNode, message: Message) -> None:
        """D23: grant it if no leader is there and the asking node's log is not behind; this binds nobody to anything."""
        last = self._journal.last_index
        up_to_date = (message["last_log_term"], message["last_log_index"]) >= (self._journal.term_at(last), last)
        leaderless = not self.is_leader() and not self._pre_vote.has_leader()
        self._transport.send(
            node,
            {
                "type": "pre_vote_reply",
                "term": self.term(),
                "round": message["round"],
                "granted": up_to_date and leaderless and message["term"] >= self.term() and not self._recovering,
                # Only the leader surely knows of all additions.
                "stranger": self.is_leader() and str(node.id) not in self._members,
            },
        )

    def _on_pre_vote_reply(self, node: PeerNode, message: Message) -> None:
        if message["term"] > self.term():
            self._meet_term(message["term"])
            return
        if message["stranger"]:
            self._pre_vote.refused_as_stranger = True
        if node in self._SyncObj__otherNodes and message["granted"]:
            self._pre_vote.granted(str(node.id), message["round"])

    # --- membership -----------------------------------------------------------------------------------------------

    def _SyncObj__parseChangeClusterRequest(self, command: bytes) -> list[Any] | None:  # noqa: N802
        """D28: membership entries are MessagePack, not pickles."""
        return decode_change(command)

    def _SyncObj__changeCluster(self, request: list[Any]) -> bool:  # noqa: N802
        """D24: remember the index of the pending change, so that a second one is refused until it is applied."""
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
        self._learners.pop(node, None)
        self._set_members(members)
        return True

    def _members_at(self, index: int) -> dict[str, str]:
        members = self._base_members
        for change_index, command in self._journal.changes:
            if change_index <= index:
                members = apply_change(members, command)
        return dict(members)

    def _members_from_log(self) -> None:
        self._set_members(self._members_at(self._journal.last_index))

    def _set_members(self, members: dict[str, str]) -> None:
        moved = {node_id for node_id, address in members.items() if self._members.get(node_id, address) != address}
        self._members = members
        wanted = {PeerNode(node_id, address) for node_id, address in members.items() if node_id != self._self_id}
        present = self._SyncObj__otherNodes
        for node in sorted(present - wanted, key=lambda n: str(n.id)):
            present.discard(node)
            self._progress.pop(node, None)
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
        """D19: a node that has just lost the lead drops what it had taken; the library would forward it under a number that a
        restart repeats. Whoever proposed it sends it again.
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
        """D15, D16, D17, D28: raw bytes to our state machine, which is total; membership took effect when it was appended.

        A long log is applied in pieces, one a tick, so that heartbeats go on.
        """
        if self._installing or self.commit_index() <= self.applied_index():
            return False
        for command, index, term in self._journal.entries(self.applied_index() + 1, self._settings.apply_bytes_max):
            if index > self.commit_index():
                break
            subscribers = self._SyncObj__commandsWaitingCommit.pop(index, ())
            if command[0] == REGULAR:
                self._apply(index, command[1:])
            self._SyncObj__raftLastApplied = index
            for proposed_term, callback in subscribers:
                callback(None, FAIL_REASON.SUCCESS if proposed_term == term else FAIL_REASON.DISCARDED)
        return False

    def _SyncObj__connectedToAnyone(self) -> bool:  # noqa: N802
        """D23: evaluated just before campaigning: only a full member that is sure it could win may disturb the term."""
        # The election time is over, so whoever led is silent.
        self._SyncObj__raftLeader = None
        called, self._SyncObj__transferInProgress = self._SyncObj__transferInProgress, False
        if self._recovering or self._installing or self._self_id not in self._members:
            return False
        others = self._SyncObj__otherNodes
        if 2 * (len(others & self._SyncObj__connectedNodes) + 1) <= len(others) + 1:
            return False
        if not others or called or self._pre_vote.won(len(others) + 1):
            self._pre_vote.end()
            return True
        if self._pre_vote.is_due():
            self._ask_pre_votes()
        return False

    def _SyncObj__getCurrentLogIndex(self) -> int:  # noqa: N802
        """D33: the library reads the last entry for this."""
        return self._journal.last_index

    def _SyncObj__getCurrentLogTerm(self) -> int:  # noqa: N802
        """D33: the same."""
        return self._journal.term_at(self._journal.last_index)

    def _SyncObj__getEntries(  # noqa: N802
        self,
        fromIDx: int,  # noqa: N803
        count: int | None = None,
        maxSizeBytes: int | None = None,  # noqa: ARG002, N803
    ) -> list[Entry]:
        """D8: no entry is committed in the tick that appends it, not even a lone member's: it is not synced yet.

        D33: the commit rule, the only user left, needs an entry's term and not its command.
        """
        journal = self._journal
        if count != 1 or not journal.first_index <= fromIDx <= min(journal.last_index, self._synced_last):
            return []
        return [Entry(b"", fromIDx, journal.term_at(fromIDx))]

    def _SyncObj__generateRaftTimeout(self) -> float:  # noqa: N802
        """The simulator needs the node's own generator."""
        return self._rng.uniform(self._settings.election_min_s, self._settings.election_max_s)

    def _SyncObj__tryLogCompaction(self) -> None:  # noqa: N802
        """The adapter compacts by bytes."""

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> None:  # noqa: N802, N803
        """Snapshots are ours."""


def _guarded(callback: Callable[[object, int], None]) -> Callable[[object, int], None]:
    """D16: an exception in a callback must not make the library apply the entry again."""

    def call(result: object, reason: int) -> None:
        try:
            callback(result, reason)
        except Exception as exc:
            raise FatalReplicationError(f"a membership callback failed: {exc}") from exc

    return call
