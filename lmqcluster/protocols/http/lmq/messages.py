"""LMQ's routes for messages and queues: ``/messages``, ``/messages/NAME``, ``/messages/NAME/ID``, ``/queues/NAME``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aiohttp import hdrs

from ....core import PushFlag
from ....node.queues.sending.naming import no_queue
from ....node.queues.sending.push_items import PushItem
from ....wire.attributes import ATTRIBUTES_MAX, TRACE_ATTRIBUTES
from ....wire.errors import LmqError
from ....wire.headers import is_reserved
from ....wire.trace_context import with_trace
from ..server.replies.common_replies import OCTET_STREAM, no_content
from ..server.replies.compact_json import dumps
from ..server.replies.push_flags import ACCUMULATION, FLAGS
from ..server.replies.reply import JSON, RepeatablePush, Reply, header_value
from ..server.requests.target import check_name, has_control, pattern_of
from ..server.routing import Resource, Router
from . import parameters
from .compound import attribute_headers, render
from .errors import on_error, refuse

if TYPE_CHECKING:
    from ....node.node import Node
    from ....node.queues.pulls.deliveries import Delivery
    from ..server.requests.request import Request
    from ..server.waits import Waits
    from .parameters import CompoundFormat

__all__ = ["REPLAYED", "MessageRoutes"]

REPLAYED = b"idempotency-replayed: true\r\n"
"""Header of the answer to a push that was already stored under the same idempotency key."""
SEQUENCE = b"x-lmq-message-sequence: %d\r\n"
"""Header of the answers to a push and to a pull: the sequence of the message, which stays the same over all deliveries."""
_TRACE_HEADERS = frozenset(map(str.encode, TRACE_ATTRIBUTES))
_HEADERS_MAX = ATTRIBUTES_MAX - len(TRACE_ATTRIBUTES)
_HEADER_BYTES = 10
"""Bytes that a header takes as an attribute beside its name and its value."""
_PUSHED = tuple(dumps({"accum": flag}).encode() for flag in FLAGS)

_DELIVERED = (
    b"content-type: %b\r\n%bx-lmq-queue-name: %b\r\nx-lmq-message-id: %b\r\n"
    b"x-lmq-message-type: %b\r\nx-lmq-retry-remaining: %d\r\n%b"
    b"x-content-type-options: nosniff\r\ncontent-security-policy: sandbox; default-src 'none'\r\n"
)
"""Headers of a delivery. If a browser shows a message, it must not run as a page of the console's origin."""


