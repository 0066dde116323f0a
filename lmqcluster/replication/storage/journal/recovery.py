"""Opening a journal: verify it, cut off torn writes, finish what a crash interrupted, or make a new one."""

from __future__ import annotations

from dataclasses import dataclass

from ..io.disk import DamagedFileError, Disk, DiskFile
from .entry_table import EntryTable, place_of
from .segment import ENTRY, HEADER_BYTES, Record, SegmentHeader, scan, segment_name, segment_number
from .segment_files import DRAFT, SegmentFiles, fill, own_names, without_zeros, zero
from .synced_mark import MARK_NAME, SyncedMark, read_mark

__all__ = ["Recovered", "Span", "note_truncation", "readable_changes", "recover"]


@dataclass(slots=True)
class Span:
    """A segment, with the facts that decide when all earlier segments may be removed.

    Attributes:
        base: index of the last entry before the segment.
        lowest: smallest index to which the log was truncated since the segment began.
    """

    number: int
    base: int
    lowest: int


@dataclass(slots=True)
class Recovered:
    """A journal as found on the disk.

    Attributes:
        header, end, chain: the last segment, the end of its records, and the checksum of the last record.
        torn_bytes: bytes cut off behind the last whole record.
        created: there was no journal.
    """

    table: EntryTable
    files: SegmentFiles
    spans: list[Span]
    header: SegmentHeader
    end: int
    chain: int
    torn_bytes: int
    created: bool


def recover(disk: Disk, *, sync: bool, segment_bytes: int) -> Recovered:
    """Open the journal in `disk`, or make an empty one.

    Raises:
        DamagedFileError: durable data is missing, or is not as it was written.
        OSError: the disk cannot be read or written.
    """
    created = _is_new(disk)
    if created:
        _create(disk, segment_bytes)
    mark = read_mark(disk)
    headers = _headers(disk, mark)
    opened: list[DiskFile] = [disk.open(segment_name(header.number)) for header in headers]
    try:
        replay = _Replay(disk, mark, headers)
        for file in opened:
            replay.read(file)
        replay.cut(opened[-1])
    except BaseException:
        for file in opened:
            file.close()
        raise
    # The data read may so far be in the system's cache only. From now on it counts as durable.
    replay.rewrite(opened[-1])
    opened[-1].sync()
    disk.sync()
    mark_file = disk.open(MARK_NAME)
    mark = SyncedMark(headers[0].number, headers[-1].number, replay.end)
    mark_file.write_at(0, mark.encode())
    mark_file.sync()
    _remove_leftovers(disk, mark)
    zeroed_bytes_max = max(segment_bytes, HEADER_BYTES)
    files = SegmentFiles(disk, sync=sync, mark_file=mark_file, mark=mark, zeroed_bytes_max=zeroed_bytes_max)
    for header, file in zip(headers, opened, strict=True):
        files.adopt(header.number, file)
    last = headers[-1]
    return Recovered(replay.table, files, replay.spans, last, replay.end, replay.chain, replay.torn_bytes, created)


def readable_changes(disk: Disk) -> list[bytes]:
    """Return the membership entries of the journal in `disk` as far as it can be read; change nothing.

    Raises:
        OSError: the disk cannot be read.
    """
    try:
        mark = read_mark(disk)
        headers = _headers(disk, mark)
        replay = _Replay(disk, mark, headers)
    except DamagedFileError:
        return []
    for header in headers:
        file = disk.open(segment_name(header.number))
        try:
            replay.read(file)
        except DamagedFileError:
            break
        finally:
            file.close()
    return [command for _, command in replay.table.changes]


# --- creation ---------------------------------------------------------------------------------------------------------


def _is_new(disk: Disk) -> bool:
    """Return whether there is no journal, or one whose creation was interrupted; remove its files except the mark."""
    names = disk.names()
    if MARK_NAME in names:
        if read_mark(disk).segment:
            return False
    elif any(segment_number(name) is not None for name in names):
        # The mark is durable before the first segment has a name.
        read_mark(disk)
    for name in own_names(disk):
        disk.remove(name)
    return True


def _create(disk: Disk, segment_bytes: int) -> None:
    """Make an empty journal. Until the mark names segment 1, a crash leaves files that count as no journal."""
    draft = MARK_NAME + DRAFT
    mark = disk.create(draft)
    mark.write_at(0, SyncedMark(0, 0, 0).encode())
    mark.sync()
    disk.rename(draft, MARK_NAME)
    disk.sync()
    header = SegmentHeader(1, max(segment_bytes, HEADER_BYTES), 1, 0, 0, fresh=True)
    name = segment_name(1)
    file = disk.create(name + DRAFT)
    fill(file, header.size, header.encode())
    file.sync()
    file.close()
    disk.rename(name + DRAFT, name)
    disk.sync()
    mark.write_at(0, SyncedMark(1, 1, HEADER_BYTES).encode())
    mark.sync()
    mark.close()


