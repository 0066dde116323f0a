"""Snapshot files being written: from this node's state, or received from another node.

Slow steps are given out as work for a thread; the pieces must be carried out one after the other, in the order in
which they were given out. Everything else happens on the event loop's thread.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgpack

from ....wire.parts import packed_parts
from ..io.disk import Disk, DiskFile
from ..io.worker import Work
from .snapshot_file import (
    PREFIX,
    RAW_BYTES_MAX,
    BlockPacker,
    Chain,
    End,
    Header,
    Kind,
    Packed,
    encode_block,
    parse_head,
    verified,
)
from .stored_snapshot import SnapshotInfo, StoredSnapshot, snapshot_name

__all__ = ["SnapshotReceiver", "SnapshotWriter"]

_SYNC_BYTES = 4 << 20


class _Output(ABC):
    """A file under a temporary name until it is complete and, if asked for, durable."""

    def __init__(
        self, disk: Disk, index: int, term: int, suffix: str, *, sync: bool, in_use: Callable[[str], bool]
    ) -> None:
        """Prepare the file; `in_use` returns whether the store uses a file of that name."""
        self.name = snapshot_name(index, term)
        self._temporary = self.name + suffix
        self._disk = disk
        self._sync = sync
        self._in_use = in_use
        # Held while a piece of work runs, so that an abandoned file is not closed under it.
        self._lock = threading.Lock()
        self._abandoned = False
        self._failed = False
        self._finished = False
        self._file: DiskFile | None = None
        self._whole: StoredSnapshot | None = None
        self._offsets = array("Q", [len(PREFIX)])
        self._synced = 0

    def abandon(self) -> None:
        """Give the snapshot up and remove its file; running work does that when it ends, later work does nothing.

        If the snapshot has been adopted, do nothing.
        """
        self._abandoned = True
        self._clean_up()

    @property
    def info(self) -> SnapshotInfo:
        """Return the description of the complete file.

        Raises:
            RuntimeError: it is not complete, or was abandoned.
        """
        return self._complete().info

    def adopted(self, *, newer_than: SnapshotInfo | None) -> StoredSnapshot:
        """Hand the complete file over to the store.

        Raises:
            RuntimeError: it is not complete, was abandoned, or is not newer than `newer_than`.
        """
        stored = self._complete()
        if newer_than is not None and stored.info.index <= newer_than.index:
            raise RuntimeError(f"the snapshot {self.name} is not newer than {newer_than.file}")
        # The store owns the file now.
        self._file = None
        return stored

    def _complete(self) -> StoredSnapshot:
        if not self._finished or self._failed or self._abandoned or self._file is None:
            raise RuntimeError(f"the snapshot {self.name} is not complete")
        if self._whole is None:
            self._whole = self._stored(self._file, self.name)
        return self._whole

    @abstractmethod
    def _header(self) -> Header:
        """Return the content of the file's first block."""

    def _stored(self, file: DiskFile, name: str) -> StoredSnapshot:
        return StoredSnapshot(file, self._disk.path(name), self.name, self._header(), self._offsets)

    def _work(self, step: Callable[[], None]) -> Work:
        def work() -> None:
            try:
                with self._lock:
                    if not self._abandoned:
                        self._run(step)
            finally:
                self._clean_up()

        return work

    def _run(self, step: Callable[[], None]) -> None:
        if self._failed:
            raise RuntimeError(f"the snapshot {self.name} could not be written")
        self._failed = True
        if self._file is None:
            self._file = self._disk.create(self._temporary)
            self._file.write_at(0, PREFIX)
        step()
        self._failed = False

    def _write(self, blocks: list[bytes]) -> None:
        assert self._file is not None  # noqa: S101 - for the type checker
        self._file.write_at(self._offsets[-1], b"".join(blocks))
        for block in blocks:
            self._offsets.append(self._offsets[-1] + len(block))
        if self._sync and self._offsets[-1] - self._synced > _SYNC_BYTES:
            # A single sync at the end would make the log's syncs wait.
            self._file.sync()
            self._synced = self._offsets[-1]

    def _put_in_place(self) -> None:
        assert self._file is not None  # noqa: S101 - for the type checker
        if self._sync:
            self._file.sync()
        self._disk.rename(self._temporary, self.name)
        self._finished = True
        if self._sync:
            self._disk.sync()

    def _clean_up(self) -> None:
        # A thread that finds the lock taken leaves the clean-up to its holder, who comes here after releasing it.
        if not self._abandoned or not self._lock.acquire(blocking=False):
            return
        try:
            file, self._file = self._file, None
            if file is not None:
                file.close()
                if not self._finished:
                    self._disk.remove(self._temporary)
                elif not self._in_use(self.name):
                    self._disk.remove(self.name)
        finally:
            self._lock.release()


