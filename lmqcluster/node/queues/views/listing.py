"""All queues by name, and pages of the list of queues: filtered, sorted and cut at the node, in slices beside its other work."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

from ....core import Machine, Queue
from ....wire.errors import LmqError
from ...process.fair_slices import FairSlices
from ..patterns.patterns import client_pattern
from .info import QueueInfo, Rates, age_s, dead_letters, info_of, no_rates

__all__ = ["SORT_KEYS", "STATES", "QueueList", "QueuePage", "each_queue", "list_queues", "names_in_order"]

_TOGETHER = 1_000
"""How many matches are sorted together."""

SORT_KEYS: dict[str, Callable[[Queue, int, Rates], float]] = {
    "name": lambda _queue, _now_us, _rates: 0,
    "ready": lambda queue, now_us, _rates: queue.due_count(now_us),
    "delayed": lambda queue, now_us, _rates: queue.waiting() - queue.due_count(now_us),
    "leased": lambda queue, _now_us, _rates: len(queue.leases),
    "size": lambda queue, _now_us, _rates: len(queue),
    "bytes": lambda queue, _now_us, _rates: queue.body_bytes,
    "oldest": lambda queue, now_us, _rates: -1.0 if (age := age_s(queue.earliest_us(), now_us)) is None else age,
    "pushed": lambda queue, _now_us, _rates: queue.pushed_total,
    "pulled": lambda queue, _now_us, _rates: queue.pulled_total,
    "push_rate": lambda queue, _now_us, rates: rates(queue.name)[0],
    "pull_rate": lambda queue, _now_us, rates: rates(queue.name)[1],
    "redelivered": lambda queue, _now_us, _rates: queue.redelivered_total,
    "dropped": lambda queue, _now_us, _rates: queue.dropped_total,
    "dead_lettered": lambda queue, _now_us, _rates: queue.dead_lettered_total,
    "dead_letters": lambda queue, _now_us, _rates: dead_letters(queue),
}
"""What a list can be sorted by, at a log time and with rates. Equal queues stand in the order of their names."""

STATES: dict[str, Callable[[Queue, int], bool]] = {
    "ready": lambda queue, now_us: queue.due_count(now_us) > 0,
    "leased": lambda queue, _now_us: len(queue.leases) > 0,
    "delayed": lambda queue, now_us: queue.waiting() > queue.due_count(now_us),
    "empty": lambda queue, _now_us: len(queue) == 0,
    "suspended": lambda queue, _now_us: queue.suspended,
    "dropped": lambda queue, _now_us: queue.dropped_total > 0,
    "dead_letters": lambda queue, _now_us: dead_letters(queue) > 0,
}
"""What a list can be restricted to: queues with messages that are ready, leased or delayed; without messages; suspended; those
that have dropped messages, and those that have dead letters."""


@dataclass(frozen=True, slots=True)
class QueueList:
    """Which queues are wanted, and in which order.

    Attributes:
        name: only queues in whose names this is found; upper and lower case of ASCII letters are the same.
        pattern: only queues in whose names this regular expression is found.
        state: only queues in this one of `STATES`; None for all.
        sort: a key of `SORT_KEYS`.
        descending: whether the largest come first.
        after: only queues that stand behind this name; only for a list sorted by name.
        offset: how many of them to leave out.
        limit: how many to show.
        visible: which names may be seen at all; None for every one.
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
    """A part of a list.

    Attributes:
        total: how many queues match, on this page or not.
        following: what to ask for as `QueueList.after` to go on; None at the end, and if the list is not sorted by name.
    """

    queues: list[QueueInfo]
    total: int
    following: bytes | None


_Row = tuple[float, bytes, Queue]


def names_in_order(machine: Callable[[], Machine], *, start: bytes = b"", backwards: bool = False) -> Iterator[bytes]:
    """The names of all queues from `start` on; or backwards, those before `start`, or all if that is empty.

    It may be gone through slowly: the names are read from the state some at a time, behind those that were read before. So none
    comes twice, and a queue that is made or deleted meanwhile comes or not. Whether a queue is there still has to be looked up.
    """
    following: bytes | None = start or None if backwards else start
    while True:
        names = machine().names
        found = names.before_name(following) if backwards else names.from_name(following or b"")
        if not found:
            return
        yield from reversed(found) if backwards else found
        following = found[0] if backwards else found[-1] + b"\0"


async def each_queue(
    machine: Callable[[], Machine], turns: FairSlices, client: bytes, *, start: bytes = b"", backwards: bool = False
) -> AsyncIterator[Queue]:
    """All queues by name, in slices; see `names_in_order`."""
    async for name in turns.each(names_in_order(machine, start=start, backwards=backwards), client):
        queue = machine().queues.get(name)
        if queue is not None:
            yield queue


async def list_queues(
    machine: Callable[[], Machine], wanted: QueueList, turns: FairSlices, client: bytes, rates: Rates = no_rates
) -> QueuePage:
    """A page of the list of queues. It takes several slices of the event loop if there are many.

    Raises:
        LmqError: ``bad_pattern``; ``bad_request`` for an unknown sort key, and for `after` in a list that is not sorted by name.
    """
    if wanted.sort not in SORT_KEYS:
        raise LmqError("bad_request", f"queues can be sorted by {', '.join(SORT_KEYS)}, not by {wanted.sort[:40]!r}")
    if wanted.after is not None and wanted.sort != "name":
        raise LmqError("bad_request", "only a list sorted by name can go on after a name; use an offset")
    finder = _ByName(wanted) if wanted.sort == "name" else _BySize(wanted, machine().now_us, rates, turns, client)
    matches, total = _matcher(wanted), 0
    now_us, is_in_state = machine().now_us, None if wanted.state is None else STATES[wanted.state]
    backwards = wanted.sort == "name" and wanted.descending
    async for queue in each_queue(machine, turns, client, backwards=backwards):
        if matches(queue.name) and (is_in_state is None or is_in_state(queue, now_us)):
            total += 1
            if finder.add(queue):
                await finder.shorten()
    page = await finder.page()
    shown, now_us = page[: wanted.limit], machine().now_us
    infos = [info_of(queue, now_us, rates) async for queue in turns.each(shown, client)]
    goes_on = wanted.sort == "name" and len(page) > wanted.limit
    return QueuePage(infos, total, shown[-1].name if goes_on else None)


class _Finder(ABC):
    """Finds the queues of a page, and one more, among those that match."""

    @abstractmethod
    def add(self, queue: Queue) -> bool:
        """Look at the next one by name; returns whether `shorten` has something to do."""

    @abstractmethod
    async def shorten(self) -> None:
        """Drop those that cannot be on the page."""

    @abstractmethod
    async def page(self) -> list[Queue]:
        """Those that were looked for."""


class _ByName(_Finder):
    """The queues come in this order."""

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
    """By a figure: short sorted runs, which are merged in slices, because to sort very many at once takes long."""

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
