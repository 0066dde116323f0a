"""Deduplication: batches by node, pushes by producer sequence, pushes by idempotency key.

Everything here forgets by log time or by use, so that its size is bounded and equal on all replicas.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator

__all__ = ["BatchSessions", "IdempotencyKeys", "Producers"]


class BatchSessions:
    """The last batch applied of each node.

    A node numbers its batches 1, 2, 3, ... within an incarnation (a number that grows with every start of the node) and sends
    unresolved ones again after a leader change. A batch is applied only right after its predecessor, so each is applied
    exactly once and in order, whatever was sent twice or lost.
    """

    ORIGINS_MAX = 4096

    def __init__(self) -> None:
        self._sessions: OrderedDict[bytes, tuple[int, int]] = OrderedDict()

    def admit(self, origin: bytes, incarnation: int, sequence: int) -> str:
        """Whether the batch is to be applied: ``applied`` (and then counted), ``duplicate`` or ``gap``."""
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

    def last_sequence(self, origin: bytes, incarnation: int) -> int:
        """The last applied sequence of that incarnation, 0 if none."""
        known, last = self._sessions.get(origin, (0, 0))
        return last if known == incarnation else 0

    def rows(self) -> Iterator[list[object]]:
        """The table as of now for a snapshot, least recently used first; it may change while the rows are read."""
        items = list(self._sessions.items())
        return ([origin, incarnation, last] for origin, (incarnation, last) in items)

    def records(self) -> list[list[object]]:
        """All rows."""
        return list(self.rows())

    def load(self, records: Iterable[tuple[bytes, int, int]]) -> None:
        """Add the records of a snapshot, in the order they were written."""
        for origin, incarnation, last in records:
            self._sessions[origin] = (incarnation, last)


class Producers:
    """The highest sequence stored of each producer.

    A producer is one client; it sends its pushes in order of their sequence over one connection at a time, and after a lost
    connection sends the unresolved ones again from the lowest on. So a sequence not above the highest stored one has been
    stored already. Sequences may skip: a push that was refused is retried under a new one.
    """

    PRODUCERS_MAX = 200_000

    def __init__(self, window_us: int) -> None:
        self._window_us = window_us
        self._producers: OrderedDict[bytes, tuple[int, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._producers)

    def admit(self, producer: bytes, first: int, count: int, now_us: int) -> int:
        """How many of `count` pushes with sequences from `first` are duplicates, counted from the first."""
        producers = self._producers
        self._expire(now_us)
        last, _used = producers.get(producer, (0, 0))
        duplicates = min(max(0, last - first + 1), count)
        producers[producer] = (max(last, first + count - 1), now_us)
        producers.move_to_end(producer)
        if len(producers) > self.PRODUCERS_MAX:
            producers.popitem(last=False)
        return duplicates

    def _expire(self, now_us: int) -> None:
        producers = self._producers
        while producers and producers[next(iter(producers))][1] <= now_us - self._window_us:
            producers.popitem(last=False)

    def rows(self) -> Iterator[list[object]]:
        """The table as of now for a snapshot, least recently used first; it may change while the rows are read."""
        items = list(self._producers.items())
        return ([producer, last, used_us] for producer, (last, used_us) in items)

    def records(self) -> list[list[object]]:
        """All rows."""
        return list(self.rows())

    def load(self, records: Iterable[tuple[bytes, int, int]]) -> None:
        """Add the records of a snapshot, in the order they were written."""
        for producer, last, used_us in records:
            self._producers[producer] = (last, used_us)


class IdempotencyKeys:
    """Results of keyed pushes, remembered for a window of log time.

    The number of keys is bounded by the node, which refuses keyed pushes over its limit before they reach the log.
    """

    def __init__(self, window_us: int) -> None:
        self._window_us = window_us
        self._flags: dict[tuple[bytes, bytes], int] = {}
        self._expiry: deque[tuple[int, bytes, bytes]] = deque()

    def __len__(self) -> int:
        return len(self._flags)

    def find(self, queue: bytes, key: bytes, now_us: int) -> int | None:
        """The flag of the push that first used the key on this queue within the window, or None."""
        expiry = self._expiry
        while expiry and expiry[0][0] <= now_us:
            _, old_queue, old_key = expiry.popleft()
            del self._flags[old_queue, old_key]
        return self._flags.get((queue, key))

    def remember(self, queue: bytes, key: bytes, flag: int, now_us: int) -> None:
        """Keep the flag of a push whose key `find` did not know."""
        self._flags[queue, key] = flag
        self._expiry.append((now_us + self._window_us, queue, key))

    def rows(self) -> Iterator[list[object]]:
        """The table as of now for a snapshot, in order of expiry; it may change while the rows are read."""
        expiry, flags = self._expiry.copy(), self._flags.copy()
        return ([expires_us, queue, key, int(flags[queue, key])] for expires_us, queue, key in expiry)

    def records(self) -> list[list[object]]:
        """All rows."""
        return list(self.rows())

    def load(self, records: Iterable[tuple[int, bytes, bytes, int]]) -> None:
        """Add the records of a snapshot, in the order they were written.

        Raises:
            ValueError: a key is there twice.
        """
        for expires_us, queue, key, flag in records:
            if (queue, key) in self._flags:
                raise ValueError("an idempotency key is there twice")
            self._expiry.append((expires_us, queue, key))
            self._flags[queue, key] = flag
