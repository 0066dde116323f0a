"""The leader's record of one follower: the state of its replication and the flow control of its messages."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import ClassVar

from ..storage.snapshots.snapshot_store import SnapshotInfo

__all__ = ["Progress", "SnapshotTransfer", "State"]

WINDOW_BYTES_MAX = 16 * 1024 * 1024
WINDOW_MESSAGES_MAX = 256
SNAPSHOT_PAUSE_S = 0.1
SNAPSHOT_PAUSE_S_MAX = 6.4
"""First and longest pause after a failed snapshot, which may have lacked pages that no node has."""


class State(Enum):
    """The state of a follower's replication, as in etcd's `tracker`.

    PROBE: the index at which its log matches is unknown. The leader sends one message at a time, until an answer shows a match.
    REPLICATE: the logs match below `next_index`. The leader sends new entries without waiting, up to a window.
    BULK: as REPLICATE, while the entry at `next_index` is on its way in pieces. Messages without entries overtake it; further
        entries wait until the follower holds it.
    SNAPSHOT: the follower receives a snapshot. Answers to entries change nothing.
    """

    PROBE = auto()
    REPLICATE = auto()
    BULK = auto()
    SNAPSHOT = auto()


@dataclass(slots=True)
class SnapshotTransfer:
    """A snapshot in flight to a follower whose next entry is no longer in the log.

    Attributes:
        info: the snapshot.
        sent, acknowledged: numbers of blocks.
        read: by number, blocks that have been read and not been sent yet.
        is_reading: whether more are being read.
    """

    info: SnapshotInfo
    sent: int = 0
    acknowledged: int = 0
    beats: int = 0
    read: dict[int, bytes] = field(default_factory=dict)
    is_reading: bool = False

    WINDOW: ClassVar[int] = 8
    STALLED_BEATS: ClassVar[int] = 10

    def sendable(self) -> range:
        """Return numbers of the blocks that may be sent before an answer."""
        return range(self.sent, min(self.info.blocks, self.acknowledged + self.WINDOW))

    def have_read(self, blocks: dict[int, bytes]) -> None:
        """Take the blocks that have been read."""
        self.read, self.is_reading = blocks, False

    def acknowledge(self, count: int) -> None:
        """Record that the follower holds the first `count` blocks, possibly from an earlier connection."""
        self.acknowledged = max(self.acknowledged, count)
        self.sent = max(self.sent, self.acknowledged)
        self.beats = 0

    def is_stalled(self) -> bool:
        """Count a heartbeat; return whether so many have passed without an answer that a message must have been lost."""
        self.beats += 1
        return self.beats % self.STALLED_BEATS == 0


@dataclass(slots=True)
class Progress:
    """Replication state of one follower, valid for one term and one connection.

    Invariants:
        `snapshot` is set in SNAPSHOT only.
        `inflight` is empty in PROBE.
        The indexes in `inflight` increase and are below `next_index`; `inflight_bytes` is the sum of their bytes.
        first_sequence <= reset_sequence <= sequence + 1.

    Attributes:
        next_index: index of the next entry to send; at least 1.
        state: see `State`; changed by the `become_...` methods and by `matched`.
        probe_sent: in PROBE, whether the probe is in flight.
        snapshot: in SNAPSHOT, the transfer.
        sequence: number of the last message sent.
        first_sequence: all replies to older messages are void.
        reset_sequence: replies to older messages that report a mismatch are void.
        commit_sent: highest commit index sent.
        awaited_index: the follower waits for the commit of entries up to here.
        inflight: (last index, bytes) of unanswered messages with entries.
        snapshot_pause_s: pause after the last failed snapshot; 0 if there was none.
        snapshot_from_s: when one may be sent again.
        log_bytes: size that the log may reach until the follower has caught up after a snapshot.
        timed_sequence: the message whose answer is timed, one at a time; 0 for none.
        timed_s: when it was sent.
    """

    next_index: int
    state: State = State.PROBE
    probe_sent: bool = False
    sequence: int = 0
    first_sequence: int = 0
    reset_sequence: int = 0
    commit_sent: int = 0
    awaited_index: int = 0
    inflight_bytes: int = 0
    inflight: deque[tuple[int, int]] = field(default_factory=deque)
    snapshot: SnapshotTransfer | None = None
    snapshot_pause_s: float = 0.0
    snapshot_from_s: float = 0.0
    log_bytes: int = 0
    timed_sequence: int = 0
    timed_s: float = 0.0
    _state_before_snapshot: State = field(default=State.PROBE, init=False)

    @classmethod
    def begin(cls, next_index: int, sequence: int) -> Progress:
        """Return the record at the start of a term or connection, when `sequence` was the last number used."""
        return cls(next_index, sequence=sequence, first_sequence=sequence + 1, reset_sequence=sequence + 1)

    def become_probe(self, next_index: int) -> None:
        """Search for the match from `next_index` on; answers to earlier messages no longer report a mismatch."""
        self.state = State.PROBE
        self.snapshot = None
        self.next_index = next_index
        self.probe_sent = False
        self.reset_sequence = self.sequence + 1
        self.inflight.clear()
        self.inflight_bytes = 0

    def become_bulk(self) -> None:
        """Send no further entries until the follower holds the one at `next_index`, which is sent in pieces."""
        self.state = State.BULK

    def become_snapshot(self, info: SnapshotInfo) -> None:
        """Send a snapshot."""
        if self.state is not State.SNAPSHOT:
            self._state_before_snapshot = self.state
        self.state = State.SNAPSHOT
        self.snapshot = SnapshotTransfer(info)

    def snapshot_failed(self, now_s: float) -> None:
        """Return to the state before the failed snapshot; pause before the next one, longer each time."""
        self.state = self._state_before_snapshot
        self.snapshot = None
        self.snapshot_pause_s = min(max(SNAPSHOT_PAUSE_S, 2 * self.snapshot_pause_s), SNAPSHOT_PAUSE_S_MAX)
        self.snapshot_from_s = now_s + self.snapshot_pause_s

    def snapshot_installed(self, index: int) -> None:
        """Probe behind `index`, the last entry of the snapshot that the follower has installed."""
        self.snapshot_pause_s = self.snapshot_from_s = 0.0
        self.become_probe(index + 1)

    def may_send_entries(self) -> bool:
        """Return whether more entries may be sent before an answer."""
        if self.state is State.PROBE:
            return not self.probe_sent
        return (
            self.state is State.REPLICATE
            and self.inflight_bytes < WINDOW_BYTES_MAX
            and len(self.inflight) < WINDOW_MESSAGES_MAX
        )

    def sent(self, last_index: int, size_bytes: int) -> None:
        """Count a message with entries up to `last_index`."""
        self.next_index = last_index + 1
        self.inflight.append((last_index, size_bytes))
        self.inflight_bytes += size_bytes

    def matched(self, match_index: int, sequence: int) -> None:
        """Record that the follower, answering message `sequence`, holds all entries up to `match_index`."""
        while self.inflight and self.inflight[0][0] <= match_index:
            self.inflight_bytes -= self.inflight.popleft()[1]
        has_bulk = self.state is State.BULK and match_index >= self.next_index
        self.next_index = max(self.next_index, match_index + 1)
        if has_bulk or (self.state is State.PROBE and sequence >= self.reset_sequence):
            self.state = State.REPLICATE
