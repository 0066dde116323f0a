"""Names in order, so that snapshots and lists need not sort them: sorting a million takes a second."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

__all__ = ["SortedNames"]

_BLOCK = 512


class SortedNames:
    """A sorted set of names in blocks of at most 1,024. Adding and removing move part of one block."""

    def __init__(self) -> None:
        self._blocks: list[list[bytes]] = []
        self._firsts: list[bytes] = []

    def __iter__(self) -> Iterator[bytes]:
        for block in self._blocks:
            yield from block

    def add(self, name: bytes) -> None:
        """Add a name that is not in the set."""
        if not self._blocks:
            self._blocks.append([name])
            self._firsts.append(name)
            return
        place = max(0, bisect_right(self._firsts, name) - 1)
        block = self._blocks[place]
        insort(block, name)
        if len(block) > 2 * _BLOCK:
            self._blocks[place : place + 1] = [block[:_BLOCK], block[_BLOCK:]]
            self._firsts[place : place + 1] = [block[0], block[_BLOCK]]
        else:
            self._firsts[place] = block[0]

    def remove(self, name: bytes) -> None:
        """Remove a name that is in the set."""
        place = bisect_right(self._firsts, name) - 1
        block = self._blocks[place]
        del block[bisect_left(block, name)]
        if block:
            self._firsts[place] = block[0]
        else:
            del self._blocks[place]
            del self._firsts[place]

    def from_name(self, name: bytes) -> list[bytes]:
        """Return the next names from this one on that share a block; none if there are no more."""
        place = max(0, bisect_right(self._firsts, name) - 1)
        while place < len(self._blocks):
            block = self._blocks[place]
            found = block[bisect_left(block, name) :]
            if found:
                return found
            place += 1
        return []

    def before_name(self, name: bytes | None) -> list[bytes]:
        """Return the last names before this one (None: the last of all), in order; none if there are no more."""
        if not self._blocks:
            return []
        if name is None:
            return self._blocks[-1].copy()
        place = bisect_left(self._firsts, name) - 1
        return [] if place < 0 else self._blocks[place][: bisect_left(self._blocks[place], name)]

    def from_place(self, place: int, limit: int) -> list[bytes]:
        """Return up to `limit` names in order, beginning with the one at index `place`."""
        found: list[bytes] = []
        for block in self._blocks:
            if place < len(block):
                found += block[place : place + limit - len(found)]
                if len(found) >= limit:
                    break
            place = max(0, place - len(block))
        return found

    def frozen(self) -> list[list[bytes]]:
        """Return a copy of the names, in blocks."""
        return [block.copy() for block in self._blocks]
