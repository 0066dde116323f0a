"""LMQ's routes for properties: ``/properties`` (default rules) and ``/properties/NAME``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....node.access.named_queues import check_named_queues
from ....wire.errors import LmqError
from ....wire.limits import HTTP_PROPERTY_BYTES_MAX
from ....wire.properties import parse_properties, parse_rules
from ..server.replies.common_replies import no_content
from ..server.replies.compact_json import dumps
from ..server.replies.reply import JSON, Reply
from ..server.replies.shown_properties import shown
from ..server.requests.json_body import decode_json
from ..server.requests.target import check_name
from ..server.requests.values import check_json
from ..server.routing import Resource, Router
from .errors import on_error, refuse

if TYPE_CHECKING:
    from ....node.node import Node
    from ..server.requests.request import Request

__all__ = ["PropertyRoutes"]


class _NotJsonError(LmqError):
    """Body with a content type other than JSON."""


class PropertyRoutes:
    """Routes that translate LMQ's property requests to the node's service."""

    def __init__(self, node: Node) -> None:
        self._service = node.service

    def add_to(self, router: Router) -> None:
        """Register the routes."""
        one = {"GET": self.get, "PATCH": self.patch, "DELETE": self.clear}
        router.add("/properties/{name}", Resource(one, _on_error, refuse("GET, PATCH, DELETE")))
        rules = {"GET": self.get_rules, "PUT": self.put_rules, "DELETE": self.delete_rules}
        router.add("/properties", Resource(rules, _on_error, refuse("GET, PUT, DELETE")))

    async def get(self, request: Request, name: bytes) -> Reply:  # noqa: ARG002  a handler takes its request
        """Show the effective properties of a queue. The queue need not exist."""
        check_name(name)
        await self._service.sender.barrier()
        return Reply(200, JSON, dumps(shown(sorted(self._service.properties(name).items()))).encode())

    async def patch(self, request: Request, name: bytes) -> Reply:
        """Set some properties of a queue."""
        check_name(name)
        properties = parse_properties(await _json_body(request))
        check_named_queues(request.principal, properties)
        await self._service.set_properties(name, properties, request.principal.owner)
        return no_content()

    async def clear(self, request: Request, name: bytes) -> Reply:
        """Remove all properties set on a queue."""
        await self._service.clear_properties(check_name(name), request.principal.owner)
        return no_content()

    async def get_rules(self, request: Request) -> Reply:  # noqa: ARG002
        """Show the default rules, exactly as they were set."""
        await self._service.sender.barrier()
        rules = [[pattern, shown(properties)] for pattern, properties in self._service.defaults()]
        return Reply(200, JSON, dumps(rules).encode())

    async def put_rules(self, request: Request) -> Reply:
        """Replace the default rules."""
        await self._service.set_defaults(parse_rules(await _json_body(request)))
        return no_content()

    async def delete_rules(self, request: Request) -> Reply:  # noqa: ARG002
        """Remove all default rules."""
        await self._service.set_defaults([])
        return no_content()


async def _json_body(request: Request) -> Any:
    if request.media_type() != "application/json":
        raise _NotJsonError("bad_request", "properties are sent with the content type application/json")
    body = await request.read_body(HTTP_PROPERTY_BYTES_MAX)
    await check_json(body)
    return await decode_json(body)


def _on_error(error: LmqError) -> Reply:
    reply = on_error(error)
    if isinstance(error, _NotJsonError):
        reply.code = 415
    return reply
