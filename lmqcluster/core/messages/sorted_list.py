"""Things in the order of keys, from which any can be taken out: what a heap or a deque cannot do."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

__all__ = ["SortedList"]

M = TypeVar("M")
Key = tuple[Any, ...]

_BLOCK = 512


class SortedList(Generic[M]):
    """Things under unique keys in blocks of at most 1,024 entries, as in `SortedNames`.

    Adding, finding and removing cost O(log n), and move part of one block. All keys have the same length and are comparable;
    an entry is its key with the thing behind it. A key that is shorter finds the first entry that begins with it.
    """

    __slots__ = ("_blocks", "_count", "_floors")

    def __init__(self) -> None:
        self._blocks: list[list[Any]] = []
        # Lower bounds: no entry of a block is less than its floor, and all entries before it are.
        self._floors: list[Any] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[M]:
        for block in self._blocks:
            for entry in block:
                yield entry[-1]

    def add(self, key: Key, thing: M) -> None:
        """Add a thing under a key that is not there."""
        entry = (*key, thing)
        self._count += 1
        blocks, floors = self._blocks, self._floors
        if not blocks:
            blocks.append([entry])
            floors.append(key)
            return
        place = bisect_right(floors, key) - 1
        if place < 0:
            place = 0
            floors[0] = key
        block = blocks[place]
        if block[-1] < entry:
            block.append(entry)
        else:
            insort(block, entry)
        if len(block) > 2 * _BLOCK:
            blocks[place : place + 1] = [block[:_BLOCK], block[_BLOCK:]]
            floors.insert(place + 1, block[_BLOCK][:-1])

    def add_all(self, entries: list[tuple[Any, ...]]) -> None:
        """Add rising entries, each its key with the thing behind it, under keys that are not there; fast at the end."""
        blocks, placed = self._blocks, 0
        if entries and not blocks:
            blocks.append([])
            self._floors.append(entries[0][:-1])
        if entries and (not blocks[-1] or blocks[-1][-1] < entries[0]):
            block = blocks[-1]
            placed = min(len(entries), 2 * _BLOCK - len(block))
            block += entries[:placed]
            self._count += placed
        for entry in entries[placed:]:
            self.add(entry[:-1], entry[-1])

    def remove(self, key: Key) -> bool:
        """Remove the thing under this key; whether it was there."""
        place, index = self._find(key)
        if place < 0 or self._blocks[place][index][:-1] != key:
            return False
        self._delete(place, index)
        return True

    def first(self) -> M | None:
        """The thing with the smallest key."""
        return self._blocks[0][0][-1] if self._blocks else None

    def last(self) -> M | None:
        """The thing with the largest key."""
        return self._blocks[-1][-1][-1] if self._blocks else None

    def first_key(self) -> Key | None:
        """The smallest key."""
        return self._blocks[0][0][:-1] if self._blocks else None

    def first_from(self, key: Key) -> M | None:
        """The thing with the smallest key that is not less than this one."""
        place, index = self._find(key)
        return None if place < 0 else self._blocks[place][index][-1]

    def pop_first(self) -> M:
        """Remove the thing with the smallest key, which must be there."""
        thing: M = self._blocks[0][0][-1]
        self._delete(0, 0)
        return thing

    def between(self, low: Key, high: Key) -> Iterator[M]:
        """The things with keys from `low` on that are less than `high`; nothing may change meanwhile."""
        place, index = self._find(low)
        if place < 0:
            return
        while place < len(self._blocks):
            block = self._blocks[place]
            end = bisect_left(block, high)
            for entry in block[index:end]:
                yield entry[-1]
            if end < len(block):
                return
            place, index = place + 1, 0

    def count_between(self, low: Key, high: Key) -> int:
        """How many keys there are from `low` on that are less than `high`."""
        return max(0, self._rank(high) - self._rank(low))

    def frozen(self) -> list[list[Any]]:
        """The entries as they are now, in blocks of their own."""
        return [block.copy() for block in self._blocks]

    def _rank(self, key: Key) -> int:
        """How many keys are less than this one. Costs a step a block."""
        place, index = self._find(key)
        if place < 0:
            return self._count
        return sum(map(len, self._blocks[:place])) + index

    def _find(self, key: Key) -> tuple[int, int]:
        """Block and index of the first entry whose key is not less; (-1, 0) if there is none."""
        blocks = self._blocks
        place = max(0, bisect_right(self._floors, key) - 1)
        while place < len(blocks):
            index = bisect_left(blocks[place], key)
            if index < len(blocks[place]):
                return place, index
            place += 1
        return -1, 0

    def _delete(self, place: int, index: int) -> None:
        block = self._blocks[place]
        del block[index]
        if not block:
            del self._blocks[place]
            del self._floors[place]
        self._count -= 1
