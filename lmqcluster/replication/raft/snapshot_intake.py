"""The follower's part of a snapshot transfer: collect, verify, install, and only then acknowledge."""

from __future__ import annotations

from collections.abc import Callable

from ..base.membership import PeerNode
from ..storage.snapshots.snapshot_store import SnapshotInfo
from .snapshot_port import SnapshotPort, SnapshotReceiver
from .view import Carrier, Message, RaftView

__all__ = ["SnapshotIntake"]


class SnapshotIntake:
    """Receives snapshots of a leader.

    Args:
        raft: this node's Raft core.
        carrier: sends the replies to the leader.
        snapshots: keeps and installs received snapshots.
        take_base: makes an installed snapshot the base of the log.

    Attributes:
        is_installing: whether a complete snapshot is being loaded.
        received_blocks: counts the blocks received, each one once for each transfer.
    """

    def __init__(
        self, raft: RaftView, carrier: Carrier, snapshots: SnapshotPort, take_base: Callable[[SnapshotInfo], None]
    ) -> None:
        self._raft = raft
        self._carrier = carrier
        self._snapshots = snapshots
        self._take_base = take_base
        self._incoming: tuple[int, int, SnapshotReceiver] | None = None
        self._last_block: tuple[PeerNode, Message] | None = None
        self.is_installing = False
        self.received_blocks = 0

    def take(self, node: PeerNode, message: Message) -> None:
        """Process a block from the leader of the current term."""
        if message["index"] <= self._raft.snapshot_floor():
            self.reply(node, message, installed=True)
            return
        if self.is_installing:
            return
        receiver = self._receiver_of(message)
        if receiver is None:
            self.reply(node, message, restart=True)
            return
        if receiver.next_block < message["count"]:
            self._last_block = (node, message)
            if not receiver.is_busy():
                self.acknowledge_blocks()
            return
        self._incoming = None
        self.is_installing = True
        self._snapshots.install(receiver, node, lambda info: self._loaded(node, message, info))

    def acknowledge_blocks(self) -> None:
        """Report to the leader how many blocks of the current snapshot have arrived, so that it sends more."""
        if self._incoming is not None and self._last_block is not None:
            node, message = self._last_block
            self.reply(node, message, number=self._incoming[2].next_block - 1)

    def reply(
        self,
        node: PeerNode,
        message: Message,
        *,
        number: int | None = None,
        installed: bool = False,
        restart: bool = False,
    ) -> None:
        """Answer a block with the last one received, and whether the snapshot is installed or must be sent again."""
        self._carrier.send(
            node,
            {
                "type": "snapshot_reply",
                "term": self._raft.term(),
                "seq": message["seq"],
                "index": message["index"],
                "number": message["number"] if number is None else number,
                "installed": installed,
                "restart": restart,
            },
        )

    def _receiver_of(self, message: Message) -> SnapshotReceiver | None:
        """Return the transfer that a block belongs to, with the block taken; None if it must begin again."""
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
                self.received_blocks += 1
            except ValueError:
                self._drop_incoming()
                return None
        # Earlier blocks are held already, and those behind a gap are sent again.
        return receiver

    def _drop_incoming(self) -> None:
        if self._incoming is not None:
            self._incoming[2].abandon()
            self._incoming = None

    def _loaded(self, node: PeerNode, message: Message, info: SnapshotInfo | None) -> bool:
        """D4: finish a verified, durable and loaded snapshot (None: it failed); return whether it replaces the state."""
        self.is_installing = False
        taken = info is not None and info.index > self._raft.snapshot_floor()
        if info is not None and taken:
            self._take_base(info)
        self.reply(node, message, installed=info is not None, restart=info is None)
        return taken
