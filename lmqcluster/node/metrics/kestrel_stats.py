"""Kestrel's statistics with Kestrel's names."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ...core import Queue
from ..queues.views.info import age_s

if TYPE_CHECKING:
    from ..node import Node

__all__ = ["OF_ALL_QUEUES", "global_stats", "queue_stats", "waiters"]

OF_ALL_QUEUES = frozenset(("curr_items", "total_items", "bytes", "queue_creates", "queue_deletes", "queue_expires"))
"""Sums over all queues, which are omitted for a client that may see only some queues."""


def _waiting_bytes(queue: Queue) -> int:
    """Return the bytes of items that are not leased; if a plain queue has leased items, average sizes are assumed."""
    if queue.store.rich is not None:
        return queue.store.waiting_bytes()
    return _share(queue.store.body_bytes, queue.store.waiting(), len(queue.store.leases.messages))


def _share(size: int, waiting: int, leased: int) -> int:
    return size * waiting // (waiting + leased) if leased else size


async def global_stats(node: Node) -> dict[str, object]:
    """Return all figures in Kestrel's order; bytes assume average item sizes.

    Figures of queues are those of the cluster, whatever changed them. Figures of commands and connections are those of this node.
    """
    sums = (await node.totals.fresh()).queues
    state = node.service.sender.state()
    counts, waiting = node.observed.kestrel, sums.ready + sums.delayed
    connections = node.observed.connections
    return {
        "uptime": int(time.monotonic() - counts.started_s),
        "time": int(time.time()),
        "version": node.version,
        "curr_items": waiting,
        "total_items": sums.counters["pushed_total"] + sums.counters["moved_in_total"],
        "bytes": _share(sums.body_bytes, waiting, sums.leased),
        "reserved_memory_ratio": "0.000",
        "curr_connections": sum(connections[name]() for name in node.config.kestrel_ports()),
        "total_connections": counts.connections,
        "cmd_get": counts.cmd_get,
        "cmd_set": counts.cmd_set,
        "cmd_peek": counts.cmd_peek,
        "get_hits": counts.get_hits,
        "get_misses": counts.get_misses,
        "bytes_read": counts.bytes_read,
        "bytes_written": counts.bytes_written,
        "queue_creates": state.deleted_total + len(state.queues),
        "queue_deletes": state.deleted_total,
        "queue_expires": state.aged_total,
    }


def queue_stats(node: Node, name: bytes) -> dict[str, object]:
    """Return all figures of a queue or an alias; empty if there is none of that name."""
    service = node.service
    state = service.sender.state()
    queue = state.queues.get(name)
    if queue is None:
        return {}
    options, counts = queue.settings.options, node.observed.kestrel.of(queue)
    if options is not None and options.destinations:
        destinations = _listed(list(options.destinations))
        return {"put_items": counts.put_items, "put_bytes": counts.put_bytes, "children": destinations}
    items, size = queue.store.waiting(), _waiting_bytes(queue)
    stats: dict[str, object] = {
        "items": items,
        "bytes": size,
        "total_items": queue.counters.pushed_total + queue.counters.moved_in_total,
        "logsize": 0,
        "expired_items": queue.counters.expired_total,
        "mem_items": items,
        "mem_bytes": size,
        "age": _age_ms(node, queue) if items else 0,
        "discarded": queue.counters.discarded_total,
        "waiters": waiters(node, name),
        "open_transactions": len(queue.store.leases),
        "transactions": counts.transactions,
        "canceled_transactions": queue.counters.nacked_total + queue.counters.redelivered_total,
        "total_flushes": counts.total_flushes,
        "journal_rewrites": 0,
        "journal_rotations": 0,
    }
    children = state.bindings.targets(name)
    if children:
        stats["children"] = _listed(children)
    return stats


def waiters(node: Node, queue: bytes) -> int:
    """Return the number of requests to this node that wait for an item of a queue, over any protocol; it need not exist."""
    service = node.service
    return service.pulls.waiting_for(queue) + service.events.waiting_for(queue)


def _age_ms(node: Node, queue: Queue) -> int:
    """Return how long the last fetched item would have waited until now; if this node has seen none fetched, the next item."""
    now_us = node.service.pulls.clock.now_us()
    fetched_us = node.stats.last_due_us(queue.name)
    age = age_s(queue.store.earliest_us() if fetched_us is None else fetched_us, now_us)
    return 0 if age is None else round(age * 1000)


def _listed(names: list[bytes]) -> str:
    return ",".join(name.decode("utf-8", "surrogateescape") for name in names)
