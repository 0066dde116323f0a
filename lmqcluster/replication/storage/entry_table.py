"""Where each entry of a journal on disk stands: some 28 bytes an entry, whatever the size of its command."""

from __future__ import annotations

from array import array

__all__ = ["ENTRY_OVERHEAD_BYTES", "MEMBERSHIP", "EntryTable", "place_of", "split_place"]

ENTRY_OVERHEAD_BYTES = 120
"""What an entry counts beside its command, as in memory."""
MEMBERSHIP = b"\x02"


def place_of(segment: int, offset: int) -> int:
    """Segment and offset of a record as one number; 0 is none, because segments are numbered from 1."""
    return segment << 32 | offset


def split_place(place: int) -> tuple[int, int]:
    """Segment and offset."""
    return place >> 32, place & 0xFFFFFFFF


class EntryTable:
    """Parallel columns, one row an entry; row 0 is the base.

    Attributes:
        first: index of the base.
        places: where an entry's record begins; 0 for a base that stands for a snapshot.
        terms: its term.
        sizes: bytes of its command.
        seeds: what its record's checksum is seeded with.
        changes: (index, command) of the membership entries behind the base.
        size_bytes: commands and overhead behind the base.
    """

    def __init__(self, index: int, term: int) -> None:
        self.changes: list[tuple[int, bytes]] = []
        self.reset(index, term)

    def reset(self, index: int, term: int) -> None:
        """Only a base."""
        self.first = index
        self.places = array("Q", [0])
        self.terms = array("Q", [term])
        self.sizes = array("I", [0])
        self.seeds = array("Q", [0])
        self.changes.clear()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self.places)

    @property
    def last(self) -> int:
        """Index of the newest entry."""
        return self.first + len(self.places) - 1

    def add(self, place: int, term: int, size: int, seed: int) -> None:
        """Append a row."""
        self.places.append(place)
        self.terms.append(term)
        self.sizes.append(size)
        self.seeds.append(seed)
        self.size_bytes += size + ENTRY_OVERHEAD_BYTES

    def note_change(self, index: int, command: bytes) -> None:
        """Keep the command of the entry just added if it changes the members."""
        if command[:1] == MEMBERSHIP:
            self.changes.append((index, command))

    def truncate_from(self, index: int) -> None:
        """Remove the row of `index` and all behind it; the base stays."""
        row = index - self.first
        self.size_bytes -= self._cost(row, len(self))
        for column in (self.places, self.terms, self.sizes, self.seeds):
            del column[row:]
        while self.changes and self.changes[-1][0] >= index:
            self.changes.pop()

    def drop_before(self, index: int) -> list[tuple[int, bytes]]:
        """Make `index` the base; returns the membership changes that are no longer behind it."""
        row = index - self.first
        self.size_bytes -= self._cost(1, row + 1)
        for column in (self.places, self.terms, self.sizes, self.seeds):
            del column[:row]
        self.first = index
        count = sum(1 for changed, _ in self.changes if changed <= index)
        dropped = self.changes[:count]
        del self.changes[:count]
        return dropped

    def _cost(self, start: int, stop: int) -> int:
        return sum(self.sizes[start:stop]) + ENTRY_OVERHEAD_BYTES * max(0, stop - start)