def _remove_leftovers(disk: Disk, mark: SyncedMark) -> None:
    """Remove void segments, unfinished files and the spare."""
    removed = False
    for name in list(own_names(disk)):
        number = segment_number(name)
        if number is None or number < mark.first:
            disk.remove(name)
            removed = True
    if removed:
        disk.sync()


# --- reading ----------------------------------------------------------------------------------------------------------


def _headers(disk: Disk, mark: SyncedMark) -> list[SegmentHeader]:
    """Return the headers of the log's segments, in order; the first is the last fresh one, or the mark's first."""
    present = {number for name in disk.names() if (number := segment_number(name)) is not None and number >= mark.first}
    last = max(present | {mark.segment})
    headers: list[SegmentHeader] = []
    for number in range(last, mark.first - 1, -1):
        if number not in present:
            raise DamagedFileError(disk.path(segment_name(number)), 0, "the segment is missing")
        headers.insert(0, _header(disk, number))
        if headers[0].fresh:
            break
    return headers


def _header(disk: Disk, number: int) -> SegmentHeader:
    name = segment_name(number)
    file = disk.open(name)
    try:
        size, data = file.size(), file.read_at(0, HEADER_BYTES)
    finally:
        file.close()
    try:
        header = SegmentHeader.decode(data)
    except ValueError as exc:
        raise DamagedFileError(disk.path(name), 0, f"header: {exc}") from None
    if header.number != number:
        raise DamagedFileError(disk.path(name), 0, f"this is segment {header.number}")
    if header.size != size:
        raise DamagedFileError(disk.path(name), min(size, header.size), f"{size} bytes, not {header.size}")
    return header


class _Replay:
    """Replays the records of all segments, one segment after the other."""

    def __init__(self, disk: Disk, mark: SyncedMark, headers: list[SegmentHeader]) -> None:
        self._disk = disk
        self._mark = mark
        self._headers = headers
        self.table = EntryTable(headers[0].base_index, headers[0].base_term)
        self.spans: list[Span] = []
        self.end = HEADER_BYTES
        self.chain = 0
        self.torn_bytes = 0
        self._unsure_from = 0
        self._unsure = b""

    def read(self, file: DiskFile) -> None:
        """Read the next segment."""
        position = len(self.spans)
        header = self._headers[position]
        if (header.base_index, header.base_term) != (self.table.last, self.table.terms[-1]):
            raise self._damage(header, 0, f"begins behind entry {header.base_index}, not {self.table.last}")
        self.spans.append(Span(header.number, header.base_index, header.base_index + 1))
        data = memoryview(file.read_at(0, header.size))
        self.end, self.chain = HEADER_BYTES, header.seed()
        for record in scan(data, self.chain):
            self._carry_out(header, record, data)
            self.end, self.chain = record.stop, record.checksum
        if position + 1 < len(self._headers):
            if self.chain != self._headers[position + 1].chain:
                raise self._damage(header, self.end, "no record that the next segment continues")
        else:
            if header.number == self._mark.segment and self.end < self._mark.offset:
                raise self._damage(header, self.end, f"no valid record, but {self._mark.offset} bytes were durable")
            self.torn_bytes = without_zeros(data[self.end :])
            self._unsure_from = self._mark.offset if header.number == self._mark.segment else HEADER_BYTES
            self._unsure = bytes(data[self._unsure_from : self.end])

    def cut(self, file: DiskFile) -> None:
        """Erase everything behind the last whole record of the last segment."""
        zero(file, self.end, self.end + self.torn_bytes)

    def rewrite(self, file: DiskFile) -> None:
        """Write again the data that no sync is known to have reached.

        After a failed sync the system treats the pages as written, and another sync alone would not write them.
        """
        file.write_at(self._unsure_from, self._unsure)

    def _carry_out(self, header: SegmentHeader, record: Record, data: memoryview) -> None:
        table = self.table
        offset = self.end
        if record.kind == ENTRY:
            if record.idx != table.last + 1:
                raise self._damage(header, offset, f"entry {record.idx} follows entry {table.last}")
            if record.term < table.terms[-1]:
                raise self._damage(header, offset, f"term {record.term} follows term {table.terms[-1]}")
            command = data[record.start : record.stop]
            table.add(place_of(header.number, offset), record.term, command, record.seed)
        else:
            if not table.first < record.idx <= table.last:
                raise self._damage(header, offset, f"entry {record.idx} is truncated, but is not in the log")
            table.truncate_from(record.idx)
            note_truncation(self.spans, record.idx)

    def _damage(self, header: SegmentHeader, offset: int, reason: str) -> DamagedFileError:
        return DamagedFileError(self._disk.path(segment_name(header.number)), offset, reason)


def note_truncation(spans: list[Span], index: int) -> None:
    """Note that entries from `index` on were removed."""
    for span in spans:
        span.lowest = min(span.lowest, index)
