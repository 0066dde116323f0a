"""The ``/v1/queues`` routes: batches of messages in JSON or MessagePack, properties, and views of queues."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ....node.access.named_queues import check_named_queues
from ....node.queues.kinds import KINDS, new_queue
from ....node.queues.sending.naming import no_queue
from ....wire.errors import LmqError
from ....wire.limits import HTTP_PROPERTY_BYTES_MAX, PULL_COUNT_MAX, PUSH_COUNT_MAX, REQUEST_BYTES_MAX
from ....wire.properties import parse_annotations, parse_properties
from ....wire.trace_context import with_trace
from ..server.replies.common_replies import no_content
from ..server.replies.long_list import LongList, reply_with_list
from ..server.replies.problem import on_error, refuse
from ..server.replies.shown_properties import shown
from ..server.requests.target import check_name
from ..server.routing import Resource, Router
from .bodies.media import read_value, reply_media
from .bodies.members import (
    after_of,
    flag_of,
    list_of,
    number_of,
    object_of,
    place_of,
    reason_of,
    seconds,
    session_of,
    text_of,
    whole_member,
)
from .bodies.message_items import item_of
from .bodies.rendering import delivered_message
from .bodies.results import pushed
from .queue_views import QueueViews

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from ....node.node import Node
    from ....node.queues.sending.push_items import PushItem, Stored
    from ..server.replies.reply import Reply
    from ..server.requests.request import Request
    from ..server.routing import Handler
    from ..server.waits import Waits

__all__ = ["QueueRoutes"]

IDS_MAX = PULL_COUNT_MAX
RENDERED_FACTOR = 4
"""Memory for contents, values made of them and the answer, as a multiple of the contents' bytes."""
_ID_BYTES_MAX = 64
_ITEMS_PER_TURN = 500
_BY_CONTENT = "content_deduplication"
_CREATE_MEMBERS = {"kind", _BY_CONTENT, "properties", "annotations"}
_PULL_MEMBERS = {"max", "timeout", "lease", "auto_ack", "session", "after"}


