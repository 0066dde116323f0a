"""The leader's part of replication: followers get the entries they lack, or a snapshot if the log begins later."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet

from pysyncobj import syncobj as library

from ..base.histogram import Histogram
from ..base.membership import PeerNode
from ..base.settings import RaftSettings
from ..peers.messages import BULK_BYTES
from ..storage.journal.journal import Entry, Journal
from ..storage.snapshots.snapshot_store import SnapshotInfo
from .commit_notifier import CommitNotifier
from .progress import Progress, SnapshotTransfer, State
from .snapshot_port import SnapshotPort
from .view import Carrier, Message, RaftView

__all__ = ["LogSender"]


class LogSender:
    """Tracks a leader's followers and sends to them.

    Args:
        raft: this node's Raft core.
        carrier: sends messages to followers.
        connected: the currently connected nodes; a live view.

    Attributes:
        round_trips: by follower, seconds from a message to it until its answer, its sync included.
    """

    def __init__(
        self,
        raft: RaftView,
        carrier: Carrier,
        journal: Journal,
        snapshots: SnapshotPort,
        settings: RaftSettings,
        connected: AbstractSet[PeerNode],
    ) -> None:
        self.round_trips: dict[str, Histogram] = {}
        self._raft = raft
        self._carrier = carrier
        self._journal = journal
        self._snapshots = snapshots
        self._settings = settings
        self._connected = connected
        self._progress: dict[PeerNode, Progress] = {}
        self._sequence = 0
        self._news = CommitNotifier()

    # --- progress of followers ------------------------------------------------------------------------------------

    def begin_term(self, nodes: Iterable[PeerNode]) -> None:
        """Begin to lead these nodes: their progress of earlier terms is void."""
        start = self._journal.last_index + 1
        self._progress = {node: Progress.begin(start, self._sequence) for node in nodes}

    def progress_of(self, node: PeerNode) -> Progress:
        """Return the progress of a follower."""
        progress = self._progress.get(node)
        if progress is None:
            progress = self._progress[node] = Progress.begin(self._journal.last_index + 1, self._sequence)
        return progress

    def forget(self, node: PeerNode) -> None:
        """Forget the progress of a node whose link is new or gone, or that is not a follower any more."""
        self._progress.pop(node, None)

    def time_answer(self, node: PeerNode, progress: Progress, sequence: int, now_s: float) -> None:
        """Time the round trip that ends with a follower's answer to message `sequence`."""
        if 0 < progress.timed_sequence <= sequence:
            progress.timed_sequence = 0
            round_trips = self.round_trips.get(str(node.id))
            if round_trips is None:
                round_trips = self.round_trips[str(node.id)] = Histogram()
            round_trips.observe(now_s - progress.timed_s)

    def snapshots_in_use(self) -> list[SnapshotInfo]:
        """Return the snapshots that are being sent."""
        return [p.snapshot.info for p in self._progress.values() if p.snapshot is not None]

    def kept_indexes(self, nodes: list[PeerNode], matches: Mapping[PeerNode, int]) -> list[int]:
        """Return indexes of entries that have to stay in the log, with all later ones, for followers.

        `matches` is the highest index that each follower is known to hold.
        """
        kept = self._kept_snapshots(nodes)
        if self._raft.is_leader():
            kept += [
                matches.get(node, 0)
                for node in nodes
                if self._needs_log(node) and self._journal.size_bytes <= self._log_bytes_for(node)
            ]
        return kept

    def _kept_snapshots(self, nodes: Iterable[PeerNode]) -> list[int]:
        """Return indexes of snapshots in flight, or soon to be: their followers will need the later entries."""
        kept = [info.index for info in self.snapshots_in_use()]
        if self._raft.is_leader() and any(self._awaits_snapshot(node) for node in nodes):
            latest, under_way = self._snapshots.latest(), self._snapshots.under_way()
            soon = [latest.index if latest is not None else 0, under_way or 0]
            kept += [index for index in soon if index >= self._journal.first_index]
        return kept

    def _awaits_snapshot(self, node: PeerNode) -> bool:
        return self._needs_log(node) and self.progress_of(node).next_index <= self._journal.first_index

    def _needs_log(self, node: PeerNode) -> bool:
        """Return whether the node continues from an entry that is still in the log, or will do so from a snapshot."""
        return node in self._connected and self.progress_of(node).state is not State.SNAPSHOT

    def _log_bytes_for(self, node: PeerNode) -> int:
        """Return how long the log may become for a node."""
        return max(self._settings.log_bytes_hard, self.progress_of(node).log_bytes)

    # --- entries --------------------------------------------------------------------------------------------------

    def flush(self, nodes: Iterable[PeerNode], hurried: Collection[PeerNode] | None) -> bool:
        """Send followers new entries and, immediately or with the next entries, a commit index that they do not have.

        Args:
            hurried: followers that wait for entries in the log now; None sends the commit index to all immediately.

        Returns:
            Whether the commit index is still to be sent to some, because that may wait.
        """
        last, commit = self._journal.last_index, self._raft.commit_index()
        may_wait = self._news.may_wait(commit, last, library.monotonicTime()) and hurried is not None
        waits = False
        for node in nodes:
            if hurried and node in hurried:
                self.progress_of(node).awaited_index = last
            self.replicate(node, heartbeat=False, may_wait=may_wait)
            waits = waits or (may_wait and self.progress_of(node).commit_sent < commit)
        return waits

    def has_sent_all(self, node: PeerNode) -> bool:
        """Return whether all entries have been sent to a follower whose log is known to match."""
        progress = self._progress.get(node)
        return (
            progress is not None
            and progress.state is State.REPLICATE
            and progress.next_index > self._journal.last_index
        )

    def replicate(self, node: PeerNode, *, heartbeat: bool, may_wait: bool = False) -> None:
        """D14: send a follower the entries it lacks, one probe at a time while the match of its log is unknown.

        If `may_wait`, the commit index is sent only to a follower that waits for it.
        """
        if node not in self._connected:
            return
        progress = self.progress_of(node)
        needs_snapshot = progress.state is not State.SNAPSHOT and progress.next_index <= self._journal.first_index
        if needs_snapshot and not self._begin_snapshot(progress):
            if heartbeat:
                self._send_empty(node, progress)
        elif progress.snapshot is not None:
            self._send_snapshot(node, progress, progress.snapshot, heartbeat=heartbeat)
        else:
            self._send_entries(node, progress, heartbeat=heartbeat, may_wait=may_wait)

    def _send_entries(self, node: PeerNode, progress: Progress, *, heartbeat: bool, may_wait: bool) -> None:
        last, commit = self._journal.last_index, self._raft.commit_index()
        while True:
            entries: list[Entry] = []
            is_probe = progress.state is State.PROBE
            if progress.next_index <= last and progress.may_send_entries():
                entries = self._journal.entries(progress.next_index, self._settings.append_bytes_max)
                if is_probe and _is_bulk(entries):
                    # The probe first shows whether the follower can continue from here.
                    entries = []
            told = min(progress.awaited_index, commit) if may_wait else commit
            unaware = progress.commit_sent < told or (is_probe and not progress.probe_sent)
            if not (entries or heartbeat or unaware):
                return
            self._send_append(node, progress, entries)
            heartbeat = False

    def _number(self, progress: Progress) -> None:
        """D3: number the next message; a number is never reused, even if `progress` is discarded."""
        self._sequence += 1
        progress.sequence = self._sequence
        if not progress.timed_sequence:
            progress.timed_sequence, progress.timed_s = self._sequence, library.monotonicTime()

    def _send_append(self, node: PeerNode, progress: Progress, entries: list[Entry]) -> None:
        previous, commit = progress.next_index - 1, self._raft.commit_index()
        self._number(progress)
        self._carrier.send(
            node,
            {
                "type": "append_entries",
                "term": self._raft.term(),
                "seq": progress.sequence,
                "commit_index": commit,
                "prevLogIdx": previous,
                "prevLogTerm": self._journal.term_at(previous),
                "last": self._journal.last_index,
                "entries": entries,
            },
        )
        progress.commit_sent = commit
        if progress.state is State.PROBE:
            progress.probe_sent = True
        elif _is_bulk(entries):
            progress.become_bulk()
        elif entries:
            progress.sent(entries[-1].idx, sum(len(entry.command) for entry in entries))

    def _send_empty(self, node: PeerNode, progress: Progress) -> None:
        """Keep the follower from campaigning; its refusal is ignored while it waits for a snapshot."""
        last = self._journal.last_index
        self._number(progress)
        self._carrier.send(
            node,
            {
                "type": "append_entries",
                "term": self._raft.term(),
                "seq": progress.sequence,
                "commit_index": 0,
                "prevLogIdx": last,
                "prevLogTerm": self._journal.term_at(last),
                "last": last,
                "entries": [],
            },
        )

    # --- snapshots ------------------------------------------------------------------------------------------------

    def snapshot_answered(self, progress: Progress, message: Message) -> int | None:
        """Record a follower's answer to a block; return the index of the snapshot if it is installed now."""
        transfer = progress.snapshot
        if transfer is None or message["index"] != transfer.info.index:
            return None
        if message["installed"]:
            progress.snapshot_installed(transfer.info.index)
            # It has to catch up with entries added during the transfer; if the log were cut, it would need another
            # snapshot, and so forever.
            progress.log_bytes = 2 * self._journal.size_bytes
            return transfer.info.index
        if message["restart"]:
            progress.snapshot_failed(library.monotonicTime())
        else:
            transfer.acknowledge(message["number"] + 1)
        return None

    def send_newer_snapshot(self, node: PeerNode, applied: int) -> None:
        """Send a snapshot newer than `applied` to a follower whose state cannot continue, or request one."""
        progress, latest = self.progress_of(node), self._snapshots.latest()
        if progress.state is State.SNAPSHOT or applied >= self._raft.commit_index() or self._pauses(progress):
            # One is in flight, or there is nothing newer.
            return
        if latest is not None and latest.index > max(applied, self._journal.first_index - 1):
            progress.become_snapshot(latest)
        else:
            self._snapshots.request()

    def _begin_snapshot(self, progress: Progress) -> bool:
        """Send the latest snapshot if the log continues from it; otherwise request one and return False."""
        if self._pauses(progress):
            return False
        latest = self._snapshots.latest()
        if latest is None or latest.index < self._journal.first_index:
            self._snapshots.request()
            return False
        progress.become_snapshot(latest)
        return True

    def _pauses(self, progress: Progress) -> bool:
        """Return whether it is too early for another snapshot after one that failed."""
        return bool(library.monotonicTime() < progress.snapshot_from_s)

    def _send_snapshot(
        self, node: PeerNode, progress: Progress, transfer: SnapshotTransfer, *, heartbeat: bool
    ) -> None:
        if heartbeat and not transfer.sendable() and transfer.is_stalled():
            # An answer may have been lost, or blocks behind a lost one: continue from the last acknowledged block.
            transfer.sent = min(transfer.acknowledged, transfer.info.blocks - 1)
        has_sent = False
        while numbers := transfer.sendable():
            block = transfer.read.pop(transfer.sent, None)
            if block is None:
                if transfer.is_reading:
                    break
                transfer.is_reading = True
                self._snapshots.read_blocks(transfer.info, numbers, transfer.have_read)
                continue
            has_sent = True
            self._send_block(node, progress, transfer, block)
        if heartbeat and not has_sent:
            self._send_empty(node, progress)

    def _send_block(self, node: PeerNode, progress: Progress, transfer: SnapshotTransfer, block: bytes) -> None:
        self._number(progress)
        self._carrier.send(
            node,
            {
                "type": "snapshot",
                "term": self._raft.term(),
                "seq": progress.sequence,
                "index": transfer.info.index,
                "index_term": transfer.info.term,
                "number": transfer.sent,
                "count": transfer.info.blocks,
                "last": self._journal.last_index,
                "data": block,
            },
        )
        transfer.sent += 1


def _is_bulk(entries: list[Entry]) -> bool:
    """Return whether this is a large entry, which travels in pieces."""
    return len(entries) == 1 and len(entries[0].command) > BULK_BYTES
