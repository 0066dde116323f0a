"""Attempts: a client that repeats a request under the same attempt gets the result of the first, as long as it is kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple

from ..messages.sorted_list import SortedList
from ..owners.quotas import Kind, Quotas

__all__ = ["ATTEMPT_BYTES_MAX", "Attempts", "attempt_key"]

ATTEMPT_BYTES_MAX = 255
_DIGEST_BYTES = 16
_SAMPLE = 20


class _Row(NamedTuple):
    """A request.

    Attributes:
        ends_us: the log time from which its attempt is new again.
        key: see `attempt_key`.
        numbers: its result, one number or more.
    """

    ends_us: int
    key: bytes
    numbers: tuple[int, ...]


class _Owned:
    """The requests of one owner.

    Attributes:
        known: the latest row of each key.
        rows: all rows in the order of the requests.
        size: the numbers in them.
    """

    __slots__ = ("known", "rows", "size")

    def __init__(self) -> None:
        self.known: dict[bytes, _Row] = {}
        self.rows: deque[_Row] = deque()
        self.size = 0


def attempt_key(queue: bytes, attempt: bytes) -> bytes:
    """Return what identifies an attempt on a queue; attempts of any length take the same memory.

    Raises:
        ValueError: the attempt is malformed.
    """
    if type(attempt) is not bytes or not 0 < len(attempt) <= ATTEMPT_BYTES_MAX:
        raise ValueError(f"an attempt must have 1 to {ATTEMPT_BYTES_MAX} bytes")
    return blake2b(b"%d:%b%b" % (len(queue), queue, attempt), digest_size=_DIGEST_BYTES).digest()


class Attempts:
    """The results of requests by owner and attempt, each until its own time.

    Of each owner the latest requests are kept, with `numbers_max` numbers in all: the oldest make room for a new one, so no
    request is refused for lack of room. An attempt is known until its time to the microsecond, however late its row is
    removed.

    Attributes:
        forgotten_total: rows that made room before their time, since this replica was started or restored.
    """

    def __init__(self, quotas: Quotas, numbers_max: int) -> None:
        self._quotas = quotas
        self._numbers_max = numbers_max
        self._owned: dict[bytes, _Owned] = {}
        # Owners by the time at which the first of their rows ends.
        self._dues: SortedList[bytes] = SortedList()
        self.forgotten_total = 0

    def __len__(self) -> int:
        return sum(len(one.rows) for one in self._owned.values())

    def find(self, owner: bytes, key: bytes, now_us: int) -> tuple[int, ...] | None:
        """Return the result of the latest request with a key, None if it is not known any more."""
        owned = self._owned.get(owner)
        row = None if owned is None else owned.known.get(key)
        return None if row is None or row.ends_us <= now_us else row.numbers

    def remember(self, owner: bytes, results: Iterable[tuple[bytes, tuple[int, ...]]], ends_us: int) -> None:
        """Remember the results of requests by their keys; those beyond what is kept of an owner are forgotten at once."""
        rows = [_Row(ends_us, key, numbers) for key, numbers in results]
        owned = self._owned.get(owner)
        if owned is None:
            owned = self._owned[owner] = _Owned()
            self._dues.add((ends_us, owner), owner)
        size = sum([len(row.numbers) for row in rows])
        owned.rows += rows
        owned.known.update([(row.key, row) for row in rows])
        owned.size += size
        self._quotas.take(Kind.ATTEMPTS, owner, size)
        if owned.size > self._numbers_max:
            due_us, before = owned.rows[0].ends_us, owned.size
            while owned.size > self._numbers_max:
                self._end_first(owned)
                self.forgotten_total += 1
            self._quotas.give(Kind.ATTEMPTS, owner, before - owned.size)
            self._note_first(owner, owned, due_us)

    def _end_first(self, owned: _Owned) -> None:
        """Forget the first row; the caller gives its numbers back to the quota of the owner."""
        row = owned.rows.popleft()
        if owned.known.get(row.key) is row:
            del owned.known[row.key]
        owned.size -= len(row.numbers)

    def _note_first(self, owner: bytes, owned: _Owned, due_us: int) -> None:
        """Note when the first row of an owner ends, after the one that ended at `due_us`."""
        self._dues.remove((due_us, owner))
        if owned.rows:
            self._dues.add((owned.rows[0].ends_us, owner), owner)
        else:
            del self._owned[owner]

    # --- Source ---------------------------------------------------------------------------------------------------

    def due_us(self) -> int | None:
        """Return the log time at which the first row of an owner ends; None without rows."""
        first = self._dues.first_key()
        return None if first is None else int(first[0])

    def expire(self, now_us: int, limit: int | None) -> int:
        """Remove up to `limit` rows whose time has come and before which no other of their owner is; return how many."""
        ended = 0
        while ended != limit and (first := self._dues.first_key()) is not None and first[0] <= now_us:
            due_us, owner = first
            owned = self._owned[owner]
            before = owned.size
            while ended != limit and owned.rows and owned.rows[0].ends_us <= now_us:
                self._end_first(owned)
                ended += 1
            self._quotas.give(Kind.ATTEMPTS, owner, before - owned.size)
            self._note_first(owner, owned, due_us)
        return ended

    # --- snapshots ------------------------------------------------------------------------------------------------

    def sample(self, number: int) -> Iterator[str]:
        """Yield texts of the counts and of some rows that the number selects; they are equal on equal replicas."""
        owners = list(self._owned)
        yield repr((len(owners), self.due_us()))
        for place in range(min(len(owners), _SAMPLE)):
            owner = owners[(number + place) % len(owners)]
            owned = self._owned[owner]
            yield repr((owner, len(owned.rows), owned.size, [*islice(owned.rows, _SAMPLE)]))

    def rows(self) -> Iterator[list[object]]:
        """Return the rows as of now for a snapshot; they may change while the rows are read."""
        owned = [(owner, one.rows.copy()) for owner, one in self._owned.items()]
        return ([owner, row.ends_us, row.key, list(row.numbers)] for owner, rows in owned for row in rows)

    def load(self, rows: Iterable[tuple[bytes, int, bytes, list[int]]]) -> None:
        """Add the rows of a snapshot, in the order they were written."""
        for owner, ends_us, key, numbers in rows:
            self.remember(owner, [(key, tuple(numbers))], ends_us)
