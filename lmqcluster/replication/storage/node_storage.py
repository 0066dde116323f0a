"""All data that one node keeps on its disk, opened together and checked against each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from .io.disk import DamagedFileError, Disk
from .journal.disk_journal import DiskJournal
from .journal.journal import Journal, MemoryJournal
from .meta import NodeMeta, boot_id
from .snapshots.snapshot_store import SnapshotInfo, SnapshotStore

__all__ = ["Disks", "DurabilityError", "NodeStorage", "void_data"]

log = structlog.get_logger("lmq.storage")

Disks = Callable[[str], Disk]
"""Returns the data directory for an empty name, otherwise the folder of that name below it."""

NO_OP = b"\x01"
JOURNAL, SNAPSHOTS, PAGES = "journal", "snapshots", "pages"
SEGMENT_BYTES = 8 << 20


class DurabilityError(RuntimeError):
    """The configured durability would discard the log in the data directory."""


class NodeStorage:
    """The node's files.

    Attributes:
        meta: identity, term and vote.
        journal: the log, beginning at `latest` if that exists.
        snapshots: the snapshot files.
        latest: the newest snapshot at opening.
        durability: what an acknowledged write has survived on a majority: ``disk`` a power failure, ``process`` the death of
            the process, ``memory`` nothing.
        recovering: the node may have lost entries that it has acknowledged.
        forgetful: the node may have lost its term and vote as well.
    """

    def __init__(self, disks: Disks, meta: NodeMeta, durability: str, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._disks = disks
        self._segment_bytes = segment_bytes
        self.meta = meta
        self.durability = durability
        self.journal: Journal
        self.snapshots: SnapshotStore
        self.latest: SnapshotInfo | None = None
        self.recovering = False
        self.forgetful = False
        self._open()

    @classmethod
    def open(
        cls,
        disks: Disks,
        new_id: str,
        founders: Mapping[str, str] | None,
        durability: str,
        *,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> NodeStorage:
        """Open the files of an earlier run, or make those of a first one.

        Args:
            disks: returns folders.
            new_id, founders: see `NodeMeta.open`.
            durability: see above.
            segment_bytes: size of the log's files.

        Raises:
            DamagedFileError: a file is damaged or missing; the text names it.
            DurabilityError: `durability` is memory but the folder holds a log.
            OSError: a file cannot be read or written.
        """
        return cls(disks, NodeMeta.open(disks(""), new_id, founders), durability, segment_bytes=segment_bytes)

    @property
    def durable(self) -> bool:
        """Return whether the log is kept on disk."""
        return self.durability != "memory"

    def pages(self) -> Disk:
        """Return the folder of the pages that snapshots name."""
        return self._disks(PAGES)

    def begin_again(self, node_id: str, members: Mapping[str, str], *, joining: bool, founding: bool = False) -> None:
        """Discard all data, take another identity and reopen the files, which must be closed.

        Without any members the node has left its cluster.
        """
        self.meta.begin_again(node_id, members, joining=joining, left=not members, founding=founding)
        self._open()

    def close(self) -> None:
        """Close the files; nothing is written after that."""
        self.journal.close()
        self.snapshots.close()

    def _open(self) -> None:
        meta = self.meta
        had = meta.durability
        if had in ("disk", "process") and not self.durable and not meta.wipe:
            raise DurabilityError(
                f"the data directory holds a log of durability {had}, which durability memory would forget;"
                f" start with durability {had}, or throw the data away first"
            )
        if meta.wipe or not self.durable:
            void_data(self._disks)
        forgotten = self._has_forgotten()
        self.recovering = meta.recovering or meta.founding or forgotten
        self.forgetful = meta.founding
        # In durability process too: after a power failure the log is shorter, but must not begin behind its snapshot.
        self.snapshots = SnapshotStore(self._disks(SNAPSHOTS), sync=self.durable)
        if self.durable:
            self._open_durable()
        else:
            self.latest = self.snapshots.open()
            self.journal = MemoryJournal(meta, NO_OP)
            if meta.joining:
                self.journal.reset(0, 0)
        if forgotten and self.durable:
            meta.salt_due = self.journal.last_index
        meta.durability, meta.boot, meta.wipe = self.durability, boot_id(), False
        # Without a durable log, the next run has lost the entries of this one.
        meta.recovering = self.recovering and not meta.founding and self.durable
        meta.save()

    def _has_forgotten(self) -> bool:
        """Return whether acknowledged entries of the last run may be lost."""
        meta = self.meta
        if not meta.restarted:
            return False
        return meta.durability == "memory" or (meta.durability == "process" and meta.boot != boot_id())

    def _open_durable(self) -> None:
        meta, disk = self.meta, self._disks(JOURNAL)
        existed = meta.durability in ("disk", "process") and not meta.wipe
        if existed and not any(name.endswith(".log") for name in disk.names()):
            raise DamagedFileError(disk.path(""), 0, "the log's files are missing")
        self.latest = self.snapshots.open()
        journal = DiskJournal.open(disk, meta, NO_OP, sync=self.durability == "disk", segment_bytes=self._segment_bytes)
        if journal.torn_bytes:
            log.warning("unfinished write at the end of the log removed", bytes=journal.torn_bytes)
        if not existed and meta.joining:
            journal.reset(0, 0)
        _align(journal, self.latest, disk)
        journal.sync()
        self.journal = journal


def void_data(disks: Disks) -> None:
    """Remove the files of log, snapshots and pages."""
    for folder in (JOURNAL, SNAPSHOTS, PAGES):
        disk = disks(folder)
        # The newest first: a crash in between leaves a shorter log, which is wiped again.
        for name in reversed(disk.names()):
            disk.remove(name)
        disk.sync()


def _align(journal: DiskJournal, latest: SnapshotInfo | None, disk: Disk) -> None:
    """D6: make the snapshot the beginning of the log, keeping the entries that follow it."""
    if latest is None:
        if journal.first_index > 1:
            raise DamagedFileError(
                disk.path(""),
                0,
                f"the log begins behind entry {journal.first_index}, and the snapshot of it is missing",
            )
    elif latest.index < journal.first_index:
        raise DamagedFileError(
            disk.path(""),
            0,
            f"the log begins behind entry {journal.first_index}, the newest snapshot is of {latest.index}",
        )
    elif latest.index <= journal.last_index and journal.term_at(latest.index) == latest.term:
        journal.drop_before(latest.index)
    else:
        journal.reset(latest.index, latest.term)
