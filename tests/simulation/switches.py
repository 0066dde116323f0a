"""Each of our fixes, switched off alone: a patch that restores the defect. Names are those of the defects."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any
from unittest import mock

from pysyncobj import SyncObj, syncobj

import lmqcluster.node.membership.incarnation
import lmqcluster.replication.base.batch_entry
import lmqcluster.replication.replica
import lmqcluster.replication.storage.journal.disk_journal
import lmqcluster.replication.storage.journal.recovery
import lmqcluster.replication.storage.journal.segment
import lmqcluster.replication.storage.meta
import lmqcluster.replication.storage.node_storage
from lmqcluster.core.dedup.node_sequences import NodeSequences
from lmqcluster.node.commit.proposer import Proposer
from lmqcluster.replication.base.membership import apply_change
from lmqcluster.replication.peers import messages
from lmqcluster.replication.raft.catch_up import Recovery
from lmqcluster.replication.raft.core import RaftCore
from lmqcluster.replication.raft.log_sender import LogSender
from lmqcluster.replication.raft.snapshot_intake import SnapshotIntake
from lmqcluster.replication.recovery.stale_receipts import StaleReceipts
from lmqcluster.replication.steps import Steps
from lmqcluster.replication.storage.io.disk import DamagedFileError
from lmqcluster.replication.storage.journal.disk_journal import DiskJournal
from lmqcluster.replication.storage.journal.segment import RECORD_BYTES, Record
from lmqcluster.replication.storage.journal.segment_files import SegmentFiles
from lmqcluster.replication.storage.meta import NodeMeta
from lmqcluster.replication.storage.node_storage import NodeStorage
from lmqcluster.replication.storage.snapshots.snapshot_store import SnapshotStore
from tests.simulation.hardened import CoreReplica
from tests.simulation.node_stack import NodeReplica

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

__all__ = ["SWITCHES", "switch"]

Patches = list[tuple[Any, str, Any]]

_on_append = RaftCore._on_append
_loaded = SnapshotIntake._loaded
_core_init = RaftCore.__init__
_journal_open = DiskJournal.open
_meta_open = NodeMeta.open
_decode_batch = lmqcluster.replication.base.batch_entry.decode_batch
_synced = Steps._synced
_align = lmqcluster.replication.storage.node_storage._align
_carry_out = SegmentFiles.carry_out
_drop_before = DiskJournal.drop_before
_store_open = SnapshotStore.open


def _truncating(self: RaftCore, node: Any, message: Any) -> None:
    journal, previous = self._journal, message["prevLogIdx"]
    overlaps = message["term"] >= self.term() and journal.first_index <= previous < journal.last_index
    if overlaps and journal.term_at(previous) == message["prevLogTerm"]:
        journal.truncate_from(previous + 1)
    _on_append(self, node, message)


def _committing_all(self: RaftCore, node: Any, message: Any) -> None:
    _on_append(self, node, message)
    if message["term"] == self.term():
        commit = min(message["commit_index"], self._journal.last_index)
        self._SyncObj__raftCommitIndex = max(self.commit_index(), commit)


def _hearing_all(self: RaftCore, node: Any, message: Any) -> Any:
    if message["term"] > self.term():
        self._meet_term(message["term"])
    if not self.is_leader() or (node not in self._SyncObj__otherNodes and node not in self._learners.nodes):
        return None
    self._SyncObj__lastResponseTime[node] = syncobj.monotonicTime()
    return self._sender.progress_of(node)


def _always_loaded(self: SnapshotIntake, node: Any, message: Any, info: Any) -> bool:
    if info is not None:
        return _loaded(self, node, message, info)
    self.is_installing = False
    self.reply(node, message, installed=True)
    return False


def _resetting(self: RaftCore, info: Any) -> None:
    self._journal.reset(info.index, info.term)
    self._history.begin(info.members)
    self.members_from_log()
    self._SyncObj__raftLastApplied = info.index
    self._SyncObj__raftCommitIndex = info.index
    self._recovery.holds(info.index, info.index)


def _rewritten(self: DiskJournal, index: int) -> Any:
    kept = self.entries_between(index, self.last_index)
    dropped = _drop_before(self, index)
    self.reset(kept[0].idx, kept[0].term)
    for entry in kept[1:]:
        self.add(entry.command, entry.idx, entry.term)
    return dropped


def _removing_first(self: SegmentFiles, steps: Any, first: int) -> None:
    self.remove_before(first)
    _carry_out(self, steps, first)


def _open_or_empty(self: SnapshotStore) -> Any:
    with contextlib.suppress(DamagedFileError):
        return _store_open(self)


def _align_if_any(journal: Any, latest: Any, disk: Any) -> None:
    if latest is not None:
        _align(journal, latest, disk)


def _admitting_all(self: NodeSequences, origin: bytes, incarnation: int, sequence: int) -> str:
    self._sessions[origin] = (incarnation, sequence)
    return "applied"


def _nothing(*_arguments: Any, **_options: Any) -> None:
    return None


def _align_by_reset(journal: Any, latest: Any, _disk: Any) -> None:
    if latest is not None:
        journal.reset(latest.index, latest.term)


def _tick_without_care(self: RaftCore, timeToWait: float = 0.0) -> None:  # noqa: N803 - the library's name
    self._synced_last = 1 << 60
    SyncObj.doTick(self, timeToWait)


def _open_unsynced(disk: Any, store: Any, base: bytes, **options: Any) -> DiskJournal:
    return _journal_open(disk, store, base, **{**options, "sync": False})


def _unchecked_record(data: Any, offset: int, seed: int) -> Record | None:
    segment = lmqcluster.replication.storage.journal.segment
    start = offset + RECORD_BYTES
    if start > len(data):
        return None
    length, kind, index, term = segment._RECORD_HEAD.unpack_from(data, offset + 8)
    (checksum,) = segment._CHECKSUM.unpack_from(data, offset)
    if kind not in {segment.ENTRY, segment.TRUNCATE} or start + length > len(data):
        return None
    return Record(seed, checksum, kind, index, term, start, start + length)


def _forgetting_vote(self: NodeMeta, term: int, vote: str | None) -> None:
    self.term, self.vote = term, vote


def _going_on(self: Steps, _error: Exception | None) -> None:
    _synced(self, None)


def _compacting_all(self: RaftCore) -> None:
    limit = self.applied_index()
    if self._journal.size_bytes > self._settings.log_bytes_soft and limit > self._journal.first_index:
        self._history.drop_before(limit)


def _back_by_one(self: RaftCore, node: Any, sequence: int, previous: int) -> None:
    self._reply_append(node, sequence, success=False, match=0, hint=previous)


def _decode_or_crash(data: bytes) -> Any:
    try:
        return _decode_batch(data)
    except Exception as exc:
        raise RuntimeError("a command that cannot be carried out") from exc


def _complete_unguarded(_self: Proposer, group: Any, result: Any) -> None:
    group.sink.completed(group, result)


def _silent_to_stale(self: RaftCore, node: Any, message: Any) -> None:
    if message["term"] >= self.term():
        _on_append(self, node, message)


def _campaigning_at_once(self: RaftCore) -> bool:
    others = self._SyncObj__otherNodes
    able = not self.is_recovering() and not self.is_installing() and self._self_id in self._members
    return able and 2 * (len(others & self._SyncObj__connectedNodes) + 1) > len(others) + 1


def _library_change(self: RaftCore, request: Any) -> bool:
    return bool(SyncObj._SyncObj__changeCluster(self, request))


def _members_never_undone(self: RaftCore, base: Any = None) -> None:
    if base is not None:
        self._history.begin(base)
    members = self._members
    for _, command in self._journal.changes:
        members = apply_change(members, command)
    self._set_members(dict(members))


def _trusted_at_once(disk: Any, new_id: str, founders: Any) -> NodeMeta:
    meta = _meta_open(disk, new_id, founders)
    meta.founding = False
    return meta


def _never_forgetful(self: RaftCore, *arguments: Any, **options: Any) -> None:
    _core_init(self, *arguments, **{**options, "forgetful": False})


def _trusting_any_leader(self: Recovery, leader: Any, term: int, last: int) -> None:
    if self.is_recovering and self._contact != (leader, term):
        self._contact = (leader, term)
        self._target = last


def _unsynced_snapshots(disk: Any, *, sync: bool) -> SnapshotStore:
    return SnapshotStore(disk, sync=False)


def _add_at_once(self: Any, member: str) -> None:
    self.change_members(True, member)


def _patches() -> dict[str, Patches]:
    journals = lmqcluster.replication.storage.journal.disk_journal
    segments = lmqcluster.replication.storage.journal.segment
    storage = lmqcluster.replication.storage.node_storage
    replica = lmqcluster.replication.replica
    meta = lmqcluster.replication.storage.meta
    return {
        "D1": [(RaftCore, "_on_append", _truncating)],
        "D2": [(RaftCore, "_on_append", _committing_all)],
        "D3": [(RaftCore, "_heard", _hearing_all)],
        "D4": [(SnapshotIntake, "_loaded", _always_loaded)],
        "D5": [(RaftCore, "_take_base", _resetting)],
        "D6": [(storage, "_align", _align_by_reset)],
        "D7": [(DiskJournal, "drop_before", _rewritten), (SegmentFiles, "carry_out", _removing_first)],
        "D8": [(DiskJournal, "open", staticmethod(_open_unsynced))],
        "D8 lone member": [(RaftCore, "doTick", _tick_without_care)],
        "D8 held replies": [(messages, "AFTER_SYNC", frozenset())],
        "D9": [(segments, "check_record", _unchecked_record), (journals, "check_record", _unchecked_record)],
        "D10": [(NodeMeta, "save_vote", _forgetting_vote)],
        "D11": [(Steps, "_synced", _going_on)],
        "D13": [(RaftCore, "compact", _compacting_all)],
        "D14": [(RaftCore, "_refuse_mismatch", _back_by_one)],
        "D15": [(replica, "decode_batch", _decode_or_crash)],
        "D16": [(Proposer, "_complete", _complete_unguarded)],
        "D18": [(SnapshotStore, "open", _open_or_empty), (storage, "_align", _align_if_any)],
        "D19": [(RaftCore, "_checkCommandsToApply", SyncObj._checkCommandsToApply)],
        "D20": [(Proposer, name, _nothing) for name in ("_sweep", "resend", "resend_soon")],
        "D20 snapshot over what waits": [(Proposer, "covered", _nothing)],
        "D21": [(NodeSequences, "admit", _admitting_all)],
        "D22": [(RaftCore, "_on_append", _silent_to_stale)],
        "D23": [(RaftCore, "_SyncObj__connectedToAnyone", _campaigning_at_once)],
        "D24": [(RaftCore, "_SyncObj__changeCluster", _library_change)],
        "D25": [(RaftCore, "members_from_log", _members_never_undone)],
        "tail written again": [(lmqcluster.replication.storage.journal.recovery._Replay, "rewrite", _nothing)],
        "log kept for a snapshot": [(LogSender, "_kept_snapshots", lambda _self, _nodes: [])],
        "receipts of a lost log": [(StaleReceipts, "are_possible", False)],
        "origin and incarnation": [
            (meta, "_fresh_origin", lambda node_id: node_id),
            (lmqcluster.node.membership.incarnation, "outlive", _nothing),
        ],
        "recovering": [(NodeStorage, "_has_forgotten", lambda _self: False)],
        "founding": [(NodeMeta, "open", staticmethod(_trusted_at_once))],
        "founders that differ": [(replica, "fingerprint", lambda _members: b"")],
        "forgetful": [(RaftCore, "__init__", _never_forgetful)],
        "proof of leadership": [(Recovery, "meet", _trusting_any_leader)],
        "snapshots in durability process": [(storage, "SnapshotStore", _unsynced_snapshots)],
        "learner": [(CoreReplica, "admit", _add_at_once), (NodeReplica, "admit", _add_at_once)],
    }


def switch(patches: Patches) -> Callable[[], AbstractContextManager[None]]:
    """Return a context manager that applies the patches."""

    @contextlib.contextmanager
    def switched_off() -> Any:
        with contextlib.ExitStack() as stack:
            for target, name, value in patches:
                stack.enter_context(mock.patch.object(target, name, value))
            yield

    return switched_off


SWITCHES = {name: switch(patches) for name, patches in _patches().items()}
"""By name, the context manager for the duration of a run."""
