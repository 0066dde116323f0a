"""Sequences of producers that a queue refused although later ones have been stored."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

__all__ = ["RANGES_MAX", "RefusedRanges"]

RANGES_MAX = 4_096
"""Most ranges of one producer: our client has at most 8,192 pushes in flight, and at most every other one begins a range."""
_OWNER_RANGES_MAX = 100_000
_ROW_RANGES = 500

_Ranges = list[tuple[int, int]]


class RefusedRanges:
    """Ranges of refused sequences by owner and producer, in growing order.

    A sequence not above a producer's highest one has been stored already, unless it is listed here: a full queue may
    refuse a push and accept later ones. If the client resends such a push because the answer was lost, it is tried
    again. Ranges beyond the limits are forgotten, those of the lowest sequences first.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, bytes], _Ranges] = {}
        self._used: dict[bytes, int] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def note(self, owner: bytes, producer: bytes, sequence: int) -> None:
        """Add the sequence of a refused push, which is not listed yet."""
        known = self._known.get((owner, producer))
        if known and known[-1][1] == sequence - 1:
            known[-1] = (known[-1][0], sequence)
            return
        ranges = list(known or ())
        place = bisect_right(ranges, (sequence, sequence))
        first = last = sequence
        if place < len(ranges) and ranges[place][0] == sequence + 1:
            last = ranges.pop(place)[1]
        if place > 0 and ranges[place - 1][1] == sequence - 1:
            place -= 1
            first = ranges.pop(place)[0]
        ranges.insert(place, (first, last))
        self._keep(owner, producer, ranges)

    def among(self, owner: bytes, producer: bytes, first: int, count: int) -> list[int]:
        """Return those of `count` sequences from `first` on that were refused."""
        found: list[int] = []
        for low, high in self._known.get((owner, producer), ()):
            found.extend(range(max(low, first), min(high, first + count - 1) + 1))
        return found

    def stored(self, owner: bytes, producer: bytes, sequence: int) -> None:
        """Remove the sequence of a push that was refused before and has been stored."""
        ranges: _Ranges = []
        for low, high in self._known.get((owner, producer), ()):
            parts = ((low, high),) if not low <= sequence <= high else ((low, sequence - 1), (sequence + 1, high))
            ranges += [part for part in parts if part[0] <= part[1]]
        self._keep(owner, producer, ranges)

    def forget(self, owner: bytes, producer: bytes) -> None:
        """Remove all ranges of a producer."""
        self._keep(owner, producer, [])

    def adopt(self, owner: bytes, producer: bytes) -> None:
        """Assign the ranges of a producer without an owner to an owner."""
        ranges = self._known.get((b"", producer), [])
        self.forget(b"", producer)
        self._keep(owner, producer, ranges)

    def _keep(self, owner: bytes, producer: bytes, ranges: _Ranges) -> None:
        before = len(self._known.pop((owner, producer), ()))
        room = _OWNER_RANGES_MAX - self._used.get(owner, 0) + before
        ranges = ranges[max(0, len(ranges) - min(RANGES_MAX, room)) :]
        if ranges:
            self._known[owner, producer] = ranges
        used = self._used.pop(owner, 0) + len(ranges) - before
        if used:
            self._used[owner] = used

    def rows(self) -> Iterator[list[object]]:
        """Return the table as of now for a snapshot; it may change while the rows are read."""
        return iter(
            [
                [owner, producer, [list(one) for one in ranges[start : start + _ROW_RANGES]]]
                for (owner, producer), ranges in sorted(self._known.items())
                for start in range(0, len(ranges), _ROW_RANGES)
            ]
        )

    def load(self, rows: Iterable[tuple[bytes, bytes, list[list[int]]]]) -> None:
        """Add the rows of a snapshot, in the order they were written.

        Raises:
            ValueError: a range is malformed, or not behind the previous one.
        """
        for owner, producer, given in rows:
            ranges = list(self._known.get((owner, producer), ()))
            for low, high in given:
                if type(low) is not int or type(high) is not int or low > high or (ranges and low <= ranges[-1][1]):
                    raise ValueError("a range of refused sequences is malformed")
                ranges.append((low, high))
            self._keep(owner, producer, ranges)
