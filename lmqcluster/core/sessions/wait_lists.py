"""Wait lists of sessions for things that only one session at a time may hold, in the order in which they asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from ..owners.quotas import Kind, Quotas

__all__ = ["WaitLists"]

_K = TypeVar("_K")
_V = TypeVar("_V")


class WaitLists:
    """Lines by the name of the thing. The first session of a line holds it. Every operation costs O(1)."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas
        # The owner of each place, in the order in which they were taken. The other two tables are derived from it.
        self._places: dict[tuple[bytes, int], bytes] = {}
        self._lines: dict[bytes, dict[int, None]] = {}
        self._names: dict[int, dict[bytes, None]] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[bytes]:
        """Return the names of things that sessions hold; they must not change during iteration."""
        return iter(self._lines)

    def places(self, session: int) -> int:
        """Return in how many lines a session is."""
        return len(self._names.get(session, ()))

    def holder(self, name: bytes) -> int:
        """Return the session that holds the thing, 0 if it is free."""
        line = self._lines.get(name)
        return 0 if line is None else next(iter(line))

    def line(self, name: bytes) -> list[int]:
        """Return the sessions in line, the holder first."""
        return list(self._lines.get(name, ()))

    def length(self, name: bytes) -> int:
        """Return how many sessions are in line, including the holder."""
        return len(self._lines.get(name, ()))

    def join(self, name: bytes, session: int, owner: bytes) -> None:
        """Add a session to the end of the line, unless it is in it.

        Raises:
            RefusedError: ``quota_exceeded``.
        """
        if (name, session) not in self._places:
            self._quotas.check(Kind.PLACES, owner)
            self._add(name, session, owner)

    def _add(self, name: bytes, session: int, owner: bytes) -> None:
        self._quotas.take(Kind.PLACES, owner)
        self._places[name, session] = owner
        self._lines.setdefault(name, {})[session] = None
        self._names.setdefault(session, {})[name] = None

    def leave(self, name: bytes, session: int) -> bool:
        """Remove a session from a line; False if it is not in it."""
        owner = self._places.pop((name, session), None)
        if owner is None:
            return False
        self._quotas.give(Kind.PLACES, owner)
        _take_out(self._lines, name, session)
        _take_out(self._names, session, name)
        return True

    def leave_some(self, session: int, limit: int) -> int:
        """Remove a session from up to `limit` lines; return how many."""
        left = 0
        while left < limit and session in self._names:
            self.leave(next(iter(self._names[session])), session)
            left += 1
        return left

    def rows(self) -> Iterator[list[object]]:
        """Return [name, session, owner] of each place as of now, in the order in which they were taken."""
        return iter([[name, session, owner] for (name, session), owner in self._places.items()])

    def load(self, rows: Iterable[tuple[bytes, int, bytes]]) -> None:
        """Add the rows of a snapshot."""
        for name, session, owner in rows:
            self._add(name, session, owner)


def _take_out(table: dict[_K, dict[_V, None]], key: _K, value: _V) -> None:
    del table[key][value]
    if not table[key]:
        del table[key]
