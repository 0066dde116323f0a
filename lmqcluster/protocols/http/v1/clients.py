"""``/v1/connections``, ``/v1/consumers`` and ``/v1/leases``: clients connected to this node.

Consumers are waiting pulls on this node. Leases are of messages delivered by it.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING

from ....node.access.consumers import PAGE_MAX, connections, held, waiting
from ..server.replies import problem
from ..server.routing import Resource
from .bodies.media import reply_media
from .bodies.members import page_of

if TYPE_CHECKING:
    from ....node.node import Node
    from ..server.replies.reply import Reply
    from ..server.requests.request import Request
    from ..server.routing import Router

__all__ = ["ClientRoutes"]


class ClientRoutes:
    """Routes that show the clients of this node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def add_to(self, router: Router) -> None:
        """Register the routes."""
        handlers = {"connections": self.connections, "consumers": self.consumers, "leases": self.leases}
        for path, handler in handlers.items():
            router.add(f"/v1/{path}", Resource({"GET": handler}, problem.on_error, problem.refuse("GET")))

    async def connections(self, request: Request) -> Reply:
        """Return a page of the connections of clients."""
        offset, limit = page_of(request.parameters(), PAGE_MAX)
        found, total = connections(
            self._node.gates.clients, asyncio.get_running_loop().time(), offset=offset, limit=limit
        )
        return reply_media(request).reply({"connections": [asdict(row) for row in found], "total": total})

    async def consumers(self, request: Request) -> Reply:
        """Return a page of the queues and patterns that pulls wait for."""
        offset, limit = page_of(request.parameters(), PAGE_MAX)
        media = reply_media(request)
        found, total = waiting(self._node.service.pulls, offset=offset, limit=limit)
        rows = [
            {
                "pattern" if row.is_pattern else "queue": media.name(row.name),
                "pulls": row.pulls,
                "messages": row.messages,
            }
            for row in found
        ]
        return media.reply({"consumers": rows, "total": total})

    async def leases(self, request: Request) -> Reply:
        """Return a page of the clients that hold messages under lease."""
        parameters = request.parameters()
        offset, limit = page_of(parameters, PAGE_MAX)
        media = reply_media(request)
        pulls = self._node.service.pulls
        found, is_complete = await pulls.holders.held(
            self._node.turns, request.client(self._node.access), parameters.get(b"queue")
        )
        page = held(found, pulls.clock.now_us(), offset=offset, limit=limit)
        rows = [{**asdict(row), "queue": media.name(row.queue)} for row in page]
        return media.reply({"leases": rows, "total": len(found), "complete": is_complete})
