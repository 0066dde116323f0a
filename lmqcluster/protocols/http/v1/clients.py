"""``/v1/connections``, ``/v1/consumers``, ``/v1/leases``: clients of this node or of all nodes.

Consumers are waiting pulls. Leases are of messages that a node delivered. The routes below ``/v1/queues/{name}`` count the
consumers of one queue at all nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....node.access.client_lists import ClientQuery
from ....node.access.consumers import PAGE_MAX
from ....wire.errors import LmqError
from ....wire.limits import HTTP_PROPERTY_BYTES_MAX
from ..server.barrier_read import marked, not_found, refresh
from ..server.replies import problem
from ..server.requests.target import check_name
from ..server.routing import Resource
from .bodies.media import read_value, reply_media
from .bodies.members import object_of, page_of, text_of

if TYPE_CHECKING:
    from ....node.node import Node
    from ..server.replies.reply import Reply
    from ..server.requests.request import Request
    from ..server.routing import Handler, Router

__all__ = ["ClientRoutes"]

_NAMES = ("queue", "pattern")
_TEXT_BYTES_MAX = 255


class ClientRoutes:
    """Routes that show clients and close their connections."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def add_to(self, router: Router) -> None:
        """Register the routes."""
        table: dict[str, dict[str, Handler]] = {
            "/v1/connections": {"GET": self.connections},
            "/v1/connections/close": {"POST": self.close},
            "/v1/consumers": {"GET": self.consumers},
            "/v1/leases": {"GET": self.leases},
            "/v1/queues/{name}/consumers": {"GET": self.of_queue},
        }
        for path, methods in table.items():
            router.add(path, Resource(methods, problem.on_error, problem.refuse(*methods)))

    async def connections(self, request: Request) -> Reply:
        """Return a page of the connections of clients."""
        return await self._page(request, "connections")

    async def consumers(self, request: Request) -> Reply:
        """Return a page of the queues and patterns that pulls wait for."""
        return await self._page(request, "consumers")

    async def leases(self, request: Request) -> Reply:
        """Return a page of the clients that hold messages under lease."""
        return await self._page(request, "leases")

    async def _page(self, request: Request, kind: str) -> Reply:
        parameters = request.parameters()
        offset, limit = page_of(parameters, PAGE_MAX)
        queue = parameters.get(b"queue") if kind == "leases" else None
        media = reply_media(request)
        node, client = self._node, request.client(self._node.access)
        query = ClientQuery(kind, offset, limit, None if queue is None else check_name(queue))
        is_all = b"all_nodes" in parameters
        page = await (node.clients.of_all_nodes if is_all else node.clients.own)(query, client)
        rows = [{key: media.name(value) if key in _NAMES else value for key, value in row.items()} for row in page.rows]
        answer: dict[str, Any] = {kind: rows, "total": page.total}
        if kind == "leases":
            answer["complete"] = page.complete
        if is_all:
            answer["unreachable"] = page.unreachable
        return media.reply(answer)

    async def close(self, request: Request) -> Reply:
        """Close the connections from an address at one node."""
        body = object_of(await read_value(request, HTTP_PROPERTY_BYTES_MAX), {"node", "address"})
        node, address = (text_of(body.get(name), name, _TEXT_BYTES_MAX) for name in ("node", "address"))
        if address is None:
            raise LmqError("bad_request", "address is missing; the list of connections has it")
        closed = await self._node.clients.end_connections(
            None if node is None else node.decode(errors="replace"), address.decode(errors="replace")
        )
        return reply_media(request).reply({"closed": closed})

    async def of_queue(self, request: Request, name: bytes) -> Reply:
        """Return the number of consumers of a queue, by node and in total."""
        check_name(name)
        stale = await refresh(self._node.service)
        if self._node.service.queue(name) is None:
            raise not_found(name, stale=stale)
        unreachable = await self._node.clients.counts.look()
        found = self._node.clients.counts.of(name)
        answer = {
            "consumers": sum(one.consumers for one in found),
            "waiting_pulls": sum(one.waiting_pulls for one in found),
            "nodes": [
                {"node": one.node, "waiting_pulls": one.waiting_pulls, "consumers": one.consumers} for one in found
            ],
            "unreachable": unreachable,
        }
        return marked(reply_media(request).reply(answer), stale=stale)
