"""Places of the entries of a journal on disk: some 36 bytes an entry, whatever the size of its command."""

from __future__ import annotations

from array import array

from ...base.membership import is_change, stamp_us_of

__all__ = ["ENTRY_OVERHEAD_BYTES", "EntryTable", "place_of", "split_place"]

ENTRY_OVERHEAD_BYTES = 120
"""Overhead counted for an entry besides its command, equal to that in memory."""


def place_of(segment: int, offset: int) -> int:
    """Encode segment and offset of a record as one number; 0 is none, because segments are numbered from 1."""
    return segment << 32 | offset


def split_place(place: int) -> tuple[int, int]:
    """Return segment and offset."""
    return place >> 32, place & 0xFFFFFFFF


class EntryTable:
    """Parallel columns, one row an entry; row 0 is the base.

    Attributes:
        first: index of the base.
        places: where an entry's record begins; 0 for a base that stands for a snapshot.
        terms: its term.
        sizes: bytes of its command.
        seeds: the seed of its record's checksum.
        stamps_us: the latest log time up to it, as far as the table shows.
        changes: (index, command) of the membership entries behind the base.
        size_bytes: commands and overhead behind the base.
    """

    def __init__(self, index: int, term: int) -> None:
        self.changes: list[tuple[int, bytes]] = []
        self.reset(index, term)

    def reset(self, index: int, term: int) -> None:
        """Remove all rows and add a base."""
        self.first = index
        self.places = array("Q", [0])
        self.terms = array("Q", [term])
        self.sizes = array("I", [0])
        self.seeds = array("Q", [0])
        self.stamps_us = array("Q", [0])
        self.changes.clear()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self.places)

    @property
    def last(self) -> int:
        """Return the index of the newest entry."""
        return self.first + len(self.places) - 1

    def add(self, place: int, term: int, command: bytes | memoryview, seed: int) -> None:
        """Append a row; the command itself is kept only if it changes the members."""
        self.places.append(place)
        self.terms.append(term)
        self.sizes.append(len(command))
        self.seeds.append(seed)
        self.stamps_us.append(max(self.stamps_us[-1], stamp_us_of(command)))
        self.size_bytes += len(command) + ENTRY_OVERHEAD_BYTES
        if is_change(command):
            self.changes.append((self.last, bytes(command)))

    def truncate_from(self, index: int) -> None:
        """Remove the row of `index` and all later ones; the base stays."""
        row = index - self.first
        self.size_bytes -= self._cost(row, len(self))
        for column in (self.places, self.terms, self.sizes, self.seeds, self.stamps_us):
            del column[row:]
        while self.changes and self.changes[-1][0] >= index:
            self.changes.pop()

    def drop_before(self, index: int) -> list[tuple[int, bytes]]:
        """Make `index` the base; return the membership changes that are no longer behind it."""
        row = index - self.first
        self.size_bytes -= self._cost(1, row + 1)
        for column in (self.places, self.terms, self.sizes, self.seeds, self.stamps_us):
            del column[:row]
        self.first = index
        count = sum(1 for changed, _ in self.changes if changed <= index)
        dropped = self.changes[:count]
        del self.changes[:count]
        return dropped

    def _cost(self, start: int, stop: int) -> int:
        return sum(self.sizes[start:stop]) + ENTRY_OVERHEAD_BYTES * max(0, stop - start)
