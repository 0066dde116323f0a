"""Resources of queued's port: errors in the format of the request, and the limits of API keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...node.access.access import KeyHolder
from ...wire.errors import LmqError
from ..http.server.replies.reply import Reply
from ..http.server.routing import Handler, Resource
from .media import error_reply
from .permissions import opens_route

if TYPE_CHECKING:
    from ..http.server.requests.request import Request

__all__ = ["QueuedResource", "resource"]


@dataclass(frozen=True, slots=True)
class QueuedResource(Resource):
    """Handlers of one path."""

    async def answer(self, request: Request, values: list[bytes]) -> Reply:
        """Run the handler of the request's method, unless the client shows an API key that does not cover the route."""
        holder = request.principal
        is_closed = request.method in self.methods and not self.is_open_to(request.method)
        if is_closed and isinstance(holder, KeyHolder) and not opens_route(self.path):
            return self.refused(request, LmqError("forbidden", "an API key is not good for this"))
        return await Resource.answer(self, request, values)

    def refused(self, request: Request, error: LmqError) -> Reply:
        """Return the answer to a request that fails."""
        return error_reply(request, error)


def resource(methods: Mapping[str, Handler]) -> QueuedResource:
    """Return a resource with these methods."""
    allow = f"allow: {', '.join(methods)}\r\n".encode()
    # Errors behind a route know their request and are formatted by `refused`; this function has none.
    return QueuedResource(
        methods, lambda error: Reply(error.spec.http), lambda _status: Reply(405, allow), any_method=True
    )
