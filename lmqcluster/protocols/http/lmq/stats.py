"""LMQ's ``GET /stats``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from ....core import Role
from ....node.queues.views.info import info_of
from ..server.barrier_read import marked, refresh
from ..server.replies.compact_json import dumps
from ..server.replies.reply import JSON
from ..server.replies.streamed import streamed
from ..server.routing import Resource, Router
from .errors import on_error, refuse

if TYPE_CHECKING:
    from ....node.node import Node
    from ....node.queues.views.info import QueueInfo
    from ..server.replies.reply import Reply
    from ..server.requests.request import Request

__all__ = ["StatsRoute", "node_names"]

QUEUE_BYTES = 1024
"""Approximate memory of a queue without its messages' bodies. LMQ shows a positive number for an empty queue too."""


class StatsRoute:
    """Route that shows all queues with their rates, retention times and sizes."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def add_to(self, router: Router) -> None:
        """Register the route."""
        router.add("/stats", Resource({"GET": self.get}, on_error, refuse("GET")))

    async def get(self, request: Request) -> Reply:
        """Return all queues that the client may see, sorted by name."""
        stale = await refresh(self._node.service)
        return marked(await streamed(JSON, self._pieces(request)), stale=stale)

    async def _pieces(self, request: Request) -> AsyncIterator[bytes]:
        service, allows = self._node.service, request.principal.allows
        active, everyone = node_names(self._node.cluster_status())
        nodes, comma = dumps(active), ""
        yield f'{{"active_nodes":{nodes},"all_nodes":{dumps(everyone)},"queues":{{'.encode()
        async for queue in service.each_queue(request.client(self._node.access)):
            if allows(Role.READ, queue.name):
                info = info_of(queue, service.sender.state().now_us)
                yield f"{comma}{dumps(info.name)}:{self._queue(info, nodes)}".encode()
                comma = ","
        yield b"}}"

    def _queue(self, info: QueueInfo, nodes: str) -> str:
        stats = self._node.stats.snapshot(
            info.name, pushed_total=info.counters["pushed_total"], pulled_total=info.counters["pulled_total"]
        )
        properties = _properties(self._node.service.properties(info.name))
        return (
            f'{{"stats":{dumps(stats)},"size":{info.size},"memory":{info.bytes + QUEUE_BYTES},'
            f'"nodes":{nodes},"props":{dumps(properties)}}}'
        )


def node_names(status: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the names of the reachable nodes and of all nodes in a cluster status, sorted."""
    nodes = [(str(node.get("name") or node["id"]), node["state"]) for node in status["nodes"]]
    return sorted(name for name, state in nodes if state != "unreachable"), sorted(name for name, _state in nodes)


def _properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return effective properties in the format of ``/stats``: ``accum`` in milliseconds, hooks as nested objects."""
    return {
        name: {point: dict(modules) for point, modules in dict(value).items()} if name == "hooks" else value
        for name, value in sorted(properties.items())
    }
