"""Operations on whole queues under ``/v1/queues/{name}``: purge, move, withdraw, redrive, bind, suspend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....node.queues.sending.push_items import TEXT_BYTES_MAX
from ....wire.errors import LmqError
from ....wire.limits import HTTP_PROPERTY_BYTES_MAX
from ..server.barrier_read import marked, refresh
from ..server.replies.problem import on_error, refuse
from ..server.requests.target import check_name
from ..server.routing import Resource, Router
from .bodies.media import read_value, reply_media
from .bodies.members import attribute_filter, list_of, object_of, other_queue, text_of, whole_member

if TYPE_CHECKING:
    from ....node.node import Node
    from ..server.replies.reply import Reply
    from ..server.requests.request import Request
    from ..server.routing import Handler

__all__ = ["QueueOperationRoutes"]

_COUNT_MAX = 1 << 53
SEQUENCES_MAX = 100
"""Most single messages of one request."""


class QueueOperationRoutes:
    """Routes that translate requests to the node's operations."""

    def __init__(self, node: Node) -> None:
        self._access = node.access
        self._service = node.service
        self._operations = node.service.operations

    def add_to(self, router: Router) -> None:
        """Register the routes."""
        table: dict[str, Handler] = {
            "purge": self.purge,
            "move": self.move,
            "withdraw": self.withdraw,
            "redrive": self.redrive,
            "bind": self.bind,
            "unbind": self.unbind,
            "suspend": self.suspend,
            "resume": self.resume,
        }
        for verb, handler in table.items():
            router.add(f"/v1/queues/{{name}}/{verb}", Resource({"POST": handler}, on_error, refuse("POST")))
        reads: dict[str, Handler] = {"bindings": self.bindings, "labels": self.labels}
        for noun, handler in reads.items():
            router.add(f"/v1/queues/{{name}}/{noun}", Resource({"GET": handler}, on_error, refuse("GET")))

    async def purge(self, request: Request, name: bytes) -> Reply:
        """Remove messages that are not leased, in the order of delivery."""
        check_name(name)
        body = object_of(await read_value(request, HTTP_PROPERTY_BYTES_MAX), {"max", "sequences"})
        purged = await self._operations.purge(name, _count(body), sequences=_sequences(body))
        return reply_media(request).reply({"purged": purged})

    async def move(self, request: Request, name: bytes) -> Reply:
        """Move messages that can be pulled now to the end of another queue."""
        check_name(name)
        body = object_of(await read_value(request, HTTP_PROPERTY_BYTES_MAX), {"to", "max"})
        destination = other_queue(request, body, "to")
        count = _count(body)
        return reply_media(request).reply(
            {"moved": await self._operations.move(name, destination, count, request.principal.owner)}
        )

    async def withdraw(self, request: Request, name: bytes) -> Reply:
        """Remove messages with a label, and with an attribute if one is given, that are not in flight."""
        check_name(name)
        body = object_of(await read_value(request, HTTP_PROPERTY_BYTES_MAX), {"label", "attribute", "max"})
        label = text_of(body.get("label"), "label", TEXT_BYTES_MAX)
        if label is None:
            raise LmqError("bad_request", "label must hold the label of the messages to withdraw")
        attribute = attribute_filter(text_of(body.get("attribute"), "attribute", HTTP_PROPERTY_BYTES_MAX))
        client = request.client(self._access)
        withdrawn = await self._operations.withdraw(name, label, _count(body), attribute, client)
        return reply_media(request).reply({"withdrawn": withdrawn})

    async def redrive(self, request: Request, name: bytes) -> Reply:
        """Move messages that the cluster has put here back to their original queues, or to another queue."""
        check_name(name)
        body = object_of(await read_value(request, HTTP_PROPERTY_BYTES_MAX), {"to", "label", "max", "sequences"})
        destination = other_queue(request, body, "to") if "to" in body else None
        label = text_of(body.get("label"), "label", TEXT_BYTES_MAX) or b""
        who = request.principal
        sent = await self._operations.redrive(
            name, destination, label=label, count=_count(body), principal=who, sequences=_sequences(body)
        )
        return reply_media(request).reply({"redriven": sent})

    async def bind(self, request: Request, name: bytes) -> Reply:
        """Bind another queue, so that copies of pushes are stored there in the same step."""
        check_name(name)
        body = object_of(await read_value(request, HTTP_PROPERTY_BYTES_MAX), {"target"})
        target = other_queue(request, body, "target")
        return reply_media(request).reply({"new": await self._operations.bind(name, target, request.principal.owner)})

    async def unbind(self, request: Request, name: bytes) -> Reply:
        """Remove a binding."""
        check_name(name)
        body = object_of(await read_value(request, HTTP_PROPERTY_BYTES_MAX), {"target"})
        target = other_queue(request, body, "target")
        return reply_media(request).reply({"ended": await self._operations.unbind(name, target)})

    async def bindings(self, request: Request, name: bytes) -> Reply:
        """Return the queues that get copies of pushes to the queue."""
        check_name(name)
        stale = await refresh(self._service)
        media = reply_media(request)
        targets = [media.name(one) for one in self._operations.bindings(name) if request.principal.covers(one)]
        return marked(media.reply({"targets": targets, "stale": stale}), stale=stale)

    async def labels(self, request: Request, name: bytes) -> Reply:
        """Return the number of messages with a label that are not in flight."""
        check_name(name)
        label = text_of(request.parameters().get(b"label"), "label", TEXT_BYTES_MAX)
        if label is None:
            raise LmqError("bad_request", "the parameter label must hold a label")
        stale = await refresh(self._service)
        count = self._operations.count_labelled(name, label)
        media = reply_media(request)
        return marked(media.reply({"label": media.name(label), "count": count, "stale": stale}), stale=stale)

    async def suspend(self, request: Request, name: bytes) -> Reply:
        """Suspend deliveries from the queue until it is resumed."""
        check_name(name)
        object_of(await read_value(request, HTTP_PROPERTY_BYTES_MAX), set())
        await self._operations.suspend(name)
        return reply_media(request).reply({"suspended": True})

    async def resume(self, request: Request, name: bytes) -> Reply:
        """Resume deliveries from the queue."""
        check_name(name)
        object_of(await read_value(request, HTTP_PROPERTY_BYTES_MAX), set())
        await self._operations.resume(name)
        return reply_media(request).reply({"suspended": False})


def _count(body: dict[str, Any]) -> int | None:
    return whole_member(body["max"], "max", 1, _COUNT_MAX) if "max" in body else None


def _sequences(body: dict[str, Any]) -> list[int] | None:
    """Return the sequences that a body names, None if it names none. They replace a maximum."""
    if "sequences" not in body:
        return None
    if "max" in body:
        raise LmqError("bad_request", "sequences and max exclude each other")
    given = list_of(body, "sequences", SEQUENCES_MAX)
    return [whole_member(one, "each of sequences", 0, _COUNT_MAX) for one in given]
