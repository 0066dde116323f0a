"""Snapshots of the simulated core: the real store, without workers and slices."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmqcluster.replication.base.membership import PeerNode
    from lmqcluster.replication.raft.snapshot_port import SnapshotReceiver
    from lmqcluster.replication.storage.snapshots import snapshot_store
    from lmqcluster.replication.storage.snapshots.snapshot_store import SnapshotInfo, SnapshotStore
    from tests.simulation.host import Host

__all__ = ["InlineSnapshots"]


class _Receiver:
    """Writes each received block immediately."""

    def __init__(self, incoming: snapshot_store.SnapshotReceiver) -> None:
        self.incoming = incoming

    @property
    def next_block(self) -> int:
        return self.incoming.next_block

    def take(self, number: int, block: bytes) -> None:
        self.incoming.take(number, block)
        work = self.incoming.take_work()
        if work is not None:
            work()

    def is_busy(self) -> bool:
        return False

    def resumes(self, first_block: bytes) -> bool:
        return self.incoming.resumes(first_block)

    def abandon(self) -> None:
        self.incoming.abandon()


class InlineSnapshots:
    """A `SnapshotPort` whose state is the index and digest of the host's application.

    Attributes:
        in_use: returns the snapshots that are being sent.
    """

    def __init__(
        self, host: Host, store: SnapshotStore, position: Callable[[], tuple[int, int, dict[str, str]]]
    ) -> None:
        self._host = host
        self._store = store
        self._position = position
        self.in_use: Callable[[], list[SnapshotInfo]] = list
        if store.latest is not None:
            self._restore(store.latest)

    def latest(self) -> SnapshotInfo | None:
        return self._store.latest

    def under_way(self) -> int | None:
        return None

    def request(self) -> None:
        index, term, members = self._position()
        latest = self._store.latest
        if latest is not None and latest.index >= index:
            return
        application = self._host.application
        writer = self._store.create(index, term, members, 0)
        writer.add([application.index, application.digest])
        writer.finish_work()()
        self._store.adopt(writer)
        self._remove_older()

    def read_blocks(self, info: SnapshotInfo, numbers: range, done: Callable[[dict[int, bytes]], None]) -> None:
        done({number: self._store.read_block(info, number) for number in numbers})

    def receive(self, index: int, term: int) -> SnapshotReceiver:
        return _Receiver(self._store.receive(index, term))

    def install(
        self, receiver: SnapshotReceiver, source: PeerNode, loaded: Callable[[SnapshotInfo | None], bool]
    ) -> None:
        assert isinstance(receiver, _Receiver)
        receiver.incoming.finish_work()()
        if loaded(receiver.incoming.info):
            self._restore(self._store.adopt(receiver.incoming))
        else:
            receiver.incoming.abandon()
        self._remove_older()

    def _restore(self, info: SnapshotInfo) -> None:
        ((index, digest),) = self._store.records(info)
        self._host.checkers.restored(self._host, index, digest)

    def _remove_older(self) -> None:
        in_use = self.in_use()
        for info in in_use:
            self._store.pin(info)
        work = self._store.remove_older_work()
        for info in in_use:
            self._store.unpin(info)
        work()
