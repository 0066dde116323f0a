"""The folder of snapshot files: the newest one, and older ones as long as they are being sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ..io.disk import Disk
from ..io.worker import Work
from .portable_snapshot import Payload, write_portable
from .snapshot_file import Header
from .snapshot_output import SnapshotReceiver, SnapshotWriter
from .stored_snapshot import SnapshotInfo, StoredSnapshot

__all__ = ["SnapshotInfo", "SnapshotReceiver", "SnapshotStore", "SnapshotWriter"]

_SUFFIX = ".snap"


class SnapshotStore:
    """Snapshots in one folder.

    All methods are called on one thread; the work that they return runs on another one, in order.

    Attributes:
        latest: the newest complete snapshot.
    """

    def __init__(self, disk: Disk, *, sync: bool) -> None:
        """Prepare the store; with `sync`, a snapshot is durable before it is complete."""
        self.latest: SnapshotInfo | None = None
        self._disk = disk
        self._sync = sync
        self._stored: dict[SnapshotInfo, StoredSnapshot] = {}
        self._pins: Counter[SnapshotInfo] = Counter()

    # --- opening --------------------------------------------------------------------------------------------------

    def open(self) -> SnapshotInfo | None:
        """Find the newest snapshot, and remove older and unfinished ones.

        Raises:
            DamagedFileError: the newest is damaged, or a file has an invalid name.
            OSError: a file cannot be read or removed.
        """
        names = self._disk.names()
        snapshots = [name for name in names if name.endswith(_SUFFIX)]
        if snapshots:
            stored = StoredSnapshot.open(self._disk, snapshots[-1])
            self._stored[stored.info] = stored
            self.latest = stored.info
            if self._sync:
                # A process that died may have renamed the file without a sync, and the log will begin there.
                self._disk.sync()
        # Only now: if the newest is damaged, its repair may need the others.
        obsolete = [*snapshots[:-1], *(name for name in names if name.endswith(".tmp"))]
        self._remove(obsolete)
        return self.latest

    def close(self) -> None:
        """Close the files."""
        for stored in self._stored.values():
            stored.close()
        self._stored.clear()
        self._pins.clear()
        self.latest = None

    # --- making ---------------------------------------------------------------------------------------------------

    def create(self, index: int, term: int, members: Mapping[str, str], created_us: int) -> SnapshotWriter:
        """Begin to write the state after the entry `index`.

        Raises:
            ValueError: `latest` is not older.
        """
        if self.latest is not None and index <= self.latest.index:
            raise ValueError(f"there is a snapshot of entry {self.latest.index} already, {index} is not newer")
        header = Header(index, term, dict(members), created_us)
        return SnapshotWriter(self._disk, header, sync=self._sync, in_use=self._in_use)

    def receive(self, index: int, term: int) -> SnapshotReceiver:
        """Begin to receive the state after the entry `index`; an earlier receiver must be abandoned or adopted."""
        return SnapshotReceiver(self._disk, index, term, sync=self._sync, in_use=self._in_use)

    def adopt(self, output: SnapshotWriter | SnapshotReceiver) -> SnapshotInfo:
        """Make a finished snapshot the latest.

        Raises:
            RuntimeError: it is not finished, or `latest` is not older.
        """
        stored = output.adopted(newer_than=self.latest)
        self._stored[stored.info] = stored
        self.latest = stored.info
        return stored.info

    def remove_older_work(self) -> Work:
        """Return work that removes all files older than the latest, except those that are pinned."""
        older = [info for info in self._stored if info is not self.latest and not self._pins[info]]
        closing = [self._stored.pop(info) for info in older]
        kept = {info.file for info in self._stored}
        latest = self.latest.file if self.latest is not None else ""

        def work() -> None:
            for stored in closing:
                stored.close()
            names = (name for name in self._disk.names() if name.endswith(_SUFFIX))
            self._remove([name for name in names if name < latest and name not in kept])

        return work

    def _remove(self, names: list[str]) -> None:
        for name in names:
            self._disk.remove(name)
        if names and self._sync:
            self._disk.sync()

    def _in_use(self, name: str) -> bool:
        return any(info.file == name for info in list(self._stored))

    def infos(self) -> Collection[SnapshotInfo]:
        """Return the snapshots whose files exist."""
        return self._stored.keys()

    # --- reading --------------------------------------------------------------------------------------------------

    def pin(self, info: SnapshotInfo) -> None:
        """Keep the file until it is unpinned as often as it was pinned.

        Raises:
            LookupError: it has been removed.
        """
        self.find(info)
        self._pins[info] += 1

    def unpin(self, info: SnapshotInfo) -> None:
        """Undo one `pin`; the next `remove_older_work` may remove the file."""
        self._pins[info] -= 1
        if self._pins[info] <= 0:
            del self._pins[info]

    def read_block(self, info: SnapshotInfo, number: int) -> bytes:
        """Return the stored form of a block, as expected by `SnapshotReceiver.take`.

        Raises:
            DamagedFileError: it is damaged.
            LookupError: the snapshot has been removed, or there is no such block.
        """
        return self.find(info).read_block(number)

    def records(self, info: SnapshotInfo) -> Iterator[Any]:
        """Yield the records, verifying all data read, with one block in memory at a time.

        Raises:
            DamagedFileError: it is damaged, which may show after many records.
            LookupError: the snapshot has been removed.
        """
        return self.find(info).records()

    def write_portable(self, info: SnapshotInfo, payload: Payload) -> StoredSnapshot:
        """Copy a snapshot into one that names no pages; may run on another thread while the snapshot is kept.

        Raises:
            OSError: it cannot be written.
            DamagedFileError, ValueError: the snapshot or a page is damaged.
        """
        stored = self.find(info)
        header = Header(info.index, info.term, dict(info.members), info.created_us)
        return write_portable(self._disk, _portable_name(info), header, stored.records(), payload)

    def remove_portable(self, stored: StoredSnapshot) -> None:
        """Remove a portable copy."""
        stored.close()
        self._disk.remove(_portable_name(stored.info))

    def find(self, info: SnapshotInfo) -> StoredSnapshot:
        """Return the open file of a snapshot, as long as it is kept.

        Raises:
            LookupError: it has been removed.
        """
        stored = self._stored.get(info)
        if stored is None:
            raise LookupError(f"the snapshot {info.file} has been removed")
        return stored


def _portable_name(info: SnapshotInfo) -> str:
    # The next start removes it.
    return f"{info.index:020d}.portable.tmp"
