"""``/stats.json`` and ``/stats.txt``, as Kestrel's admin port had them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING

from ...core import Queue, Role
from ...node.metrics.kestrel_counts import KestrelQueueCounts
from ...node.metrics.kestrel_stats import global_stats, queue_stats
from ...wire.errors import LmqError
from .server import problem
from .server.barrier_read import marked, refresh
from .server.compact_json import dumps, key_text
from .server.reply import JSON, Reply
from .server.routing import Resource, Router

if TYPE_CHECKING:
    from ...node.access.access import Principal
    from ...node.node import Node
    from .server.request import Request

__all__ = ["KestrelStatsRoutes"]

Numbers = dict[str, int]
_TEXT = b"content-type: text/plain; charset=utf-8\r\n"
QUEUES_PER_TURN = 50
BASES_MAX = 4
PERIOD_S_MIN, PERIOD_S_MAX = 60, 3600
NAME_BYTES_MAX = 100
_UNASKED_PERIODS_MAX = 10
_COUNTERS = ("total_items", "transactions", "canceled_transactions", "expired_items", "discarded", "total_flushes")
_NO_COUNTERS = ("journal_rewrites", "journal_rotations")
_UNUSED = ("cmd_get_timeout_dropped", "cmd_get_open_dropped")
"""An item for a client that is gone returns to its queue here."""
_GAUGES = ("items", "bytes", "mem_items", "mem_bytes", "waiters", "open_transactions")
_GLOBAL_GAUGES = ("reserved_memory_ratio", "uptime", "time", "curr_connections")


class KestrelStatsRoutes:
    """Shows Kestrel's statistics, and keeps what differences are asked for."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._bases: OrderedDict[bytes, Numbers] = OrderedDict()
        self._periods: dict[int, _Period] = {}

    def add_to(self, router: Router) -> None:
        """Register the routes."""
        for path, handler in (("/stats.json", self.as_json), ("/stats.txt", self.as_text)):
            router.add(path, Resource({"GET": handler}, problem.on_error, problem.refuse("GET")))

    async def as_json(self, request: Request) -> Reply:
        """One object."""
        stale, tree = await self._tree(request)
        return marked(Reply(200, JSON, dumps(tree).encode()), stale=stale)

    async def as_text(self, request: Request) -> Reply:
        """One line for each name."""
        stale, tree = await self._tree(request)
        lines: list[str] = []
        for group, rows in tree.items():
            lines.append(f"{group}:")
            lines += [f"  {name}: {value}" for name, value in sorted(rows.items())]
        return marked(Reply(200, _TEXT, "\n".join([*lines, ""]).encode()), stale=stale)

    async def _tree(self, request: Request) -> tuple[bool, dict[str, dict[str, object]]]:
        query = request.parameters()
        period_s, name = _period_of(query.get(b"period")), query.get(b"namespace")
        stale = await refresh(self._node.service)
        counters, gauges = await self._figures(request.principal)
        if period_s is not None:
            last = self._period(period_s).last
            counters = dict.fromkeys(counters, 0) if last is None else {one: last.get(one, 0) for one in counters}
        elif name is not None:
            counters = self._since(request.principal.owner + b"\0" + name[:NAME_BYTES_MAX], counters)
        labels = {"version": self._node.version, "status": self._node.observed.kestrel.status()}
        return stale, {"counters": dict(counters), "gauges": gauges, "labels": dict(labels), "metrics": {}}

    async def _figures(self, principal: Principal | None) -> tuple[Numbers, dict[str, object]]:
        """Counters and gauges of the queues that somebody may see, None for all, and of the node."""
        node, queues = self._node, self._node.service.queue_names()
        counters: Numbers = {}
        gauges: dict[str, object] = {}
        for place, name in enumerate(queues):
            if place % QUEUES_PER_TURN == QUEUES_PER_TURN - 1:
                await asyncio.sleep(0)
            queue = node.service.machine().queues.get(name)
            stats = queue_stats(node, name) if principal is None or principal.allows(Role.READ, name) else {}
            if queue is not None and "items" in stats:
                prefix = f"q/{key_text(name)}"
                _add_counters(prefix, stats, queue, node.observed.kestrel.of(queue), counters)
                _add_gauges(prefix, stats, queue, gauges)
        figures, counts = await global_stats(node), node.observed.kestrel
        gauges |= {name: figures.pop(name) for name in _GLOBAL_GAUGES}
        gauges |= {"items": figures.pop("curr_items"), "bytes": figures.pop("bytes")}
        gauges["connections"] = gauges.pop("curr_connections")
        status = counts.status()
        gauges["status/readable"] = int(status != "QUIESCENT")
        gauges["status/writeable"] = int(status in ("UP", "WRITEAVOID"))
        counters |= {name: value for name, value in figures.items() if isinstance(value, int)}
        counters |= {name: getattr(counts, name) for name in ("cmd_monitor", "cmd_monitor_get", "waiters_aborted")}
        counters |= dict.fromkeys(_UNUSED, 0)
        return counters, gauges

    def _since(self, name: bytes, counters: Numbers) -> Numbers:
        base = self._bases.pop(name, {})
        self._bases[name] = counters
        while len(self._bases) > BASES_MAX:
            self._bases.popitem(last=False)
        return {one: value - base.get(one, 0) for one, value in counters.items()}

    def _period(self, period_s: int) -> _Period:
        found = self._periods.get(period_s)
        if found is None or found.is_over:
            self._periods = {length: one for length, one in self._periods.items() if not one.is_over}
            if len(self._periods) >= BASES_MAX:
                raise LmqError("overloaded", f"{BASES_MAX} other periods are asked for already; ask for one of them")
            found = self._periods[period_s] = _Period(self, period_s)
        found.unasked = 0
        return found

    async def counters(self) -> Numbers:
        """All counters, for differences."""
        return (await self._figures(None))[0]