class QueueRoutes:
    """Routes that translate batch requests to the node's service."""

    def __init__(self, node: Node, waits: Waits) -> None:
        self._service = node.service
        self._access = node.access
        self._views = QueueViews(node)
        self._config = node.config
        self._message_bytes_max = node.config.message_bytes_max
        self._attribute_bytes_max = node.config.attribute_bytes_max
        self._waits = waits

    def add_to(self, router: Router) -> None:
        """Register the routes."""
        for path, methods in self._table().items():
            router.add(path, Resource(methods, on_error, refuse(*methods)))

    def _table(self) -> Mapping[str, Mapping[str, Handler]]:
        queue = "/v1/queues/{name}"
        return {
            "/v1/queues": {"GET": self._views.list_queues},
            queue: {"GET": self._views.show, "PUT": self.create, "DELETE": self.delete},
            f"{queue}/properties": {"GET": self.properties, "PATCH": self.patch, "DELETE": self.clear},
            f"{queue}/messages": {"GET": self._views.peek, "POST": self.push},
            f"{queue}/pull": {"POST": self.pull},
            f"{queue}/ack": {"POST": self.ack},
            f"{queue}/nack": {"POST": self.nack},
            f"{queue}/extend": {"POST": self.extend},
        }

    async def create(self, request: Request, name: bytes) -> Reply:
        """Create a queue of a kind, unless it exists."""
        check_name(name)
        body = object_of(await read_value(request, HTTP_PROPERTY_BYTES_MAX), _CREATE_MEMBERS)
        kind = body.get("kind", "plain")
        if kind not in KINDS:
            raise LmqError("bad_request", f"kind must be one of {', '.join(KINDS)}")
        by_content = flag_of(body[_BY_CONTENT], _BY_CONTENT) if _BY_CONTENT in body else None
        made = new_queue(self._config, name, kind, by_content=by_content)
        given = dict(parse_properties(body.get("properties", {})))
        check_named_queues(request.principal, list(given.items()))
        properties = [pair for pair in {**made.properties, **given}.items() if pair[1] is not None]
        annotations = {**made.annotations, **parse_annotations(body.get("annotations", {}))}
        texts = {name: text for name, text in annotations.items() if text is not None}
        is_new = await self._service.create(name, properties, texts, request.principal.owner, indexed=kind == "fifo")
        return reply_media(request).reply({"new": is_new})

    async def delete(self, request: Request, name: bytes) -> Reply:  # noqa: ARG002  a handler takes its request
        """Delete a queue with its messages and its own properties."""
        if not await self._service.delete(check_name(name)):
            raise no_queue(name)
        return no_content()

    async def properties(self, request: Request, name: bytes) -> Reply:
        """Return the effective properties of a queue. The queue need not exist."""
        check_name(name)
        await self._service.sender.barrier()
        return reply_media(request).reply(shown(sorted(self._service.properties(name).items())))

    async def patch(self, request: Request, name: bytes) -> Reply:
        """Set some properties and annotations of a queue."""
        check_name(name)
        given = await read_value(request, HTTP_PROPERTY_BYTES_MAX)
        annotations = parse_annotations(given.pop("annotations", {}) if isinstance(given, dict) else {})
        properties = parse_properties(given)
        check_named_queues(request.principal, properties)
        await self._service.set_properties(name, properties, request.principal.owner, annotations=annotations)
        return no_content()

    async def clear(self, request: Request, name: bytes) -> Reply:
        """Remove all properties set on a queue."""
        await self._service.clear_properties(check_name(name), request.principal.owner)
        return no_content()

    async def push(self, request: Request, name: bytes) -> Reply:
        """Store messages, all or none of them."""
        check_name(name)
        base_key = request.idempotency_key()
        body = object_of(await read_value(request, REQUEST_BYTES_MAX), {"messages", "wait"})
        messages = list_of(body, "messages", PUSH_COUNT_MAX)
        wait_s = number_of(body.get("wait"), "wait")
        trace = request.trace()
        items: list[PushItem] = []
        for place, message in enumerate(messages):
            if place % _ITEMS_PER_TURN == _ITEMS_PER_TURN - 1:
                await asyncio.sleep(0)
            item = await item_of(message, f"messages[{place}]", self._message_bytes_max, self._attribute_bytes_max)
            if item.key is None and base_key is not None:
                # The header covers the batch: each message gets a key that a retry generates again.
                item = item._replace(key=base_key if len(messages) == 1 else b"%b:%d" % (base_key, place))
            if trace:
                item = item._replace(attributes=with_trace(item.attributes, trace, self._attribute_bytes_max))
            items.append(item)
        stored = await self._stored(request, name, items, wait_s) if items else []
        return reply_media(request).reply({"results": [pushed(one) for one in stored]})

    async def _stored(self, request: Request, name: bytes, items: list[PushItem], wait_s: float | None) -> list[Stored]:
        principal = request.principal
        operation = self._service.push(name, items, principal.owner, wait_s=wait_s, tells_sequence=True)
        if not wait_s:
            return await operation
        stored: list[Stored] | None = await self._waits.run(principal, operation, None)
        if stored is None:
            raise LmqError("unknown_outcome", "the node ended the wait; a repetition with the same key is stored once")
        return stored

    async def pull(self, request: Request, name: bytes) -> Reply:
        """Deliver up to `max` messages as soon as there is one, waiting up to `timeout` seconds for it."""
        check_name(name)
        body = object_of(await read_value(request, HTTP_PROPERTY_BYTES_MAX), _PULL_MEMBERS)
        count = whole_member(body.get("max", 1), "max", 1, PULL_COUNT_MAX)
        wait_s = seconds(body.get("timeout", 0))
        media = reply_media(request)
        lease_s, settles = number_of(body.get("lease"), "lease"), flag_of(body.get("auto_ack", False), "auto_ack")
        owner = request.principal.owner

        def has_room(size: int) -> bool:
            return request.has_room(RENDERED_FACTOR * size)

        service = self._service
        if body.get("session") is None:
            if body.get("after") is not None:
                raise LmqError("bad_request", "after goes with a session")
            operation = service.pull(
                name,
                count=count,
                wait_s=wait_s,
                has_room=has_room,
                owner=owner,
                lease_s=lease_s,
                settles=settles,
                place=request.place,
            )
        elif settles:
            raise LmqError("bad_request", "a pull in a session does not acknowledge; leave out auto_ack")
        else:
            operation = service.sessions.pull(
                name,
                session_of(body),
                after=after_of(body),
                count=count,
                wait_s=wait_s,
                has_room=has_room,
                owner=owner,
                lease_s=lease_s,
                place=request.place,
            )
        deliveries = await (self._waits.run(request.principal, operation, []) if wait_s != 0 else operation)
        try:
            rows = LongList("messages", deliveries, lambda one: delivered_message(one, media))
            return await reply_with_list(media, rows, service.sender.turns, request.client(self._access))
        except BaseException:
            # Most likely the client disconnected while its answer was being written. With `after`, its session keeps the
            # messages.
            if body.get("after") is None:
                self._service.put_back(deliveries)
            raise

    async def ack(self, request: Request, name: bytes) -> Reply:
        """Acknowledge messages."""
        ids, _ = await _ids(request)
        return _results(request, await self._service.ack(check_name(name), ids))

    async def nack(self, request: Request, name: bytes) -> Reply:
        """Give messages back to the queue; it costs each a retry."""
        ids, body = await _ids(request, {"place", "delay", "reason"})
        delay_s, reason = number_of(body.get("delay"), "delay"), reason_of(body)
        return _results(request, await self._service.nack(check_name(name), ids, place_of(body), delay_s, reason))

    async def extend(self, request: Request, name: bytes) -> Reply:
        """Restart the leases of messages."""
        ids, body = await _ids(request, {"lease"})
        lease_s = number_of(body.get("lease"), "lease")
        return _results(request, await self._service.extend(check_name(name), ids, lease_s))


def _results(request: Request, done: list[bool]) -> Reply:
    return reply_media(request).reply({"results": done})


async def _ids(request: Request, more: AbstractSet[str] = frozenset()) -> tuple[list[bytes], dict[str, Any]]:
    """Return the ids of a body, and the body with its other members."""
    body = object_of(await read_value(request, HTTP_PROPERTY_BYTES_MAX), {"ids", *more})
    ids = [text_of(value, "an id", _ID_BYTES_MAX) for value in list_of(body, "ids", IDS_MAX)]
    return [identifier or b"" for identifier in ids], body
