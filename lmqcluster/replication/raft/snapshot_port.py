"""The Raft core's interface to snapshots; `SnapshotKeeper` implements it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..base.membership import PeerNode
from ..storage.snapshots.snapshot_store import SnapshotInfo

__all__ = ["SnapshotPort", "SnapshotReceiver"]


class SnapshotReceiver(Protocol):
    """A snapshot that arrives block by block."""

    @property
    def next_block(self) -> int:
        """Return how many blocks have been taken."""

    def take(self, number: int, block: bytes) -> None:
        """Keep a block, which must be the next one.

        Raises:
            ValueError: it is damaged.
        """

    def is_busy(self) -> bool:
        """Return whether the sender should wait for the disk; after it, `RaftCore.acknowledge_blocks` is called."""

    def resumes(self, first_block: bytes) -> bool:
        """Return whether a transfer that begins with this block repeats this one."""

    def abandon(self) -> None:
        """Discard the blocks taken."""


class SnapshotPort(Protocol):
    """Takes, keeps, sends and installs snapshots."""

    def latest(self) -> SnapshotInfo | None:
        """Return the newest complete snapshot."""

    def under_way(self) -> int | None:
        """Return the log index of the snapshot that is being taken."""

    def request(self) -> None:
        """Take a snapshot from which the log continues soon, for a follower, unless one is being taken."""

    def read_blocks(self, info: SnapshotInfo, numbers: range, done: Callable[[dict[int, bytes]], None]) -> None:
        """Read some blocks, ready to be sent; call `done` immediately or at the beginning of a later step."""

    def receive(self, index: int, term: int) -> SnapshotReceiver:
        """Begin to receive a snapshot."""

    def install(
        self, receiver: SnapshotReceiver, source: PeerNode, loaded: Callable[[SnapshotInfo | None], bool]
    ) -> None:
        """Verify, store and load a received snapshot without stopping the node; then call `loaded`.

        Pages and other data that the snapshot refers to come from `source`. `loaded` gets None if the snapshot is
        damaged or the rest is unavailable. If `loaded` returns true, the snapshot becomes the latest one and the
        state is replaced in the same turn; otherwise the snapshot is discarded.
        """
