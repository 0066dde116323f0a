"""The files of a journal: writing, rolling and removing segments. Runs outside the event loop; an exception ends the process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from ....wire.parts import joined
from ..io.disk import Disk, DiskFile
from .segment import HEADER_BYTES, SegmentHeader, segment_name, segment_number
from .synced_mark import MARK_NAME, SyncedMark

__all__ = ["DRAFT", "SPARE_NAME", "SegmentFiles", "Step", "fill", "own_names", "without_zeros", "zero"]

DRAFT = ".tmp"
SPARE_NAME = "spare"
PIECE_BYTES = 4 << 20
"""Size of the pieces in which a large write is synced, so that the disk's progress shows."""
_ZEROS = bytes(1 << 20)
_BLOCK_BYTES = 1 << 16


@dataclass(slots=True)
class Step:
    """Writes to one segment.

    Attributes:
        header: the segment's header.
        begin: the file has to be made first.
        offset: place of `parts`, which follow each other.
    """

    header: SegmentHeader
    begin: bool
    offset: int
    parts: list[bytes] = field(default_factory=list)


class SegmentFiles:
    """Open files of all segments, and the mark of their durable part.

    Attributes:
        spare_wanted: a spare exists or is being made.
        progress: counts the syncs that the work has completed; may be read on any thread.
    """

    def __init__(self, disk: Disk, *, sync: bool, mark_file: DiskFile, mark: SyncedMark, zeroed_bytes_max: int) -> None:
        """Set up the files; segments of at most `zeroed_bytes_max` are filled with zeros beforehand."""
        self._disk = disk
        self._zeroed_bytes_max = zeroed_bytes_max
        self._sync = sync
        self._files: dict[int, DiskFile] = {}
        self._mark_file = mark_file
        self._first = mark.first
        self._segment, self._end = mark.segment, mark.offset
        self._durable = (mark.segment, mark.offset)
        self._synced = True
        self._spare_lock = threading.Lock()
        self._spare: tuple[DiskFile, int] | None = None
        self.spare_wanted = False
        self.progress = 0

    def adopt(self, number: int, file: DiskFile) -> None:
        """Take over an open segment."""
        self._files[number] = file

    def read_at(self, number: int, offset: int, size: int) -> bytes:
        """Read from a segment."""
        return self._files[number].read_at(offset, size)

    def path(self, number: int) -> str:
        """Return the segment's path, for messages."""
        return self._disk.path(segment_name(number))

    def close(self) -> None:
        """Close all files."""
        files = [*self._files.values(), self._mark_file]
        if self._spare is not None:
            files.append(self._spare[0])
        self._files.clear()
        self._spare = None
        for file in files:
            file.close()

    # --- the deferred writes --------------------------------------------------------------------------------------

    def carry_out(self, steps: list[Step], first: int) -> None:
        """Do all writes, make them durable if asked to, then remove the segments before `first`."""
        for step in steps:
            if step.begin:
                self._begin(step.header)
            if step.parts:
                self._end = step.offset
                for data in joined(step.parts):
                    self._append(data)
                self._synced = False
        if self._sync and not self._synced:
            self._sync_segment()
            self._write_mark()
        self.remove_before(first)

    def _append(self, data: bytes) -> None:
        file = self._files[self._segment]
        for start in range(0, len(data), PIECE_BYTES):
            if start and self._sync:
                file.sync()
                self._get_on()
            piece = data[start : start + PIECE_BYTES]
            file.write_at(self._end, piece)
            self._end += len(piece)

    def remove_before(self, first: int) -> None:
        """Remove the segments before `first`.

        The mark records it first, durably, so that a segment missing for another reason is noticed.
        """
        if first > self._first:
            self._first = first
            self._write_mark()
            self._mark_file.sync()
            self._get_on()
        void = [number for number in self._files if number < first]
        for number in void:
            self._files.pop(number).close()
            self._disk.remove(segment_name(number))
        if void:
            self._disk.sync()

    def _begin(self, header: SegmentHeader) -> None:
        """Make the next segment.

        A torn record can only be in the last segment: the previous one is durable before the next one has a name.
        Likewise the mark names the new segment before there is a record in it.
        """
        if not header.fresh and not self._synced:
            self._sync_segment()
        self._files[header.number] = self._make(header)
        self._get_on()
        self._disk.sync()
        self._get_on()
        self._segment, self._end, self._synced = header.number, HEADER_BYTES, True
        if header.fresh:
            self._first = header.number
        self._write_mark()
        self._mark_file.sync()
        self._get_on()

    def _get_on(self) -> None:
        self.progress += 1

    def _make(self, header: SegmentHeader) -> DiskFile:
        name = segment_name(header.number)
        with self._spare_lock:
            spare = self._spare
            if spare is not None and spare[1] == header.size:
                self._spare = None
            else:
                spare = None
        if spare is None:
            draft = name + DRAFT
            file = self._disk.create(draft)
            if header.size > self._zeroed_bytes_max:
                # It holds one large record, which few syncs cover: filling it with zeros would be a wasted write.
                file.write_at(header.size - 1, b"\0")
                file.write_at(0, header.encode())
            else:
                fill(file, header.size, header.encode())
        else:
            draft, file = SPARE_NAME, spare[0]
            file.write_at(0, header.encode())
        file.sync()
        self._disk.rename(draft, name)
        if spare is not None:
            # Only after the rename: another spare takes the name.
            self.spare_wanted = False
        return file

    def _sync_segment(self) -> None:
        self._files[self._segment].sync()
        self._get_on()
        self._synced = True

    def _write_mark(self) -> None:
        # Without a sync, so it may be old after a power failure; it is a lower bound. It must never be ahead of the
        # durable data.
        if self._synced:
            self._durable = (self._segment, self._end)
        self._mark_file.write_at(0, SyncedMark(self._first, *self._durable).encode())

    # --- the spare ------------------------------------------------------------------------------------------------

    def make_spare(self, size: int) -> None:
        """Make the file for the next roll; may run in parallel with `carry_out`."""
        file = self._disk.create(SPARE_NAME)
        fill(file, size, b"")
        file.sync()
        with self._spare_lock:
            self._spare = (file, size)


def fill(file: DiskFile, size: int, head: bytes) -> None:
    """Write `head` and zeros up to `size`; later syncs are cheap if they overwrite written bytes."""
    if head:
        file.write_at(0, head)
    zero(file, len(head), size)


def zero(file: DiskFile, start: int, stop: int) -> None:
    """Overwrite with zeros."""
    for offset in range(start, stop, len(_ZEROS)):
        count = min(len(_ZEROS), stop - offset)
        file.write_at(offset, _ZEROS if count == len(_ZEROS) else bytes(count))


def without_zeros(data: memoryview) -> int:
    """Return the size of `data` without the zeros at its end, which are nearly all of a new file."""
    # Stripping them one by one takes longer than everything else that a start does.
    stop = len(data)
    while stop:
        start = max(0, stop - _BLOCK_BYTES)
        block = bytes(data[start:stop])
        if block != _ZEROS[: len(block)]:
            return start + len(block.rstrip(b"\0"))
        stop = start
    return 0


def own_names(disk: Disk) -> Iterator[str]:
    """Yield the journal's files in the folder, except the mark; the folder may hold other files too."""
    for name in disk.names():
        stem = name.removesuffix(DRAFT)
        if stem == SPARE_NAME or (stem == MARK_NAME and name != MARK_NAME) or segment_number(stem) is not None:
            yield name
