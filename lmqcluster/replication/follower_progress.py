"""What a leader knows of one follower's log."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import ClassVar

from .storage.snapshot_store import SnapshotInfo

__all__ = ["Progress", "SnapshotTransfer"]

WINDOW_BYTES_MAX = 16 * 1024 * 1024
WINDOW_MESSAGES_MAX = 256
SNAPSHOT_PAUSE_S = 0.1
SNAPSHOT_PAUSE_S_MAX = 6.4
"""Before a snapshot is sent again that was of no use: at first, and at most. It may lack what nobody has any more."""


@dataclass(slots=True)
class SnapshotTransfer:
    """A snapshot on its way to a follower whose next entry is no longer in the log.

    Attributes:
        info: the snapshot.
        sent, acknowledged: how many of its blocks.
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
        """Numbers of the blocks that may be sent before an answer."""
        return range(self.sent, min(self.info.blocks, self.acknowledged + self.WINDOW))

    def have_read(self, blocks: dict[int, bytes]) -> None:
        """What was being read has come."""
        self.read, self.is_reading = blocks, False

    def acknowledge(self, count: int) -> None:
        """The follower holds the first `count` blocks, be it from an earlier connection."""
        self.acknowledged = max(self.acknowledged, count)
        self.sent = max(self.sent, self.acknowledged)
        self.beats = 0

    def is_stalled(self) -> bool:
        """Count a heartbeat; whether so many have passed without an answer that something must have been lost."""
        self.beats += 1
        return self.beats % self.STALLED_BEATS == 0


@dataclass(slots=True)
class Progress:
    """Replication state of one follower, valid for one term and one connection.

    Attributes:
        next_index: index of the next entry to send.
        probing: whether it is still unknown where the follower's log matches; then one probe at a time is sent.
        probe_sent: whether that probe is on its way.
        sequence: number of the last message sent.
        first_sequence: replies to older messages are void, whatever they say.
        reset_sequence: replies to older messages that report a mismatch are void.
        commit_sent: highest commit index told.
        awaited_index: the follower waits to be told that entries up to here are committed.
        inflight: (last index, bytes) of unanswered messages with entries.
        snapshot_pause_s: for how long no snapshot was sent after the last one that was of no use; 0 if there was none.
        snapshot_from_s: when one may be sent again.
        log_bytes: how long the log may become until the follower has caught up after a snapshot.
        bulk_index: the entry that is on its way in pieces, so that messages without entries overtake it; 0 for none.
        timed_sequence: the message whose answer is timed, 0 for none; one at a time is.
        timed_s: when it was sent.
    """

    next_index: int
    probing: bool = True
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
    bulk_index: int = 0
    timed_sequence: int = 0
    timed_s: float = 0.0

    @classmethod
    def begin(cls, next_index: int, sequence: int) -> Progress:
        """What is known at the start of a term or connection, when `sequence` was the last number used."""
        return cls(next_index, sequence=sequence, first_sequence=sequence + 1, reset_sequence=sequence + 1)

    def snapshot_failed(self, now_s: float) -> None:
        """The follower could not use a snapshot: pause, longer each time, before it gets one again."""
        self.snapshot = None
        self.snapshot_pause_s = min(max(SNAPSHOT_PAUSE_S, 2 * self.snapshot_pause_s), SNAPSHOT_PAUSE_S_MAX)
        self.snapshot_from_s = now_s + self.snapshot_pause_s

    def snapshot_installed(self) -> None:
        """The follower has the state of a snapshot."""
        self.snapshot = None
        self.snapshot_pause_s = self.snapshot_from_s = 0.0

    def probe_from(self, next_index: int) -> None:
        """Begin to look for the match at `next_index`; answers to everything sent so far say nothing any more."""
        self.next_index = next_index
        self.probing = True
        self.probe_sent = False
        self.reset_sequence = self.sequence + 1
        self.inflight.clear()
        self.inflight_bytes = 0
        self.bulk_index = 0

    def window_open(self) -> bool:
        """Whether more entries may be sent before an answer."""
        return self.inflight_bytes < WINDOW_BYTES_MAX and len(self.inflight) < WINDOW_MESSAGES_MAX

    def sent(self, last_index: int, size_bytes: int) -> None:
        """Count a message with entries up to `last_index`."""
        self.next_index = last_index + 1
        self.inflight.append((last_index, size_bytes))
        self.inflight_bytes += size_bytes

    def matched(self, match_index: int, sequence: int) -> None:
        """The follower, answering message `sequence`, holds everything up to `match_index`."""
        while self.inflight and self.inflight[0][0] <= match_index:
            self.inflight_bytes -= self.inflight.popleft()[1]
        self.next_index = max(self.next_index, match_index + 1)
        if self.next_index > self.bulk_index:
            self.bulk_index = 0
        if sequence >= self.reset_sequence:
            self.probing = False
