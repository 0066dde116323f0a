"""What the Raft core needs of snapshots; `SnapshotKeeper` provides it."""

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
        """How many blocks have been taken."""

    def take(self, number: int, block: bytes) -> None:
        """Keep a block, which must be the next one.

        Raises:
            ValueError: it is damaged.
        """

    def is_busy(self) -> bool:
        """Whether the sender should wait for the disk; `RaftCore.acknowledge_blocks` is called when it has caught up."""

    def resumes(self, first_block: bytes) -> bool:
        """Whether a transfer that begins with this block is this one again."""

    def abandon(self) -> None:
        """Throw away what has come."""


class SnapshotPort(Protocol):
    """Takes, keeps, sends and installs snapshots."""

    def latest(self) -> SnapshotInfo | None:
        """The newest complete one."""

    def under_way(self) -> int | None:
        """Log index of the one that is being taken."""

    def request(self) -> None:
        """A follower needs one that the log goes on from: take one soon, unless one is being taken."""

    def read_blocks(self, info: SnapshotInfo, numbers: range, done: Callable[[dict[int, bytes]], None]) -> None:
        """Read some blocks, ready to be sent; `done` is called at once, or at the beginning of a later step."""

    def receive(self, index: int, term: int) -> SnapshotReceiver:
        """Begin to receive one."""

    def install(
        self, receiver: SnapshotReceiver, source: PeerNode, loaded: Callable[[SnapshotInfo | None], bool]
    ) -> None:
        """Verify, store and load what was received, without stopping the node; then call `loaded`.

        What the snapshot refers to comes from `source`. `loaded` gets None if the snapshot is damaged or the rest cannot be had.

        If `loaded` returns true, the snapshot becomes the latest one and the state is replaced in the same turn; otherwise
        nothing is kept of it.
        """
