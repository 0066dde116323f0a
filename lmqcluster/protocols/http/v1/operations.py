"""Operations on whole queues under ``/v1/queues/{name}``: purge, move, suspend, resume."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....core import Role
from ....wire.errors import LmqError
from ....wire.limits import HTTP_PROPERTY_BYTES_MAX
from ..server.problem import on_error, refuse
from ..server.routing import Resource, Router
from ..server.target import check_name
from .media import content_of, read_value, reply_media
from .members import object_of, whole_member

if TYPE_CHECKING:
    from ....node.node import Node
    from ..server.reply import Reply
    from ..server.request import Request
    from ..server.routing import Handler

__all__ = ["QueueOperationRoutes"]

_COUNT_MAX = 1 << 53


class QueueOperationRoutes:
    """Translates requests to the node's operations."""

    def __init__(self, node: Node) -> None:
        self._operations = node.service.operations

    def add_to(self, router: Router) -> None:
        """Register the routes."""
        table: dict[str, Handler] = {
            "purge": self.purge,
            "move": self.move,
            "suspend": self.suspend,
            "resume": self.resume,
        }
        for verb, handler in table.items():
            router.add(f"/v1/queues/{{name}}/{verb}", Resource({"POST": handler}, on_error, refuse("POST")))

    async def purge(self, request: Request, name: bytes) -> Reply:
        """Remove all messages that are not leased."""
        check_name(name)
        object_of(await read_value(request, HTTP_PROPERTY_BYTES_MAX), set())
        return reply_media(request).reply({"purged": await self._operations.purge(name)})

    async def move(self, request: Request, name: bytes) -> Reply:
        """Put messages that can be pulled now at the end of another queue."""
        check_name(name)
        body = object_of(await read_value(request, HTTP_PROPERTY_BYTES_MAX), {"to", "max"})
        if "to" not in body:
            raise LmqError("bad_request", "to must hold the name of the queue to move the messages to")
        destination = check_name(content_of(body["to"], "to"))
        request.principal.require(Role.WRITE, destination)
        count = whole_member(body["max"], "max", 1, _COUNT_MAX) if "max" in body else None
        return reply_media(request).reply(
            {"moved": await self._operations.move(name, destination, count, request.principal.owner)}
        )

    async def suspend(self, request: Request, name: bytes) -> Reply:
        """Have the queue hand out nothing until it is resumed."""
        check_name(name)
        object_of(await read_value(request, HTTP_PROPERTY_BYTES_MAX), set())
        await self._operations.suspend(name)
        return reply_media(request).reply({"suspended": True})

    async def resume(self, request: Request, name: bytes) -> Reply:
        """Have the queue hand out messages again."""
        check_name(name)
        object_of(await read_value(request, HTTP_PROPERTY_BYTES_MAX), set())
        await self._operations.resume(name)
        return reply_media(request).reply({"suspended": False})