class SnapshotWriter(_Output):
    """Writes the records of this node's state."""

    def __init__(self, disk: Disk, header: Header, *, sync: bool, in_use: Callable[[str], bool]) -> None:
        super().__init__(disk, header.index, header.term, ".own.tmp", sync=sync, in_use=in_use)
        self._own_header = header
        self._pack = msgpack.Packer().pack
        self._packer = BlockPacker()
        self._closed = False
        # From here on, only the thread uses these.
        self._chain = Chain()
        self._records = 0

    def add(self, record: Any) -> None:
        """Encode the next record; the record may change afterwards."""
        if self._closed:
            raise RuntimeError(f"the snapshot {self.name} is closed for records")
        if _is_large(record):
            self._packer.add_large(packed_parts(record))
        else:
            self._packer.add(self._pack(record))

    def take_work(self) -> Work | None:
        """Return work that writes the blocks completed since; None if there are none."""
        packed = self._packer.take()
        return self._work(lambda: self._write_packed(packed)) if packed else None

    def add_encoded(self, record: bytes) -> None:
        """Take the next record as MessagePack."""
        self._packer.add(record)

    def add_piece(self, piece: bytes, *, is_last: bool) -> None:
        """Take a piece of the next record, unchanged from the block of another snapshot."""
        self._packer.add_piece(piece, is_last=is_last)

    def finish_work(self) -> Work:
        """Return work that writes the rest and completes the snapshot under its name, so that it can be adopted."""
        self._closed = True
        packed = self._packer.take_all()
        return self._work(lambda: self._finish(packed))

    def _header(self) -> Header:
        return self._own_header

    def _write_packed(self, packed: list[Packed]) -> None:
        if self._chain.next_number == 0:
            self._write_block(Kind.HEADER, self._own_header.pack())
        for kind, parts, records in packed:
            self._write_block(kind, parts[0] if len(parts) == 1 else b"".join(parts))
            self._records += records

    def _finish(self, packed: list[Packed]) -> None:
        self._write_packed(packed)
        self._write_block(Kind.END, self._chain.end(self._records).pack())
        self._put_in_place()

    def _write_block(self, kind: int, payload: bytes | memoryview) -> None:
        block = encode_block(kind, self._chain.next_number, payload)
        self._chain.add(parse_head(block))
        self._write([block])


class SnapshotReceiver(_Output):
    """Takes the blocks of another node's snapshot."""

    def __init__(self, disk: Disk, index: int, term: int, *, sync: bool, in_use: Callable[[str], bool]) -> None:
        super().__init__(disk, index, term, ".received.tmp", sync=sync, in_use=in_use)
        self._entry = (index, term)
        self._chain = Chain()
        self._first_block = b""
        self._received_header: Header | None = None
        self._buffered: list[bytes] = []

    @property
    def next_block(self) -> int:
        """Return the number of the block to be taken next, which equals the count of blocks taken."""
        return self._chain.next_number

    @property
    def complete(self) -> bool:
        """Return whether all blocks have been taken, and belong together."""
        return self._chain.ended

    @property
    def members(self) -> Mapping[str, str]:
        """Return address by node id, as of the snapshot; empty before the first block."""
        return {} if self._received_header is None else self._received_header.members

    def resumes(self, first_block: bytes) -> bool:
        """Return whether a transfer that begins with this block repeats this one and continues with `next_block`."""
        return self.next_block > 0 and first_block == self._first_block

    def take(self, number: int, block: bytes) -> None:
        """Keep the block `number`, which must be `next_block`.

        Raises:
            ValueError: it is damaged, of another snapshot, or does not come next; nothing has changed.
        """
        found = verified(block, number)
        header = self._received_header
        if found.head.kind == Kind.HEADER:
            header = Header.unpack(found.payload())
            if (header.index, header.term) != self._entry:
                raise ValueError(f"the header is of entry {header.index}, not {self._entry[0]}, or of another term")
        elif found.head.kind == Kind.END:
            self._chain.check(End.unpack(found.payload()))
        self._chain.add(found.head)
        if number == 0:
            self._received_header, self._first_block = header, block
        self._buffered.append(block)

    def take_work(self) -> Work | None:
        """Return work that writes the blocks taken since; None if there are none."""
        blocks, self._buffered = self._buffered, []
        return self._work(lambda: self._write(blocks)) if blocks else None

    def finish_work(self) -> Work:
        """Return work that writes the rest and completes the snapshot under its name, so that it can be adopted.

        Raises:
            ValueError: blocks are missing.
        """
        if not self.complete:
            raise ValueError(f"the snapshot {self.name} ends after {self.next_block} blocks")
        blocks, self._buffered = self._buffered, []
        return self._work(lambda: self._finish(blocks))

    def records(self) -> Iterator[Any]:
        """Yield the records, so that they can be tried before the snapshot is finished; all blocks must be written.

        Raises:
            RuntimeError: not all blocks are written.
            DamagedFileError: they are damaged.
        """
        if self._file is None or len(self._offsets) - 1 != self.next_block or not self.complete:
            raise RuntimeError(f"the snapshot {self.name} is not complete")
        name = self.name if self._finished else self._temporary
        return self._stored(self._file, name).records()

    def _header(self) -> Header:
        if self._received_header is None:
            raise RuntimeError(f"the snapshot {self.name} has no header yet")
        return self._received_header

    def _finish(self, blocks: list[bytes]) -> None:
        self._write(blocks)
        self._put_in_place()


def _is_large(record: Any) -> bool:
    """Return whether this is a record of one message whose body alone is larger than a block."""
    return isinstance(record, list) and any(
        isinstance(column, list)
        and len(column) == 1
        and isinstance(column[0], bytes)
        and len(column[0]) > RAW_BYTES_MAX
        for column in record
    )
