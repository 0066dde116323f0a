"""All queues by name, and pages of the list of queues.

The node filters, sorts and cuts the list, in slices beside its other work.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

from ....core import Queue, State
from ....wire.errors import LmqError
from ...process.fair_slices import FairSlices
from ..patterns.patterns import client_pattern
from .info import QueueInfo, Rates, age_s, dead_letters, info_of, no_rates

__all__ = ["SORT_KEYS", "STATES", "QueueList", "QueuePage", "each_queue", "list_queues", "names_in_order"]

_TOGETHER = 1_000
"""Number of matches that are sorted together."""

SORT_KEYS: dict[str, Callable[[Queue, int, Rates], float]] = {
    "name": lambda _queue, _now_us, _rates: 0,
    "ready": lambda queue, now_us, _rates: queue.store.due_count(now_us),
    "delayed": lambda queue, now_us, _rates: queue.store.waiting() - queue.store.due_count(now_us),
    "leased": lambda queue, _now_us, _rates: len(queue.store.leases),
    "size": lambda queue, _now_us, _rates: len(queue),
    "bytes": lambda queue, _now_us, _rates: queue.store.body_bytes,
    "oldest": lambda queue, now_us, _rates: -1.0 if (age := age_s(queue.store.earliest_us(), now_us)) is None else age,
    "pushed": lambda queue, _now_us, _rates: queue.counters.pushed_total,
    "pulled": lambda queue, _now_us, _rates: queue.counters.pulled_total,
    "push_rate": lambda queue, _now_us, rates: rates(queue.name)[0],
    "pull_rate": lambda queue, _now_us, rates: rates(queue.name)[1],
    "redelivered": lambda queue, _now_us, _rates: queue.counters.redelivered_total,
    "dropped": lambda queue, _now_us, _rates: queue.counters.dropped_total,
    "dead_lettered": lambda queue, _now_us, _rates: queue.counters.dead_lettered_total,
    "dead_letters": lambda queue, _now_us, _rates: dead_letters(queue),
}
"""Sort keys of a list, from a log time and the rates. Queues with equal keys are in the order of their names."""

STATES: dict[str, Callable[[Queue, int], bool]] = {
    "ready": lambda queue, now_us: queue.store.due_count(now_us) > 0,
    "leased": lambda queue, _now_us: len(queue.store.leases) > 0,
    "delayed": lambda queue, now_us: queue.store.waiting() > queue.store.due_count(now_us),
    "empty": lambda queue, _now_us: len(queue) == 0,
    "suspended": lambda queue, _now_us: queue.suspended,
    "dropped": lambda queue, _now_us: queue.counters.dropped_total > 0,
    "dead_letters": lambda queue, _now_us: dead_letters(queue) > 0,
}
"""Filters of a list.

