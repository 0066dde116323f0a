"""Deduplication of pushes by producer and sequence."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from ..owners.quotas import Kind, Quotas
from .refused_ranges import RefusedRanges

__all__ = ["Producers"]

_Table = OrderedDict[bytes, tuple[int, int]]


class Producers:
    """The highest sequence stored of each producer.

    A producer is one client. It sends its pushes in order of their sequence over one connection at a time, and after
    a lost connection resends the unresolved ones from the lowest on. So a sequence not above the highest stored one
    has been stored already, unless `refused` contains it. Sequences may have gaps: a refused push is retried under a
    new one.

    Producers belong to owners. If an owner has too many, its least recently used one is forgotten.

    Attributes:
        refused: the sequences that full queues refused.
    """

    def __init__(self, window_us: int, quotas: Quotas) -> None:
        self._window_us = window_us
        self._quotas = quotas
        # The least recently used first.
        self._owners: dict[bytes, _Table] = {}
        self.refused = RefusedRanges()

    def __len__(self) -> int:
        return self._quotas.total(Kind.PRODUCERS)

    def admit(self, owner: bytes, producer: bytes, first: int, count: int, now_us: int) -> int:
        """Return how many of `count` pushes with sequences from `first` on are duplicates, counted from the first."""
        table = self._owners.get(owner)
        if table is None:
            table = self._owners[owner] = OrderedDict()
        known = table.get(producer)
        if known is None:
            known = self._adopted(owner, producer)
            self._quotas.take(Kind.PRODUCERS, owner)
        last = known[0]
        duplicates = min(max(0, last - first + 1), count)
        table[producer] = (max(last, first + count - 1), now_us)
        table.move_to_end(producer)
        if len(table) > self._quotas.LIMITS[Kind.PRODUCERS]:
            self._drop_oldest(owner, table)
        return duplicates

    def _adopted(self, owner: bytes, producer: bytes) -> tuple[int, int]:
        """Adopt a producer without an owner: its client has got a token since, or the program was older."""
        unowned = self._owners.get(b"")
        if not owner or unowned is None or producer not in unowned:
            return (0, 0)
        known = unowned.pop(producer)
        self._given(b"", unowned)
        self.refused.adopt(owner, producer)
        return known

    def due_us(self) -> int | None:
        """Return the log time at which the next producer is forgotten, None without producers."""
        oldest = [next(iter(table.values()))[1] for table in self._owners.values() if table]
        return min(oldest) + self._window_us if oldest else None

    def expire(self, now_us: int, limit: int | None) -> int:
        """Forget up to `limit` producers that were not used for the window; return how many."""
        expired = 0
        for owner in sorted(self._owners):
            table = self._owners[owner]
            while table and expired != limit and next(iter(table.values()))[1] <= now_us - self._window_us:
                self._drop_oldest(owner, table)
                expired += 1
        return expired

    def _drop_oldest(self, owner: bytes, table: _Table) -> None:
        producer, _ = table.popitem(last=False)
        self.refused.forget(owner, producer)
        self._given(owner, table)

    def _given(self, owner: bytes, table: _Table) -> None:
        self._quotas.give(Kind.PRODUCERS, owner)
        if not table:
            del self._owners[owner]

    def rows(self) -> Iterator[list[object]]:
        """Return the table as of now for a snapshot, least recently used first; it may change while the rows are read."""
        frozen = [(owner, list(self._owners[owner].items())) for owner in sorted(self._owners)]
        return ([owner, producer, last, used_us] for owner, items in frozen for producer, (last, used_us) in items)

    def load(self, rows: Iterable[tuple[bytes, bytes, int, int]]) -> None:
        """Add the rows of a snapshot, in the order they were written.

        Raises:
            ValueError: a producer occurs twice.
        """
        for owner, producer, last, used_us in rows:
            table = self._owners.setdefault(owner, OrderedDict())
            if producer in table:
                raise ValueError("a producer is there twice")
            table[producer] = (last, used_us)
            self._quotas.take(Kind.PRODUCERS, owner)
