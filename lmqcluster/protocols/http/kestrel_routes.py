"""``/stats.json`` and ``/stats.txt``, like those of Kestrel's admin port."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from operator import sub
from typing import TYPE_CHECKING, NamedTuple

from ...core import Queue, Role
from ...node.access.clients import NODE
from ...node.metrics.kestrel_counts import KestrelQueueCounts
from ...node.metrics.kestrel_stats import OF_ALL_QUEUES, global_stats, queue_stats
from ...wire.errors import LmqError
from .server.barrier_read import marked, refresh
from .server.replies import problem
from .server.replies.compact_json import dumps, key_text
from .server.replies.reply import JSON
from .server.replies.streamed import streamed
from .server.routing import Resource, Router

if TYPE_CHECKING:
    from ...node.access.access import Principal
    from ...node.node import Node
    from ...node.process.fair_slices import FairSlices
    from .server.replies.reply import Reply
    from .server.requests.request import Request

__all__ = ["KestrelStatsRoutes"]

Numbers = dict[str, int]
Row = tuple[int, ...]
_TEXT = b"content-type: text/plain; charset=utf-8\r\n"
BASES_MAX = 4
PERIOD_S_MIN, PERIOD_S_MAX = 60, 3600
NAME_BYTES_MAX = 100
_UNASKED_PERIODS_MAX = 10
_COUNTERS = ("total_items", "transactions", "canceled_transactions", "expired_items", "discarded", "total_flushes")
_OWN_COUNTERS = ("put_items", "put_bytes", "get_items_hit", "get_items_miss")
_NO_COUNTERS = ("journal_rewrites", "journal_rotations")
_UNUSED = ("cmd_get_timeout_dropped", "cmd_get_open_dropped")
"""Counters that are always 0, because an item for a client that disconnected returns to its queue."""
_GAUGES = ("items", "bytes", "mem_items", "mem_bytes", "waiters", "open_transactions")
_GLOBAL_GAUGES = ("reserved_memory_ratio", "uptime", "time", "curr_connections")
_NAMES = (*_COUNTERS, *_OWN_COUNTERS)
_ZEROS: Row = (0,) * len(_NAMES)
_GAUGES_OF_ALL_QUEUES = ("items", "bytes")
_QUEUES = "q/"
"""Prefix of the names of a queue's figures."""


class _Counters(NamedTuple):
    """All counters at one time: those of queues in the order of `_NAMES`, and those of the node."""

    queues: dict[bytes, Row]
    node: Numbers


class _Group(NamedTuple):
    """Figures under one heading.

    Attributes:
        of_queues: names and values of the figures of each queue; None if there are no such figures.
        of_node: the figures of the node.
    """

    name: str
    of_queues: AsyncIterator[dict[str, object]] | None
    of_node: Mapping[str, object]


