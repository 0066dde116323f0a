"""``/metrics`` and ``/metrics/queues``, for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...node.metrics.page import MetricsPage
from ...node.metrics.queues_page import QUEUES_DEFAULT, QUEUES_MAX, queues_page
from ...wire.errors import LmqError
from .server.replies import problem
from .server.replies.reply import Reply
from .server.replies.streamed import streamed
from .server.routing import Resource, Router

if TYPE_CHECKING:
    from ...node.node import Node
    from .server.requests.request import Request

__all__ = ["MetricsRoutes"]

_TEXT = b"content-type: text/plain; version=0.0.4; charset=utf-8\r\ncache-control: no-store\r\n"


class MetricsRoutes:
    """Routes that show the metrics of this node and of single queues."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._page = MetricsPage(node)

    def add_to(self, router: Router) -> None:
        """Register the routes."""
        for path, handler in (("/metrics", self.node_metrics), ("/metrics/queues", self.queue_metrics)):
            router.add(path, Resource({"GET": handler}, problem.on_error, problem.refuse("GET")))

    async def node_metrics(self, request: Request) -> Reply:  # noqa: ARG002  a handler takes its request
        """Return figures of the node and sums over all queues."""
        return Reply(200, _TEXT, await self._page.text())

    async def queue_metrics(self, request: Request) -> Reply:
        """Return figures of at most `limit` queues whose names match the regular expression `name`."""
        query = request.parameters()
        limit = _limit(query.get(b"limit"))
        client = request.client(self._node.access)
        return await streamed(_TEXT, queues_page(self._node, query.get(b"name"), limit, client))


def _limit(text: bytes | None) -> int:
    if text is None:
        return QUEUES_DEFAULT
    if not text.isdigit() or not 1 <= int(text[:10]) <= QUEUES_MAX:
        raise LmqError("bad_request", f"limit must be a whole number from 1 to {QUEUES_MAX}")
    return int(text)
