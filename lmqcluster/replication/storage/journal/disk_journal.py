"""The Raft log on disk, behind the same interface as the log in memory.

Changes take effect in memory immediately and are written later, all together, by the work from `take_work`. The
newest commands stay in memory; older ones are read back. The logical base is not stored: the records read at opening
begin at or before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..io.disk import DamagedFileError, Disk
from .entry_table import EntryTable, place_of, split_place
from .journal import Entry, LibraryJournal, TermStore
from .recovery import Recovered, Span, note_truncation, recover
from .segment import (
    BODY_BYTES_MAX,
    ENTRY,
    HEADER_BYTES,
    RECORD_BYTES,
    TRUNCATE,
    SegmentHeader,
    check_record,
    encode_record,
)
from .segment_files import Step

__all__ = ["DiskJournal"]

_ENTRIES_MAX = 256
_LARGE_BYTES = 1 << 20
_LARGE_BYTES_MAX = 256 << 20
"""Most memory for large entries that are not applied yet."""
_RUN_BYTES_MAX = 1 << 20


class DiskJournal(LibraryJournal):
    """A durable log. Not thread-safe, except that the work given out may run in another thread during reads and appends.

    Attributes:
        size_bytes: commands and overhead of the entries behind the base.
        changes: (index, command) of the membership entries behind the base.
        dirty: there is something to write.
        applied_last: entries up to here have been applied.
        torn_bytes: bytes that opening cut off because a crash had interrupted their write.
        created: opening found no journal and made this one.
    """

    def __init__(
        self, store: TermStore, base_command: bytes, found: Recovered, *, segment_bytes: int, cache_bytes: int
    ) -> None:
        self._store = store
        self._base_command = base_command
        self._segment_bytes = segment_bytes
        self._cache_bytes = cache_bytes
        self._table: EntryTable = found.table
        self._files = found.files
        self._spans = found.spans
        self._header = found.header
        self._end = found.end
        self._chain = found.chain
        self.torn_bytes = found.torn_bytes
        self.created = found.created
        self.size_bytes = self._table.size_bytes
        self.changes = self._table.changes
        self.dirty = False
        self.applied_last = 0
        self._steps: list[Step] = []
        # The cache holds the commands of all entries from `_cache_first` on, among them all behind `_written_last`.
        self._cache: dict[int, bytes] = {}
        self._cache_first = self._table.last + 1
        self._cached_bytes = 0
        self._written_last = self._taken_last = self._table.last

    @classmethod
    def open(
        cls,
        disk: Disk,
        store: TermStore,
        base_command: bytes,
        *,
        sync: bool,
        segment_bytes: int = 8 << 20,
        cache_bytes: int = 16 << 20,
    ) -> DiskJournal:
        """Open the journal in `disk`, or make one; read and verify all of it.

        Args:
            store: holds term and vote.
            base_command: the command of a base whose own command is not in the log.
            sync: whether written work survives a power failure, and not only the end of the process.
            segment_bytes: size of a file; an entry that does not fit gets a larger one.
            cache_bytes: size of the commands to keep in memory.

        Raises:
            DamagedFileError: a file is missing, or its content is not the one written.
            OSError: the disk cannot be read or written.
        """
        found = recover(disk, sync=sync, segment_bytes=segment_bytes)
        return cls(store, base_command, found, segment_bytes=segment_bytes, cache_bytes=cache_bytes)

    # --- reading --------------------------------------------------------------------------------------------------

    @property
    def first_index(self) -> int:
        """Return the index of the base entry."""
        return self._table.first

    @property
    def last_index(self) -> int:
        """Return the index of the newest entry."""
        return self._table.last

    @property
    def stamped_us(self) -> int:
        """Return the latest log time of the entries, 0 if none has one."""
        return self._table.stamps_us[-1]

    def term_at(self, index: int) -> int:
        """Return the term of the entry at `index`, which must be in the log."""
        return self._table.terms[self._position(index)]

    def entries(self, start: int, size_bytes_max: int) -> list[Entry]:
        """Return entries from `start` on, at least one if there is any, at most `size_bytes_max` of commands.

        Raises:
            DamagedFileError: an entry read back is damaged.
        """
        position = self._position(start)
        stop, size = position, 0
        for length in self._table.sizes[position : position + _ENTRIES_MAX]:
            size += length
            if stop > position and size > size_bytes_max:
                break
            stop += 1
        return self._read(position, stop)

    def entries_between(self, start: int, stop: int) -> list[Entry]:
        """Return the entries from `start` to `stop`, both included.

        Raises:
            DamagedFileError: an entry read back is damaged.
        """
        return self._read(self._position(start), min(self._position(stop) + 1, len(self._table)))

    def _position(self, index: int) -> int:
        position = index - self._table.first
        if not 0 <= position <= len(self._table):
            raise IndexError(f"log index {index} is outside {self.first_index}..{self.last_index}")
        return position

    def _read(self, start: int, stop: int) -> list[Entry]:
        """Return the entries of the rows from `start` up to but not including `stop`."""
        first, terms, cache = self._table.first, self._table.terms, self._cache
        result: list[Entry] = []
        on_disk = min(stop, self._cache_first - first)
        position = start
        while position < on_disk:
            run = self._read_run(position, on_disk)
            result += run
            position += len(run)
        result += [Entry(cache[first + row], first + row, terms[row]) for row in range(position, stop)]
        return result

    def _read_run(self, start: int, stop: int) -> list[Entry]:
        """Read adjacent records from row `start` on, in one read; return at least one entry."""
        table = self._table
        place = table.places[start]
        if not place:
            return [Entry(self._base_command, table.first, table.terms[start])]
        end, row = place, start
        while row < stop and table.places[row] == end and (row == start or end - place < _RUN_BYTES_MAX):
            end += RECORD_BYTES + table.sizes[row]
            row += 1
        number, offset = split_place(place)
        data = memoryview(self._files.read_at(number, offset, end - place))
        return [self._entry(data, place, position) for position in range(start, row)]

    def _entry(self, data: memoryview, data_place: int, row: int) -> Entry:
        table = self._table
        place, index, term = table.places[row], table.first + row, table.terms[row]
        record = check_record(data, place - data_place, table.seeds[row])
        if record is None or (record.kind, record.idx, record.term) != (ENTRY, index, term):
            number, offset = split_place(place)
            raise DamagedFileError(self._files.path(number), offset, f"entry {index} is not as it was written")
        return Entry(bytes(data[record.start : record.stop]), index, term)

    # --- changing -------------------------------------------------------------------------------------------------

    def add(self, command: bytes, idx: int, term: int) -> None:
        """Append one entry; its index must follow the last one, and its term must not be lower."""
        table = self._table
        if idx != table.last + 1:
            raise ValueError(f"entry {idx} does not follow the last entry {table.last}")
        if term < table.terms[-1]:
            raise ValueError(f"term {term} of entry {idx} is before the last entry's term {table.terms[-1]}")
        if len(command) > BODY_BYTES_MAX:
            raise ValueError(f"an entry of {len(command)} bytes is too large")
        place, seed = self._put(ENTRY, idx, term, command)
        table.add(place, term, command, seed)
        self.size_bytes = table.size_bytes
        self._cache[idx] = command
        self._cached_bytes += len(command)

    def truncate_from(self, index: int) -> None:
        """Remove the entry at `index`, which is behind the base, and all later ones."""
        table = self._table
        if not table.first < index <= table.last + 1:
            raise IndexError(f"log index {index} is outside {table.first + 1}..{table.last}")
        if index > table.last:
            return
        self._put(TRUNCATE, index, 0, b"")
        note_truncation(self._spans, index)
        for cached in range(max(index, self._cache_first), table.last + 1):
            self._cached_bytes -= len(self._cache.pop(cached))
        self._cache_first = min(self._cache_first, index)
        self._forget_written(index - 1)
        table.truncate_from(index)
        self.size_bytes = table.size_bytes

    def drop_before(self, index: int) -> list[tuple[int, bytes]]:
        """Make the entry at `index` the base; return the membership changes up to the new base."""
        table = self._table
        if not table.first <= index <= table.last:
            raise IndexError(f"log index {index} is outside {table.first}..{table.last}")
        for cached in range(self._cache_first, index):
            self._cached_bytes -= len(self._cache.pop(cached))
        self._cache_first = max(self._cache_first, index)
        dropped = table.drop_before(index)
        self.size_bytes = table.size_bytes
        self._drop_spans(index)
        return dropped

    def _drop_spans(self, base: int) -> None:
        """Drop the segments that reading the log from its base does not need."""
        spans = self._spans
        keep = max((i for i, span in enumerate(spans) if span.base < base and span.base < span.lowest), default=0)
        if keep:
            del spans[:keep]
            self.dirty = True

    def reset(self, index: int, term: int) -> None:
        """Remove all entries; the base stands for a snapshot at `index`."""
        # Pending writes are unnecessary. A gap in the numbers before a fresh segment is harmless.
        self._steps.clear()
        number = self._header.number + 1
        self._table.reset(index, term)
        self.size_bytes = 0
        self._cache.clear()
        self._cache_first, self._cached_bytes = index + 1, 0
        self._written_last = self._taken_last = index
        self._spans.clear()
        self._begin(SegmentHeader(number, max(self._segment_bytes, HEADER_BYTES), index, term, self._chain, fresh=True))

    def _put(self, kind: int, index: int, term: int, body: bytes) -> tuple[int, int]:
        """Plan the write of a record; return its place and the seed of its checksum."""
        size = RECORD_BYTES + len(body)
        if self._end + size > self._header.size:
            self._roll(size)
        seed = self._chain
        head, self._chain = encode_record(kind, index, term, body, seed)
        if not self._steps:
            self._steps.append(Step(self._header, begin=False, offset=self._end))
        self._steps[-1].parts += (head, body)
        self.dirty = True
        place = place_of(self._header.number, self._end)
        self._end += size
        return place, seed

    def _roll(self, room: int) -> None:
        size = max(self._segment_bytes, HEADER_BYTES + room)
        last, term = self._table.last, self._table.terms[-1]
        self._begin(SegmentHeader(self._header.number + 1, size, last, term, self._chain, fresh=False))

    def _begin(self, header: SegmentHeader) -> None:
        self._header, self._end, self._chain = header, HEADER_BYTES, header.seed()
        self._spans.append(Span(header.number, header.base_index, header.base_index + 1))
        self._steps.append(Step(header, begin=True, offset=HEADER_BYTES))
        self.dirty = True

    # --- writing --------------------------------------------------------------------------------------------------

    def take_work(self) -> Callable[[], None]:
        """Return all changes so far as one piece of work for another thread; call `written` after it.

        An exception of the work is fatal: the content of the disk is then unknown until the journal is opened again.
        """
        steps, self._steps = self._steps, []
        first = self._spans[0].number
        self._taken_last = self._table.last
        self.dirty = False
        files = self._files
        return lambda: files.carry_out(steps, first)

    @property
    def progress(self) -> int:
        """Return the number of syncs that work has completed; it also grows while work runs."""
        return self._files.progress

    def written(self) -> None:
        """Note that the work taken last is done; entries that it wrote may leave memory."""
        self._written_last = self._taken_last
        while self._cached_bytes > self._cache_bytes and self._cache_first <= self._written_last:
            size = len(self._cache[self._cache_first])
            if size > _LARGE_BYTES and self._cache_first > self.applied_last and self._cached_bytes < _LARGE_BYTES_MAX:
                # It is needed once more, soon: reading it back would delay everything else.
                return
            del self._cache[self._cache_first]
            self._cached_bytes -= size
            self._cache_first += 1

    def sync(self) -> None:
        """Write all changes now."""
        if self.dirty:
            self.take_work()()
            self.written()

    def prepare_spare(self) -> Callable[[], None] | None:
        """Return work for a third thread that makes the next segment's file ahead of time; None if it is too early."""
        files = self._files
        if files.spare_wanted or self._end * 2 <= self._header.size:
            return None
        files.spare_wanted = True
        size = max(self._segment_bytes, HEADER_BYTES)
        return lambda: files.make_spare(size)

    def _forget_written(self, last: int) -> None:
        self._written_last = min(self._written_last, last)
        self._taken_last = min(self._taken_last, last)

    # --- PySyncObj's interface ------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, slice):
            rows = range(*item.indices(len(self)))
            if rows.step == 1:
                return self._read(rows.start, max(rows.start, rows.stop))
            return [entry for row in rows for entry in self._read(row, row + 1)]
        row = range(len(self))[item]
        return self._read(row, row + 1)[0]

    def close(self) -> None:
        """Close the files; pending writes are lost."""
        self._files.close()
