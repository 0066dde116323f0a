"""Health, and metrics of one queue and of all queues."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from aiohttp import hdrs

from ...node.process.memory import MESSAGE_OVERHEAD_BYTES
from ..http.server.replies.reply import Reply
from .media import Media, reply_media
from .names import checked
from .resource import resource

if TYPE_CHECKING:
    from ...node.node import Node
    from ..http.server.requests.request import Request
    from ..http.server.routing import Router

__all__ = ["MetricsRoutes"]

_TEXT = b"content-type: text/plain\r\n"
_COUNTED = (
    "missing_delete",
    "missing_update",
    "suspended_delete",
    "suspended_poll",
    "suspended_push",
    "suspended_update",
    "throttled_poll",
)
_DESCRIPTIONS = {
    "empty_poll": "Polls that found no message; those that left no trace in the log are of this node.",
    "io_sync_background_loops": "Background loops of delayed syncs; there are none.",
    "io_sync": "Syncs of this node's log.",
    "io_sync_delayed": "Syncs that were put off; there are none.",
    "io_sync_longest_delay_us": "Longest delay of a sync; there is none.",
    "io_sync_shortest_delay_us": "Shortest delay of a sync; there is none.",
    "io_sync_us": "Microseconds that this node spent in syncs of its log.",
    "io_write_bytes": "Bytes of the batches that this node has applied.",
    "io_write": "Batches that this node has applied.",
    "io_write_us": "Microseconds in writes; they are part of io_sync_us.",
    "missing_delete": "Deletions of messages that were not there or had another tag.",
    "missing_update": "Updates of messages that were not there or had another tag.",
    "successful_delete": "Messages deleted or acknowledged.",
    "successful_poll": "Messages delivered.",
    "successful_push": "Messages stored.",
    "successful_update": "Updates.",
    "suspended_delete": "Deletions refused because they are suspended.",
    "suspended_poll": "Polls refused because they are suspended.",
    "suspended_push": "Pushes refused because they are suspended.",
    "suspended_update": "Updates refused because they are suspended.",
    "throttled_poll": "Polls refused by a throttle.",
    "invisible": "Messages that cannot be polled yet.",
    "visible": "Messages that can be polled.",
    "vacant": "About how many more messages without contents fit into the memory of this node.",
}
_GAUGES = frozenset(("invisible", "visible", "vacant"))


class MetricsRoutes:
    """Routes that show the node's counters."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._polled = node.service.polled

    def add_to(self, router: Router) -> None:
        """Register the routes."""
        router.add("/healthz", resource({"GET": self.health}))
        router.add("/metrics", resource({"GET": self.all_queues}))
        router.add("/queue/{name}/metrics", resource({"GET": self.one_queue}))

    async def health(self, request: Request) -> Reply:
        """Return the version of the program."""
        return reply_media(request).reply({"version": self._node.version})

    async def one_queue(self, request: Request, name: bytes) -> Reply:
        """Return the figures of a queue."""
        found = await self._polled.metrics(checked(name))
        figures = {
            "message_counter": found.messages,
            **{f"{counter}_counter": count for counter, count in found.counters.items()},
            **{f"{gauge}_gauge": seconds for gauge, seconds in found.gauges.items()},
        }
        media = _asked_for(request)
        if media is not None:
            return media.reply(figures)
        return Reply(200, _TEXT, "".join(f"{name} {value}\n" for name, value in figures.items()).encode())

    async def all_queues(self, request: Request) -> Reply:
        """Return the figures of all queues together."""
        values = await self._values()
        now_ms = time.time_ns() // 1_000_000
        media = _asked_for(request)
        if media is not None:
            shown = {
                name: {"value": value, "description": _DESCRIPTIONS[name], "type": _kind(name)}
                for name, value in values.items()
            }
            return media.reply({"timestamp": now_ms, "values": shown})
        lines = [
            f"# HELP queued_{name} {_DESCRIPTIONS[name]}\n# TYPE queued_{name} {_kind(name)}\nqueued_{name} {value} {now_ms}\n\n"
            for name, value in values.items()
        ]
        return Reply(200, _TEXT, "".join(lines).encode())

    async def _values(self) -> dict[str, Any]:
        node = self._node
        # Figures do not need a leader.
        await node.service.sender.refresh()
        sums = (await node.totals.fresh()).queues
        counted, replica = self._polled.totals(), node.replica
        free_bytes = node.config.memory_bytes_max - node.service.sender.stored_bytes
        values = dict.fromkeys(_DESCRIPTIONS, 0) | {counter: counted[counter] for counter in _COUNTED}
        return values | {
            "empty_poll": counted["empty_poll"],
            "io_sync": replica.steps.syncs_total,
            "io_sync_us": round(replica.steps.sync_durations.sum * 1e6),
            "io_write_bytes": replica.applied_bytes,
            "io_write": replica.applied_batches,
            "successful_delete": sums.counters["acked_total"],
            "successful_poll": sums.counters["pulled_total"],
            "successful_push": sums.counters["pushed_total"],
            "successful_update": counted["updated"],
            "invisible": sums.delayed + sums.leased,
            "visible": sums.ready,
            "vacant": max(0, free_bytes // MESSAGE_OVERHEAD_BYTES),
        }


def _kind(name: str) -> str:
    return "gauge" if name in _GAUGES else "counter"


def _asked_for(request: Request) -> Media | None:
    """Return the format for an exact value of ``Accept``; None for text."""
    accept = request.headers.get(hdrs.ACCEPT, "")
    return {"application/json": Media(False), "application/msgpack": Media(True)}.get(accept)
