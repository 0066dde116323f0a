"""Routes of messages: push, poll, update, delete."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgpack

from ...core.log.results import TagState
from ...wire.errors import LmqError
from ...wire.legacy_msgpack import plain_body
from .media import Media, QueuedError, read_object, reply_media
from .members import contents_of, count_of, flag_of, list_of, number_of, object_of
from .names import checked
from .resource import resource

if TYPE_CHECKING:
    from ...node.node import Node
    from ...node.queues.polls import Polled
    from ..http.server.replies.reply import Reply
    from ..http.server.requests.request import Request
    from ..http.server.routing import Router
    from ..http.server.waits import Waits

__all__ = ["MessageRoutes"]

_DELAY_MAX = (1 << 32) - 1
_SIGNED = (-(1 << 63), (1 << 63) - 1)
_ID_MAX = (1 << 64) - 1
_TAG_MAX = (1 << 32) - 1
WAIT_S_MAX = 3_600
_KEY_BYTES_MAX = 240


class MessageRoutes:
    """Routes that translate message requests to the node's service."""

    def __init__(self, node: Node, waits: Waits) -> None:
        self._service = node.service
        self._polled = node.service.polled
        self._waits = waits

    def add_to(self, router: Router) -> None:
        """Register the routes."""
        table = {"push": self.push, "poll": self.poll, "update": self.update, "delete": self.delete}
        for verb, handler in table.items():
            router.add(f"/queue/{{name}}/messages/{verb}", resource({"POST": handler}))

    async def push(self, request: Request, name: bytes) -> Reply:
        """Store messages, all of them or none."""
        checked(name)
        body = await read_object(request)
        key = request.idempotency_key()
        if key is not None and len(key) > _KEY_BYTES_MAX:
            raise LmqError("bad_request", f"an Idempotency-Key has at most {_KEY_BYTES_MAX} bytes here")
        media = reply_media(request)
        is_detailed = _is_detailed(body, media)
        pushes = [_pushed(one) for one in list_of(body, "messages")]
        contents, hidden_s = [one[0] for one in pushes], [one[1] for one in pushes]
        ids = await self._polled.push(name, contents, hidden_s, key, request.principal.owner)
        shown: dict[str, Any] = {"ids": ids}
        if is_detailed and len(ids) == 1:
            shown["id"] = ids[0]
        return media.reply(shown)

    async def poll(self, request: Request, name: bytes) -> Reply:
        """Take visible messages and hide them for the visibility timeout."""
        checked(name)
        body = await read_object(request)
        wait_s = _wait_s(body)
        media = reply_media(request)
        is_detailed = _is_detailed(body, media)
        operation = self._polled.poll(
            name,
            count=count_of(body, "count", 1),
            hide_s=number_of(body, "visibility_timeout_secs", *_SIGNED),
            takes_hidden=flag_of(body, "ignore_existing_visibility_timeouts"),
            wait_s=wait_s,
            has_room=request.has_room,
        )
        polled = await (self._waits.run(request.principal, operation, []) if wait_s else operation)
        try:
            return media.reply({"messages": [_shown(one, media, is_detailed=is_detailed) for one in polled]})
        except BaseException:
            self._polled.put_back(polled)
            raise

    async def update(self, request: Request, name: bytes) -> Reply:
        """Extend the time for which a message is hidden, under a new tag."""
        checked(name)
        body = await read_object(request)
        message, tag = _named(body)
        hide_s = number_of(body, "visibility_timeout_secs", *_SIGNED)
        state, new_tag = await self._polled.update(name, message, tag, hide_s)
        if state is not TagState.VALID:
            raise QueuedError(404, "MessageNotFound")
        return reply_media(request).reply({"new_poll_tag": new_tag})

    async def delete(self, request: Request, name: bytes) -> Reply:
        """Delete messages. Skip those whose id or tag is wrong; list the skipped ones if the client asks for them."""
        checked(name)
        body = await read_object(request)
        pairs = [_named(object_of(one, "a message")) for one in list_of(body, "messages")]
        tells = flag_of(body, "report_skipped")
        states = await self._polled.delete(name, pairs)
        skipped = [
            {"id": message, "poll_tag": tag}
            for (message, tag), state in zip(pairs, states, strict=True)
            if state is not TagState.VALID
        ]
        return reply_media(request).reply({"skipped": skipped} if tells else {})


def _is_detailed(body: dict[str, Any], media: Media) -> bool:
    """Return whether an answer includes the members that queued documents but its server does not send.

    queued's JavaScript client, which speaks MessagePack, refuses them.
    """
    return flag_of(body, "details", default=not media.is_msgpack)


def _pushed(message: Any) -> tuple[bytes, int]:
    """Return the contents of a message to store and the seconds for which it is hidden."""
    if type(message) is dict:
        contents, hidden_s = message.get("contents"), message.get("visibility_timeout_secs")
        if type(contents) is bytes and type(hidden_s) is int and 0 <= hidden_s <= _DELAY_MAX:
            # Fast path for nearly all messages; the functions below produce the errors for the others.
            return contents, hidden_s
    given = object_of(message, "a message")
    return contents_of(given), number_of(given, "visibility_timeout_secs", 0, _DELAY_MAX)


def _wait_s(body: dict[str, Any]) -> float:
    value = body.get("wait_secs", 0)
    if type(value) not in (int, float) or not 0 <= value <= WAIT_S_MAX:
        raise LmqError("bad_request", f"wait_secs must be a number from 0 to {WAIT_S_MAX}")
    return float(value)


def _named(given: dict[str, Any]) -> tuple[int, int]:
    return number_of(given, "id", 0, _ID_MAX), number_of(given, "poll_tag", 0, _TAG_MAX)


def _shown(polled: Polled, media: Media, *, is_detailed: bool) -> dict[str, Any]:
    delivery = polled.delivery
    body = plain_body(delivery.content_type, delivery.content)
    if delivery.compound:
        # A message accumulated by LMQ's clients is one message here.
        body = msgpack.packb(
            [plain_body(part.content_type, part.content) for part in delivery.parts], use_bin_type=True
        )
    shown = {**media.contents(body), "id": delivery.sequence, "poll_tag": polled.tag}
    if is_detailed:
        seconds, fraction = divmod(delivery.pushed_s, 1)
        shown["created"] = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(fraction * 1e6):06d}Z"
        shown["poll_count"] = delivery.delivery
    return shown