class _Period:
    """Counts periods as long as somebody asks for them.

    Attributes:
        last: differences over the last full period; None before there is one.
        unasked: how many periods have begun since somebody asked.
    """

    def __init__(self, routes: KestrelStatsRoutes, length_s: int) -> None:
        self._routes = routes
        self.last: Numbers | None = None
        self.unasked = 0
        self._length_s = length_s
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def is_over(self) -> bool:
        """Whether nobody has asked for long."""
        return self._task.done()

    async def _run(self) -> None:
        before = await self._routes.counters()
        while self.unasked < _UNASKED_PERIODS_MAX:
            await asyncio.sleep(self._length_s)
            now = await self._routes.counters()
            self.last = {name: value - before.get(name, 0) for name, value in now.items()}
            before = now
            self.unasked += 1


def _add_counters(
    prefix: str, stats: dict[str, object], queue: Queue, counts: KestrelQueueCounts, counters: Numbers
) -> None:
    for name in _COUNTERS:
        counters[f"{prefix}/{name}"] = int(str(stats[name]))
    counters[f"{prefix}/put_items"] = counters[f"{prefix}/total_items"]
    counters[f"{prefix}/put_bytes"] = counts.put_bytes
    counters[f"{prefix}/get_items_hit"] = queue.pulled_total
    counters[f"{prefix}/get_items_miss"] = counts.get_items_miss
    for name in _NO_COUNTERS:
        counters[f"{prefix}/{name}"] = 0


def _add_gauges(prefix: str, stats: dict[str, object], queue: Queue, gauges: dict[str, object]) -> None:
    for name in _GAUGES:
        gauges[f"{prefix}/{name}"] = stats[name]
    gauges[f"{prefix}/age_msec"] = stats["age"]
    gauges[f"{prefix}/journal_size"] = 0
    gauges[f"{prefix}/create_time"] = queue.created_us // 1_000_000
    options = queue.settings.options
    for name, value, unbounded in (
        ("max_items", None if options is None else options.max_items, (1 << 31) - 1),
        ("max_bytes", None if options is None else options.max_bytes, (1 << 63) - 1),
    ):
        gauges[f"{prefix}/{name}"] = unbounded if value is None else value


def _period_of(text: bytes | None) -> int | None:
    if text is None:
        return None
    if not text.isdigit() or not PERIOD_S_MIN <= int(text[:10]) <= PERIOD_S_MAX:
        raise LmqError("bad_request", f"period must be {PERIOD_S_MIN} to {PERIOD_S_MAX} seconds")
    return int(text)
