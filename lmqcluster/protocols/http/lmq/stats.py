"""LMQ's ``GET /stats``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ....core import Role
from ..server.barrier_read import marked, refresh
from ..server.compact_json import dumps
from ..server.reply import JSON, Reply
from ..server.routing import Resource, Router
from .errors import on_error, refuse

if TYPE_CHECKING:
    from ....node.node import Node
    from ....node.queues.info import QueueInfo
    from ..server.request import Request

__all__ = ["StatsRoute", "node_names"]

QUEUES_PER_TURN = 50
"""After so many queues other requests get their turn."""
QUEUE_BYTES = 1024
"""What a queue occupies besides its messages' bodies, roughly; LMQ shows a positive number for an empty one too."""


class StatsRoute:
    """Shows all queues with their rates, retention times and sizes."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def add_to(self, router: Router) -> None:
        """Register the route."""
        router.add("/stats", Resource({"GET": self.get}, on_error, refuse("GET")))

    async def get(self, request: Request) -> Reply:
        """All queues that the client may see, sorted by name."""
        service = self._node.service
        stale = await refresh(service)
        active, everyone = node_names(self._node.cluster_status())
        nodes = dumps(active)
        queues = []
        for place, name in enumerate(service.queue_names()):
            if place % QUEUES_PER_TURN == QUEUES_PER_TURN - 1:
                await asyncio.sleep(0)
            info = service.queue(name) if request.principal.allows(Role.READ, name) else None
            if info is not None:
                queues.append(f"{dumps(name)}:{self._queue(info, nodes)}")
        body = f'{{"active_nodes":{nodes},"all_nodes":{dumps(everyone)},"queues":{{{",".join(queues)}}}}}'
        return marked(Reply(200, JSON, body.encode()), stale=stale)

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
    """The names of the reachable nodes and of all nodes of a cluster status, sorted."""
    nodes = [(str(node.get("name") or node["id"]), node["state"]) for node in status["nodes"]]
    return sorted(name for name, state in nodes if state != "unreachable"), sorted(name for name, _state in nodes)


def _properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Effective properties as ``/stats`` shows them: ``accum`` in milliseconds, hooks as nested objects."""
    return {
        name: {point: dict(modules) for point, modules in dict(value).items()} if name == "hooks" else value
        for name, value in sorted(properties.items())
    }
