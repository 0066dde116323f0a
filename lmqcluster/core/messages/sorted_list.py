"""A list sorted by keys from which any item can be removed, unlike a heap or a deque."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

__all__ = ["SortedList"]

M = TypeVar("M")
Key = tuple[Any, ...]

_BLOCK = 512


class SortedList(Generic[M]):
    """Items under unique keys in blocks of at most 1,024 entries, like `SortedNames`.

    Adding, finding and removing cost O(log n), and move part of one block. All keys have the same length and are
    comparable; an entry is its key followed by the item. A shorter key finds the first entry that begins with it.
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
        """Add an item under a key that is not in the list."""
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
        """Add entries in rising order, each a key followed by its item, under new keys; fast at the end."""
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
        """Remove the item under this key; return whether it existed."""
        place, index = self._find(key)
        if place < 0 or self._blocks[place][index][:-1] != key:
            return False
        self._delete(place, index)
        return True

    def first(self) -> M | None:
        """Return the item with the smallest key; None if the list is empty."""
        return self._blocks[0][0][-1] if self._blocks else None

    def last(self) -> M | None:
        """Return the item with the largest key; None if the list is empty."""
        return self._blocks[-1][-1][-1] if self._blocks else None

    def first_key(self) -> Key | None:
        """Return the smallest key; None if the list is empty."""
        return self._blocks[0][0][:-1] if self._blocks else None

    def first_from(self, key: Key) -> M | None:
        """Return the item with the smallest key that is not less than this one; None if there is none."""
        place, index = self._find(key)
        return None if place < 0 else self._blocks[place][index][-1]

    def pop_first(self) -> M:
        """Remove and return the item with the smallest key; the list must not be empty."""
        thing: M = self._blocks[0][0][-1]
        self._delete(0, 0)
        return thing

    def between(self, low: Key, high: Key) -> Iterator[M]:
        """Yield the items with keys from `low` on that are less than `high`; the list must not change during iteration."""
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
        """Return the number of keys from `low` on that are less than `high`."""
        return max(0, self._rank(high) - self._rank(low))

    def frozen(self) -> list[list[Any]]:
        """Return a copy of the entries, in blocks."""
        return [block.copy() for block in self._blocks]

    def _rank(self, key: Key) -> int:
        """Return the number of keys less than this one. The cost is one step per block."""
        place, index = self._find(key)
        if place < 0:
            return self._count
        return sum(map(len, self._blocks[:place])) + index

    def _find(self, key: Key) -> tuple[int, int]:
        """Return block and index of the first entry whose key is not less; (-1, 0) if there is none."""
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