class MessageRoutes:
    """Routes that translate LMQ's message requests to the node's service."""

    def __init__(self, node: Node, waits: Waits) -> None:
        self._service = node.service
        self._access = node.access
        self._message_bytes_max = node.config.message_bytes_max
        self._waits = waits
        self._replies = {"ack": self._service.ack, "nack": self._service.nack, "extend": self._service.extend}

    def add_to(self, router: Router) -> None:
        """Register the routes."""
        router.add(
            "/messages",
            Resource(
                {"GET": self.pull_any, "POST": self.push_all},
                on_error,
                refuse("GET, POST"),
                guard=self._check_pattern,
                any_method=True,
            ),
        )
        queue = Resource({"GET": self.pull, "POST": self.push}, on_error, refuse("GET, POST"), any_method=True)
        router.add("/messages/{name}", queue)
        router.add("/messages/{name}/{id}", Resource({"POST": self.reply}, on_error, refuse("POST"), any_method=True))
        router.add("/queues/{name}", Resource({"DELETE": self.delete}, on_error, refuse("DELETE")))

    async def push(self, request: Request, name: bytes) -> Reply:
        """Store the body as one message."""
        # A push that does not ask for the sequence is faster, because its message shares a command with others.
        tells = "sequence" in request.raw_query and parameters.tells_sequence(request.parameters())
        item, owner = await self._item(request), request.principal.owner
        (stored,) = await self._service.push(check_name(name), (item,), owner, tells_sequence=tells)
        reply = _pushed(stored.flag)
        if stored.told_sequence is not None:
            reply.head += SEQUENCE % stored.told_sequence
        if not tells and item.is_plain():
            reply.repeatable = RepeatablePush(name, item.content_type, _pushed, on_error)
        return reply

    async def push_all(self, request: Request) -> Reply:
        """Store the body in every queue whose name matches."""
        pattern = pattern_of(request.parameters())
        results = await self._service.push_all(pattern, await self._item(request), request.client(self._access))
        return Reply(200, JSON, dumps({name: _copied(flag) for name, flag in results}).encode())

    async def pull(self, request: Request, name: bytes) -> Reply:
        """Deliver the first message of a queue."""
        query = request.parameters()
        wait_s = parameters.wait(query)
        layout = parameters.compound_format(query)
        owner = request.principal.owner
        operation = self._service.pull(
            check_name(name), wait_s=wait_s, has_room=request.has_room, owner=owner, place=request.place
        )
        deliveries: Sequence[Delivery] = await (
            self._waits.run(request.principal, operation, []) if wait_s != 0 else operation
        )
        return _delivered(deliveries[0], layout) if deliveries else no_content()

    async def pull_any(self, request: Request) -> Reply:
        """Deliver a message of any queue whose name matches."""
        query = request.parameters()
        wait_s = parameters.wait(query)
        layout = parameters.compound_format(query)
        client = request.client(self._access)
        operation = self._service.pull_any(
            pattern_of(query), client, wait_s=wait_s, has_room=request.has_room, place=request.place
        )
        delivery = await (self._waits.run(request.principal, operation, None) if wait_s != 0 else operation)
        return _delivered(delivery, layout) if delivery is not None else no_content()

    async def reply(self, request: Request, name: bytes, identifier: bytes) -> Reply:
        """Acknowledge a message, give it back, or extend its lease."""
        operation = self._replies[parameters.reply_kind(request.parameters())]
        done = await operation(check_name(name), (identifier,))
        if not done[0]:
            raise LmqError("not_found", "no message of this queue is under lease with this id")
        return no_content()

    async def delete(self, request: Request, name: bytes) -> Reply:  # noqa: ARG002  a handler takes its request
        """Delete a queue with its messages and its own properties."""
        if not await self._service.delete(check_name(name)):
            raise no_queue(name)
        return no_content()

    def _check_pattern(self, request: Request) -> None:
        self._service.check_pattern(pattern_of(request.parameters()))

    async def _item(self, request: Request) -> PushItem:
        key = request.idempotency_key()
        body = await request.read_body(self._message_bytes_max)
        content_type = request.raw_header(hdrs.CONTENT_TYPE)
        return PushItem(body, content_type, self._trace(request), key, headers=self._hooked(request))

    def _trace(self, request: Request) -> bytes:
        """Return the attributes that carry the trace of a push, empty if it has none."""
        trace = request.trace()
        return with_trace(b"", trace, self._service.sender.attribute_bytes_max) if trace else b""

    def _hooked(self, request: Request) -> tuple[tuple[bytes, bytes], ...]:
        """Return the headers of a push that hooks name. The first of each name counts."""
        by_queues, by_rules = self._service.preserved_headers()
        if not by_queues and not by_rules:
            return ()
        found: dict[bytes, bytes] = {}
        for raw_name, value in request.raw_headers:
            name = raw_name.lower()
            is_wanted = (name in by_queues or name in by_rules) and name not in _TRACE_HEADERS
            if is_wanted and not is_reserved(name.decode("latin-1")) and not has_control(value):
                found.setdefault(name, value)
        size = sum(len(name) + len(value) + _HEADER_BYTES for name, value in found.items())
        if size > self._service.sender.attribute_bytes_max or len(found) > _HEADERS_MAX:
            reason = f"the headers that hooks keep have {size} bytes, or are more than {_HEADERS_MAX}"
            raise LmqError("too_large", f"{reason}; {self._service.sender.attribute_bytes_max} bytes are kept at most")
        return tuple(found.items())


def _pushed(flag: int) -> Reply:
    """Return the answer to a push."""
    return Reply(200, JSON + REPLAYED if flag & PushFlag.REPLAYED else JSON, _PUSHED[flag & ACCUMULATION])


def _copied(flag: int) -> dict[str, str]:
    """Return the result of one copy of a push."""
    if flag >= PushFlag.FULL:
        return {"error": "too_large" if flag & PushFlag.OVERSIZED else "full"}
    return {"accum": FLAGS[flag & ACCUMULATION]}


def _delivered(delivery: Delivery, layout: CompoundFormat) -> Reply:
    """Return the answer with a message."""
    content: bytes | list[bytes]
    lines = []
    if delivery.compound:
        content_type, content = render(delivery, layout)
    else:
        content_type, content = header_value(delivery.content_type or OCTET_STREAM), delivery.content
        lines = [b"%b: %b\r\n" % header for header in attribute_headers(delivery.attributes)]
    head = _DELIVERED % (
        content_type,
        b"".join(lines),
        header_value(delivery.queue),
        delivery.id,
        b"compound" if delivery.compound else b"normal",
        delivery.retry,
        SEQUENCE % delivery.sequence,
    )
    return Reply(200, head, content)