Queues with ready, leased or delayed messages; without messages; suspended; that have dropped messages; with dead
letters.
"""


@dataclass(frozen=True, slots=True)
class QueueList:
    """The wanted queues and their order.

    Attributes:
        name: only queues whose names contain this text; ASCII letters match in upper and lower case.
        pattern: only queues whose names match this regular expression.
        state: only queues in this one of `STATES`; None for all.
        sort: a key of `SORT_KEYS`.
        descending: whether the largest come first.
        after: only queues behind this name; only for a list sorted by name.
        offset: how many of them to skip.
        limit: how many to return.
        visible: returns whether a name may be seen; None if all may be.
    """

    name: bytes = b""
    pattern: bytes | None = None
    state: str | None = None
    sort: str = "name"
    descending: bool = False
    after: bytes | None = None
    offset: int = 0
    limit: int = 100
    visible: Callable[[bytes], bool] | None = None


class QueuePage(NamedTuple):
    """A page of a list.

    Attributes:
        total: number of matching queues, on this page or not.
        following: the `QueueList.after` of the next page; None at the end, and if the list is not sorted by name.
    """

    queues: list[QueueInfo]
    total: int
    following: bytes | None


_Row = tuple[float, bytes, Queue]


def names_in_order(state: Callable[[], State], *, start: bytes = b"", backwards: bool = False) -> Iterator[bytes]:
    """Iterate over the names of all queues from `start` on; backwards, over those before `start`, or all if it is empty.

    The caller may iterate slowly: names are read from the state in parts, each behind the part before. So no name comes
    twice. A queue that is created or deleted during the iteration may or may not come. The caller has to check whether
    a queue still exists.
    """
    following: bytes | None = start or None if backwards else start
    while True:
        names = state().names
        found = names.before_name(following) if backwards else names.from_name(following or b"")
        if not found:
            return
        yield from reversed(found) if backwards else found
        following = found[0] if backwards else found[-1] + b"\0"


async def each_queue(
    state: Callable[[], State], turns: FairSlices, client: bytes, *, start: bytes = b"", backwards: bool = False
) -> AsyncIterator[Queue]:
    """Iterate over all queues by name, in slices; see `names_in_order`."""
    async for name in turns.each(names_in_order(state, start=start, backwards=backwards), client):
        queue = state().queues.get(name)
        if queue is not None:
            yield queue


async def list_queues(
    state: Callable[[], State], wanted: QueueList, turns: FairSlices, client: bytes, rates: Rates = no_rates
) -> QueuePage:
    """Return a page of the list of queues. Many queues take several slices of the event loop.

    Raises:
        LmqError: ``bad_pattern``; ``bad_request`` for an unknown sort key, and for `after` in a list that is not sorted
            by name.
    """
    if wanted.sort not in SORT_KEYS:
        raise LmqError("bad_request", f"queues can be sorted by {', '.join(SORT_KEYS)}, not by {wanted.sort[:40]!r}")
    if wanted.after is not None and wanted.sort != "name":
        raise LmqError("bad_request", "only a list sorted by name can go on after a name; use an offset")
    finder = _ByName(wanted) if wanted.sort == "name" else _BySize(wanted, state().now_us, rates, turns, client)
    matches, total = _matcher(wanted), 0
    now_us, is_in_state = state().now_us, None if wanted.state is None else STATES[wanted.state]
    backwards = wanted.sort == "name" and wanted.descending
    async for queue in each_queue(state, turns, client, backwards=backwards):
        if matches(queue.name) and (is_in_state is None or is_in_state(queue, now_us)):
            total += 1
            if finder.add(queue):
                await finder.shorten()
    page = await finder.page()
    shown, now_us = page[: wanted.limit], state().now_us
    infos = [info_of(queue, now_us, rates) async for queue in turns.each(shown, client)]
    goes_on = wanted.sort == "name" and len(page) > wanted.limit
    return QueuePage(infos, total, shown[-1].name if goes_on else None)


class _Finder(ABC):
    """Selects the queues of a page, and one more, from those that match."""

    @abstractmethod
    def add(self, queue: Queue) -> bool:
        """Take the next queue by name; return whether `shorten` has to be called."""

    @abstractmethod
    async def shorten(self) -> None:
        """Drop the queues that cannot be on the page."""

    @abstractmethod
    async def page(self) -> list[Queue]:
        """Return the selected queues."""


class _ByName(_Finder):
    """Selects by name; the queues arrive in this order."""

    def __init__(self, wanted: QueueList) -> None:
        self._after, self._descending = wanted.after, wanted.descending
        self._offset, self._most = wanted.offset, wanted.limit + 1
        self._found: list[Queue] = []

    def add(self, queue: Queue) -> bool:
        after = self._after
        if after is not None and not (queue.name < after if self._descending else queue.name > after):
            return False
        if self._offset:
            self._offset -= 1
        elif len(self._found) < self._most:
            self._found.append(queue)
        return False

    async def shorten(self) -> None:
        raise AssertionError("those that cannot be on the page were not kept")

    async def page(self) -> list[Queue]:
        return self._found


class _BySize(_Finder):
    """Selects by a figure: sorts short runs and merges them in slices, because one large sort takes too long."""

    def __init__(self, wanted: QueueList, now_us: int, rates: Rates, turns: FairSlices, client: bytes) -> None:
        self._key, self._sign = SORT_KEYS[wanted.sort], -1 if wanted.descending else 1
        self._now_us, self._rates = now_us, rates
        self._turns, self._client = turns, client
        self._offset, self._count = wanted.offset, wanted.offset + wanted.limit + 1
        self._runs: list[list[_Row]] = []
        self._last: list[_Row] = []

    def add(self, queue: Queue) -> bool:
        self._last.append((self._sign * self._key(queue, self._now_us, self._rates), queue.name, queue))
        if len(self._last) < _TOGETHER:
            return False
        self._end_run()
        return sum(map(len, self._runs)) >= 2 * self._count + _TOGETHER

    def _end_run(self) -> None:
        self._last.sort(key=itemgetter(0, 1))
        self._runs.append(self._last)
        self._last = []

    async def shorten(self) -> None:
        self._runs = [await self._first()]

    async def _first(self) -> list[_Row]:
        merged = islice(heapq.merge(*self._runs, key=itemgetter(0, 1)), self._count)
        return [row async for row in self._turns.each(merged, self._client)]

    async def page(self) -> list[Queue]:
        self._end_run()
        return [queue for _, _, queue in (await self._first())[self._offset :]]


def _matcher(wanted: QueueList) -> Callable[[bytes], bool]:
    text = wanted.name.lower()
    if wanted.visible is not None:
        visible, others = wanted.visible, _matcher(replace(wanted, visible=None))
        return lambda name: visible(name) and others(name)
    if wanted.pattern is None:
        return lambda name: text in name.lower()
    search = client_pattern(wanted.pattern)
    return lambda name: text in name.lower() and search(name)
