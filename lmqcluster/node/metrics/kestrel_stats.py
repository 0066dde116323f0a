"""Kestrel's statistics, by Kestrel's names."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ...core import Queue, Role
from ...core.message import content_bytes
from ..access.access import Principal
from ..queues.info import age_s

if TYPE_CHECKING:
    from ..node import Node

__all__ = ["global_stats", "queue_stats", "queues_seen", "waiting_bytes"]


def queues_seen(node: Node, principal: Principal) -> list[bytes]:
    """The queues that a client may look at."""
    return [name for name in node.service.queue_names() if principal.allows(Role.READ, name)]


def waiting_bytes(queue: Queue) -> int:
    """Bytes of the items that nobody holds."""
    if queue.rich is not None:
        return queue.waiting_bytes()
    leased = queue.leases.messages
    return queue.body_bytes - sum(content_bytes(one.content) for one in leased.values()) if leased else queue.body_bytes


def global_stats(node: Node) -> dict[str, object]:
    """All names in Kestrel's order."""
    counts = node.observed.kestrel
    machine = node.service.machine()
    totals = machine.totals()
    queues = list(machine.queues.values())
    connections = node.observed.connections
    return {
        "uptime": int(time.monotonic() - counts.started_s),
        "time": int(time.time()),
        "version": node.version,
        "curr_items": sum(queue.waiting() for queue in queues),
        "total_items": totals["pushed_total"] + totals["moved_in_total"],
        "bytes": sum(map(waiting_bytes, queues)),
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
        "queue_creates": len(queues),
        "queue_deletes": 0,
        "queue_expires": 0,
    }


def queue_stats(node: Node, name: bytes) -> dict[str, object]:
    """All names of a queue, or of an alias; nothing if there is none of that name."""
    service = node.service
    machine = service.machine()
    queue = machine.queues.get(name)
    if queue is None:
        return {}
    options = queue.settings.options
    if options is not None and options.destinations:
        return {"put_items": 0, "put_bytes": 0, "children": _listed(list(options.destinations))}
    items, size = queue.waiting(), waiting_bytes(queue)
    age = age_s(queue.earliest_us(), machine.now_us)
    stats: dict[str, object] = {
        "items": items,
        "bytes": size,
        "total_items": queue.pushed_total + queue.moved_in_total,
        "logsize": 0,
        "expired_items": queue.expired_total,
        "mem_items": items,
        "mem_bytes": size,
        "age": 0 if age is None or not items else round(age * 1000),
        "discarded": queue.discarded_total,
        "waiters": service.pulls.waiting_for(name),
        "open_transactions": len(queue.leases),
        "transactions": queue.pulled_total,
        "canceled_transactions": queue.nacked_total + queue.redelivered_total,
        "total_flushes": 0,
        "journal_rewrites": 0,
        "journal_rotations": 0,
    }
    children = machine.bindings.targets(name)
    if children:
        stats["children"] = _listed(children)
    return stats


def _listed(names: list[bytes]) -> str:
    return ",".join(name.decode("utf-8", "surrogateescape") for name in names)