class KestrelStatsRoutes:
    """Routes that show Kestrel's statistics and keep earlier counters, from which they compute differences."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._bases: OrderedDict[bytes, _Counters] = OrderedDict()
        self._periods: dict[int, _Period] = {}

    def add_to(self, router: Router) -> None:
        """Register the routes."""
        for path, handler in (("/stats.json", self.as_json), ("/stats.txt", self.as_text)):
            router.add(path, Resource({"GET": handler}, problem.on_error, problem.refuse("GET")))

    async def as_json(self, request: Request) -> Reply:
        """Return all figures as one object."""
        stale, groups = await self._groups(request)
        return marked(await streamed(JSON, _json_pieces(groups)), stale=stale)

    async def as_text(self, request: Request) -> Reply:
        """Return one line for each figure."""
        stale, groups = await self._groups(request)
        return marked(await streamed(_TEXT, _text_pieces(groups)), stale=stale)

    async def _groups(self, request: Request) -> tuple[bool, list[_Group]]:
        query = request.parameters()
        period_s, name = _period_of(query.get(b"period")), query.get(b"namespace")
        stale = await refresh(self._node.service)
        counters, gauges = await self._figures_of_node()
        seen = _Seen(request.principal, request.client(self._node.access))
        if period_s is not None:
            last = self._period(period_s).last or _Counters({}, {})
            of_queues = self._counters_of_queues(seen, lambda queue, _row: last.queues.get(queue, _ZEROS))
            counters = {one: last.node.get(one, 0) for one in counters}
        elif name is not None:
            key = request.principal.owner + b"\0" + name[:NAME_BYTES_MAX]
            base = self._bases.get(key, _Counters({}, {}))
            of_queues = self._differences(seen, key, base, counters)
            counters = {one: value - base.node.get(one, 0) for one, value in counters.items()}
        else:
            of_queues = self._counters_of_queues(seen, lambda _queue, row: row)
        if not request.principal.everywhere:
            counters = {one: value for one, value in counters.items() if one not in OF_ALL_QUEUES}
            gauges = {one: value for one, value in gauges.items() if one not in _GAUGES_OF_ALL_QUEUES}
        labels = {"version": self._node.version, "status": self._node.observed.kestrel.status()}
        groups = [
            _Group("counters", of_queues, counters),
            _Group("gauges", self._gauges_of_queues(seen), gauges),
            _Group("labels", None, labels),
            _Group("metrics", None, {}),
        ]
        return stale, groups

    # --- of queues ------------------------------------------------------------------------------------------------

    async def _stats(self, seen: _Seen) -> AsyncIterator[tuple[Queue, dict[str, object]]]:
        """Yield the queues that a client may see, except aliases, with their statistics."""
        async for queue in self._node.service.each_queue(seen.client):
            if seen.principal is None or seen.principal.allows(Role.READ, queue.name):
                stats = queue_stats(self._node, queue.name)
                if "items" in stats:
                    yield queue, stats

    async def _rows(self, seen: _Seen) -> AsyncIterator[tuple[bytes, Row]]:
        async for queue, stats in self._stats(seen):
            yield queue.name, _row(stats, queue, self._node.observed.kestrel.of(queue))

    async def _counters_of_queues(
        self, seen: _Seen, shown: Callable[[bytes, Row], Row]
    ) -> AsyncIterator[dict[str, object]]:
        async for name, row in self._rows(seen):
            yield _named(name, shown(name, row))

    async def _differences(
        self, seen: _Seen, key: bytes, base: _Counters, node: Numbers
    ) -> AsyncIterator[dict[str, object]]:
        """Yield the counters since `base`. At the end, the current counters become the new base."""
        now = _Counters({}, node)
        async for name, row in self._rows(seen):
            now.queues[name] = row
            yield _named(name, _less(row, base.queues.get(name, _ZEROS)))
        self._bases.pop(key, None)
        self._bases[key] = now
        while len(self._bases) > BASES_MAX:
            self._bases.popitem(last=False)

    async def _gauges_of_queues(self, seen: _Seen) -> AsyncIterator[dict[str, object]]:
        async for queue, stats in self._stats(seen):
            yield _gauges(f"{_QUEUES}{key_text(queue.name)}", stats, queue)

    # --- of the node ----------------------------------------------------------------------------------------------

    async def _figures_of_node(self) -> tuple[Numbers, dict[str, object]]:
        """Return the counters and gauges of the node."""
        figures, counts = await global_stats(self._node), self._node.observed.kestrel
        gauges = {name: figures.pop(name) for name in _GLOBAL_GAUGES}
        gauges |= {"items": figures.pop("curr_items"), "bytes": figures.pop("bytes")}
        gauges["connections"] = gauges.pop("curr_connections")
        status = counts.status()
        gauges["status/readable"] = int(status != "QUIESCENT")
        gauges["status/writeable"] = int(status in ("UP", "WRITEAVOID"))
        counters = {name: value for name, value in figures.items() if isinstance(value, int)}
        counters |= {name: getattr(counts, name) for name in ("cmd_monitor", "cmd_monitor_get", "waiters_aborted")}
        return counters | dict.fromkeys(_UNUSED, 0), gauges

    def _period(self, period_s: int) -> _Period:
        found = self._periods.get(period_s)
        if found is None or found.is_over:
            self._periods = {length: one for length, one in self._periods.items() if not one.is_over}
            if len(self._periods) >= BASES_MAX:
                raise LmqError("overloaded", f"{BASES_MAX} other periods are in use; use one of these")
            found = self._periods[period_s] = _Period(self, self._node.turns, period_s)
        found.unasked = 0
        return found

    async def counters(self) -> _Counters:
        """Return all counters, as a base for differences."""
        queues = {name: row async for name, row in self._rows(_Seen(None, NODE))}
        return _Counters(queues, (await self._figures_of_node())[0])


class _Seen(NamedTuple):
    """The principal whose queues are shown, None for all, and the client that is charged for the work."""

    principal: Principal | None
    client: bytes


class _Period:
    """Differences of counters by period, computed for as long as clients request them.

    Attributes:
        last: differences over the last full period; None before the first one ends.
        unasked: number of periods since the last request.
    """

    def __init__(self, routes: KestrelStatsRoutes, turns: FairSlices, length_s: int) -> None:
        self._routes = routes
        self._turns = turns
        self.last: _Counters | None = None
        self.unasked = 0
        self._length_s = length_s
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def is_over(self) -> bool:
        """Return whether this has ended because no client asked during the last `_UNASKED_PERIODS_MAX` periods."""
        return self._task.done()

    async def _run(self) -> None:
        before = await self._routes.counters()
        while self.unasked < _UNASKED_PERIODS_MAX:
            await asyncio.sleep(self._length_s)
            now = await self._routes.counters()
            queues: dict[bytes, Row] = {}
            async for name, row in self._turns.each(now.queues.items(), NODE):
                queues[name] = _less(row, before.queues.get(name, _ZEROS))
            self.last = _Counters(queues, {name: value - before.node.get(name, 0) for name, value in now.node.items()})
            before = now
            self.unasked += 1


def _less(row: Row, before: Row) -> Row:
    return tuple(map(sub, row, before))


def _row(stats: dict[str, object], queue: Queue, counts: KestrelQueueCounts) -> Row:
    """Return the counters of a queue in the order of `_NAMES`."""
    counters = [int(str(stats[name])) for name in _COUNTERS]
    return (*counters, counters[0], counts.put_bytes, queue.counters.pulled_total, counts.get_items_miss)


def _named(name: bytes, row: Row) -> dict[str, object]:
    prefix = f"{_QUEUES}{key_text(name)}"
    values = (*zip(_NAMES, row, strict=True), *((one, 0) for one in _NO_COUNTERS))
    return {f"{prefix}/{one}": value for one, value in values}


def _gauges(prefix: str, stats: dict[str, object], queue: Queue) -> dict[str, object]:
    gauges = {f"{prefix}/{name}": stats[name] for name in _GAUGES}
    gauges[f"{prefix}/age_msec"] = stats["age"]
    gauges[f"{prefix}/journal_size"] = 0
    gauges[f"{prefix}/create_time"] = queue.created_us // 1_000_000
    options = queue.settings.options
    for name, value, unbounded in (
        ("max_items", None if options is None else options.max_items, (1 << 31) - 1),
        ("max_bytes", None if options is None else options.max_bytes, (1 << 63) - 1),
    ):
        gauges[f"{prefix}/{name}"] = unbounded if value is None else value
    return gauges


async def _of_queues(group: _Group) -> AsyncIterator[dict[str, object]]:
    if group.of_queues is not None:
        async for figures in group.of_queues:
            yield figures


async def _json_pieces(groups: list[_Group]) -> AsyncIterator[bytes]:
    for place, group in enumerate(groups):
        yield f"{',' if place else '{'}{dumps(group.name)}:{{".encode()
        comma = ""
        async for figures in _of_queues(group):
            yield f"{comma}{dumps(figures)[1:-1]}".encode()
            comma = ","
        yield f"{comma if group.of_node else ''}{dumps(group.of_node)[1:]}".encode()
    yield b"}"


async def _text_pieces(groups: list[_Group]) -> AsyncIterator[bytes]:
    """Yield the lines sorted by queue, and by name within each queue."""
    for group in groups:
        before = {name: value for name, value in group.of_node.items() if name < _QUEUES}
        yield f"{group.name}:\n{_lines(before)}".encode()
        async for figures in _of_queues(group):
            yield _lines(figures).encode()
        yield _lines({name: value for name, value in group.of_node.items() if name not in before}).encode()


def _lines(figures: Mapping[str, object]) -> str:
    return "".join(f"  {name}: {value}\n" for name, value in sorted(figures.items()))


def _period_of(text: bytes | None) -> int | None:
    if text is None:
        return None
    if not text.isdigit() or not PERIOD_S_MIN <= int(text[:10]) <= PERIOD_S_MAX:
        raise LmqError("bad_request", f"period must be {PERIOD_S_MIN} to {PERIOD_S_MAX} seconds")
    return int(text)
