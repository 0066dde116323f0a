"""Keys that count for an exact time, for any body and any client: a queue with ``key_window`` has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from heapq import heappop, heappush
from typing import NamedTuple

from ..messages.sorted_list import SortedList
from ..owners.quotas import Kind, Quotas

__all__ = ["ExactKeys", "exact_key"]

_DIGEST_BYTES = 16
_FREED_MAX = 10_000
"""Rows of a forgotten queue whose memory is freed at once."""


class _Row(NamedTuple):
    """A push.

    Attributes:
        ends_us: the log time from which its key is new again.
        key: see `exact_key`.
        owner: whose quota it takes.
        flag: its result.
    """

    ends_us: int
    key: bytes
    owner: bytes
    flag: int


class _Table:
    """The pushes of one queue.

    Attributes:
        known: the latest row of each key.
        rows: all rows, a heap.
        used: the number of rows of each owner.
    """

    __slots__ = ("known", "rows", "used")

    def __init__(self) -> None:
        self.known: dict[bytes, _Row] = {}
        self.rows: list[_Row] = []
        self.used: dict[bytes, int] = {}

    def count(self, owner: bytes, count: int) -> None:
        """Count rows of an owner."""
        self.used[owner] = self.used.get(owner, 0) + count
        if not self.used[owner]:
            del self.used[owner]


def exact_key(key: bytes, group: bytes | None) -> bytes:
    """Return what identifies a key in its queue, or in a group of its queue; keys of any length take the same memory."""
    scope = b"" if group is None else b"%d:%b" % (len(group), group)
    return blake2b(scope + b"," + key, digest_size=_DIGEST_BYTES).digest()


class ExactKeys:
    """Pushes by queue and key, each until its own time.

    A key is known until that time to the microsecond, however late its row is removed. The window of a key is that
    of its push, so rows end in any order.
    """

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas
        self._tables: dict[bytes, _Table] = {}
        # Queues by the time at which the next of their rows ends.
        self._dues: SortedList[bytes] = SortedList()
        # Memory that is still to be freed; no part of the state.
        self._forgotten: list[_Table] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, queue: bytes) -> bool:
        """Return whether there are rows of a queue."""
        return queue in self._tables

    def find(self, queue: bytes, key: bytes, now_us: int) -> int | None:
        """Return the result of the first push with a key that still counts, or None."""
        table = self._tables.get(queue)
        row = None if table is None else table.known.get(key)
        return None if row is None or row.ends_us <= now_us else row.flag

    def remember(self, queue: bytes, key: bytes, owner: bytes, flag: int, ends_us: int) -> None:
        """Remember a push whose key `find` did not know."""
        self._add(queue, _Row(ends_us, key, owner, flag))

    def _add(self, queue: bytes, row: _Row) -> None:
        table = self._tables.get(queue)
        if table is None:
            table = self._tables[queue] = _Table()
        elif row < table.rows[0]:
            self._dues.remove((table.rows[0].ends_us, queue))
        heappush(table.rows, row)
        if table.rows[0] is row:
            self._dues.add((row.ends_us, queue), queue)
        known = table.known.get(row.key)
        # Rows of a snapshot are in the order of the heap, so the latest of a key may come first.
        if known is None or known.ends_us <= row.ends_us:
            table.known[row.key] = row
        table.count(row.owner, 1)
        self._quotas.take(Kind.KEYS, row.owner)
        self._count += 1

    def forget(self, queue: bytes) -> None:
        """Forget all keys of a queue; the memory is freed later, a bounded part at a time."""
        table = self._tables.pop(queue, None)
        if table is not None:
            self._dues.remove((table.rows[0].ends_us, queue))
            self._count -= len(table.rows)
            for owner, count in table.used.items():
                self._quotas.give(Kind.KEYS, owner, count)
            if len(table.rows) > _FREED_MAX:
                self._forgotten.append(table)

    # --- Source ---------------------------------------------------------------------------------------------------

    def due_us(self) -> int | None:
        """Return the log time at which the next row ends; 0 while memory is to be freed, None without rows."""
        if self._forgotten:
            return 0
        first = self._dues.first_key()
        return None if first is None else int(first[0])

    def expire(self, now_us: int, limit: int | None) -> int:
        """Remove up to `limit` rows whose time has come, the first ones over all queues; return how many."""
        self._free()
        ended = 0
        while ended != limit and (first := self._dues.first_key()) is not None and first[0] <= now_us:
            queue = self._dues.pop_first()
            table, after = self._tables[queue], self._dues.first_key()
            until = (now_us + 1, b"") if after is None else min((now_us + 1, b""), after)
            while ended != limit and table.rows and (table.rows[0].ends_us, queue) < until:
                self._end_first(table)
                ended += 1
            if table.rows:
                self._dues.add((table.rows[0].ends_us, queue), queue)
            else:
                del self._tables[queue]
        return ended

    def _end_first(self, table: _Table) -> None:
        row = heappop(table.rows)
        if table.known.get(row.key) is row:
            del table.known[row.key]
        table.count(row.owner, -1)
        self._quotas.give(Kind.KEYS, row.owner)
        self._count -= 1

    def _free(self) -> None:
        if self._forgotten:
            table = self._forgotten[-1]
            del table.rows[-_FREED_MAX:]
            for _ in range(min(_FREED_MAX, len(table.known))):
                table.known.popitem()
            if not table.rows:
                self._forgotten.pop()

    # --- snapshots ------------------------------------------------------------------------------------------------

    def sample(self, queue: bytes, count: int) -> tuple[int, list[_Row]]:
        """Return the number of rows of a queue, and some of them, for a comparison of replicas."""
        table = self._tables.get(queue)
        return (0, []) if table is None else (len(table.rows), table.rows[:count])

    def rows(self) -> Iterator[list[object]]:
        """Return the rows as of now for a snapshot; they may change while the rows are read."""
        tables = [(queue, table.rows.copy()) for queue, table in self._tables.items()]
        return ([row.ends_us, queue, row.owner, row.flag, row.key] for queue, rows in tables for row in rows)

    def load(self, rows: Iterable[tuple[int, bytes, bytes, int, bytes]]) -> None:
        """Add the rows of a snapshot, in the order they were written, which makes equal heaps."""
        for ends_us, queue, owner, flag, key in rows:
            self._add(queue, _Row(ends_us, key, owner, flag))
