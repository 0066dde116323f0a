"""Deduplication of batches by node."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator

__all__ = ["NodeSequences"]


class NodeSequences:
    """The last applied batch of each node.

    A node numbers its batches 1, 2, 3, ... within an incarnation (a number that grows with every start of the node)
    and resends unresolved ones after a leader change. A batch is applied only right after its predecessor, so each is
    applied exactly once and in order, regardless of repeated or lost batches.
    """

    ORIGINS_MAX = 4096

    def __init__(self) -> None:
        self._sessions: OrderedDict[bytes, tuple[int, int]] = OrderedDict()

    def admit(self, origin: bytes, incarnation: int, sequence: int) -> str:
        """Return the status of a batch: ``applied`` (and counted), ``duplicate`` or ``gap``."""
        known, last = self._sessions.get(origin, (0, 0))
        if incarnation < known:
            return "duplicate"
        if incarnation > known:
            last = 0
        if sequence <= last:
            return "duplicate"
        if sequence != last + 1:
            return "gap"
        self._sessions[origin] = (incarnation, sequence)
        self._sessions.move_to_end(origin)
        if len(self._sessions) > self.ORIGINS_MAX:
            self._sessions.popitem(last=False)
        return "applied"

    def incarnation(self, origin: bytes) -> int:
        """Return the newest incarnation of that node of which a batch was applied, 0 if none."""
        return self._sessions.get(origin, (0, 0))[0]

    def last_sequence(self, origin: bytes, incarnation: int) -> int:
        """Return the last applied sequence of that incarnation, 0 if none."""
        known, last = self._sessions.get(origin, (0, 0))
        return last if known == incarnation else 0

    def rows(self) -> Iterator[list[object]]:
        """Return the table as of now for a snapshot, least recently used first; it may change while the rows are read."""
        items = list(self._sessions.items())
        return ([origin, incarnation, last] for origin, (incarnation, last) in items)

    def records(self) -> list[list[object]]:
        """Return all rows."""
        return list(self.rows())

    def load(self, records: Iterable[tuple[bytes, int, int]]) -> None:
        """Add the records of a snapshot, in the order they were written."""
        for origin, incarnation, last in records:
            self._sessions[origin] = (incarnation, last)
