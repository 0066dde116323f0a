"""The ``/v1/queues`` routes: batches of messages in JSON or MessagePack, properties, and what can be seen of a queue."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ....node.queues.naming import no_queue
from ....node.queues.service import PushFlag, PushItem
from ....wire.errors import LmqError
from ....wire.limits import HTTP_PROPERTY_BYTES_MAX, PULL_COUNT_MAX, PUSH_COUNT_MAX, REQUEST_BYTES_MAX
from ....wire.properties import parse_properties
from ..server.common_replies import no_content
from ..server.problem import on_error, refuse
from ..server.push_flags import ACCUMULATION, FLAGS
from ..server.routing import Resource, Router
from ..server.shown_properties import shown
from ..server.target import check_name, has_control
from .long_content import base64_decoded
from .long_list import reply_with_list
from .media import content_of, read_value, reply_media
from .members import list_of, object_of, seconds, text_of, whole_member
from .queue_views import QueueViews
from .rendering import delivered_message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ....node.node import Node
    from ..server.reply import Reply
    from ..server.request import Request
    from ..server.routing import Handler
    from ..server.waits import Waits

__all__ = ["QueueRoutes"]

CONTENT_TYPE_BYTES_MAX = 4096
KEY_BYTES_MAX = 255
IDS_MAX = PULL_COUNT_MAX
RENDERED_FACTOR = 4
"""What contents take, with the texts and values that are made of them and the answer, in times their bytes."""
_ID_BYTES_MAX = 64
_ITEMS_PER_TURN = 500


class QueueRoutes:
    """Translates the batch requests to the node's service."""

    def __init__(self, node: Node, waits: Waits) -> None:
        self._service = node.service
        self._views = QueueViews(node)
        self._message_bytes_max = node.config.message_bytes_max
        self._waits = waits

    def add_to(self, router: Router) -> None:
        """Register the routes."""
        for path, methods in self._table().items():
            router.add(path, Resource(methods, on_error, refuse(*methods)))

    def _table(self) -> Mapping[str, Mapping[str, Handler]]:
        queue = "/v1/queues/{name}"
        return {
            "/v1/queues": {"GET": self._views.list_queues},
            queue: {"GET": self._views.show, "DELETE": self.delete},
            f"{queue}/properties": {"GET": self.properties, "PATCH": self.patch, "DELETE": self.clear},
            f"{queue}/messages": {"GET": self._views.peek, "POST": self.push},
            f"{queue}/pull": {"POST": self.pull},
            f"{queue}/ack": {"POST": self.ack},
            f"{queue}/nack": {"POST": self.nack},
            f"{queue}/extend": {"POST": self.extend},
        }

    async def delete(self, request: Request, name: bytes) -> Reply:  # noqa: ARG002  a handler takes its request
        """Delete a queue with its messages and its own properties."""
        if not await self._service.delete(check_name(name)):
            raise no_queue(name)
        return no_content()

    async def properties(self, request: Request, name: bytes) -> Reply:
        """The effective properties of a queue, which need not exist."""
        check_name(name)
        await self._service.barrier()
        return reply_media(request).reply(shown(sorted(self._service.properties(name).items())))

    async def patch(self, request: Request, name: bytes) -> Reply:
        """Set some properties of a queue."""
        check_name(name)
        properties = parse_properties(await read_value(request, HTTP_PROPERTY_BYTES_MAX))
        await self._service.set_properties(name, properties, request.principal.owner)
        return no_content()

    async def clear(self, request: Request, name: bytes) -> Reply:
        """Remove all properties set on a queue."""
        await self._service.clear_properties(check_name(name), request.principal.owner)
        return no_content()

    async def push(self, request: Request, name: bytes) -> Reply:
        """Store messages, all or none of them."""
        check_name(name)
        base_key = request.idempotency_key()
        body = object_of(await read_value(request, REQUEST_BYTES_MAX), {"messages"})
        messages = list_of(body, "messages", PUSH_COUNT_MAX)
        items: list[PushItem] = []
        for place, message in enumerate(messages):
            if place % _ITEMS_PER_TURN == _ITEMS_PER_TURN - 1:
                await asyncio.sleep(0)
            items.append(await self._item(message, place, base_key, len(messages)))
        flags = await self._service.push(name, items, request.principal.owner) if items else []
        return reply_media(request).reply({"results": [_pushed(flag) for flag in flags]})

    async def pull(self, request: Request, name: bytes) -> Reply:
        """Deliver up to `max` messages, as soon as there is one, waiting up to `timeout` seconds for it."""
        check_name(name)
        body = object_of(await read_value(request, HTTP_PROPERTY_BYTES_MAX), {"max", "timeout"})
        count = whole_member(body.get("max", 1), "max", 1, PULL_COUNT_MAX)
        wait_s = seconds(body.get("timeout", 0))
        media = reply_media(request)
        operation = self._service.pull(
            name,
            count=count,
            wait_s=wait_s,
            has_room=lambda size: request.has_room(RENDERED_FACTOR * size),
            owner=request.principal.owner,
        )
        deliveries = await (self._waits.run(request.principal, operation, []) if wait_s != 0 else operation)
        try:
            return await reply_with_list(media, "messages", deliveries, lambda one: delivered_message(one, media), {})
        except BaseException:
            # Most likely the client hung up while its answer was being written.
            self._service.give_back(deliveries)
            raise

    async def ack(self, request: Request, name: bytes) -> Reply:
        """Acknowledge messages."""
        return _results(request, await self._service.ack(check_name(name), await _ids(request)))

    async def nack(self, request: Request, name: bytes) -> Reply:
        """Give messages back; it costs each a retry."""
        return _results(request, await self._service.nack(check_name(name), await _ids(request)))

    async def extend(self, request: Request, name: bytes) -> Reply:
        """Restart the leases of messages."""
        return _results(request, await self._service.extend(check_name(name), await _ids(request)))

    async def _item(self, value: Any, place: int, base_key: bytes | None, count: int) -> PushItem:
        where = f"messages[{place}]"
        message = object_of(value, {"content", "content_type", "key"}, where)
        if "content" not in message:
            raise LmqError("bad_request", f"{where} has no content")
        what = f"{where}.content"
        given = message["content"]
        content = content_of(await base64_decoded(given, what) if isinstance(given, dict) else given, what)
        if len(content) > self._message_bytes_max:
            raise LmqError("too_large", f"{where} has more than {self._message_bytes_max} bytes")
        content_type = text_of(message.get("content_type"), f"{where}.content_type", CONTENT_TYPE_BYTES_MAX)
        if content_type and has_control(content_type):
            raise LmqError("bad_request", f"{where}.content_type must not hold control characters")
        key = text_of(message.get("key"), f"{where}.key", KEY_BYTES_MAX)
        if key is None and base_key is not None:
            # One header covers the batch: each message gets a key of its own that a retry makes again.
            key = base_key if count == 1 else b"%b:%d" % (base_key, place)
        return PushItem(content, content_type, (), key)


def _pushed(flag: int) -> dict[str, object]:
    shown: dict[str, object] = {"accum": FLAGS[flag & ACCUMULATION]}
    return {**shown, "replayed": True} if flag & PushFlag.REPLAYED else shown


def _results(request: Request, done: list[bool]) -> Reply:
    return reply_media(request).reply({"results": done})


async def _ids(request: Request) -> list[bytes]:
    body = object_of(await read_value(request, HTTP_PROPERTY_BYTES_MAX), {"ids"})
    ids = [text_of(value, "an id", _ID_BYTES_MAX) for value in list_of(body, "ids", IDS_MAX)]
    return [identifier or b"" for identifier in ids]
