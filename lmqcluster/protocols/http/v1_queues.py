"""The ``/v1/queues`` routes: batches of messages in JSON or MessagePack, and what there is to know of a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...node.service import PushItem
from ...wire.errors import LmqError
from ...wire.limits import HTTP_PROPERTY_BYTES_MAX, PULL_COUNT_MAX, PUSH_COUNT_MAX, REQUEST_BYTES_MAX
from ...wire.properties import parse_properties
from .compound import OCTET_STREAM
from .fresh import refresh
from .lmq_errors import no_content
from .lmq_messages import FLAGS
from .lmq_properties import shown
from .media import Media, content_of, read_value, reply_media
from .problem import on_error, refuse
from .routing import Resource, Router
from .target import check_name, has_control

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...node.node import Node
    from ...node.service import Delivery, QueueInfo
    from .reply import Reply
    from .request import Request
    from .routing import Handler
    from .waits import Waits

__all__ = ["QueueRoutes"]

CONTENT_TYPE_BYTES_MAX = 4096
KEY_BYTES_MAX = 255
QUEUES_PER_PAGE_MAX = 10_000
IDS_MAX = PULL_COUNT_MAX
_ID_BYTES_MAX = 64
_COUNTS = (
    "ready", "delayed", "leased", "accumulating", "size", "bytes", "pushed_total", "pulled_total", "acked_total",
    "nacked_total", "redelivered_total", "dropped_total",
)  # fmt: skip


class QueueRoutes:
    """Translates the batch requests to the node's service."""

    def __init__(self, node: Node, waits: Waits) -> None:
        self._service = node.service
        self._message_bytes_max = node.config.message_bytes_max
        self._waits = waits

    def add_to(self, router: Router) -> None:
        """Register the routes."""
        for path, methods in self._table().items():
            router.add(path, Resource(methods, on_error, refuse(*methods)))

    def _table(self) -> Mapping[str, Mapping[str, Handler]]:
        queue = "/v1/queues/{name}"
        return {
            "/v1/queues": {"GET": self.list_queues},
            queue: {"GET": self.show, "DELETE": self.delete},
            f"{queue}/properties": {"GET": self.properties, "PATCH": self.patch, "DELETE": self.clear},
            f"{queue}/messages": {"POST": self.push},
            f"{queue}/pull": {"POST": self.pull},
            f"{queue}/ack": {"POST": self.ack},
            f"{queue}/nack": {"POST": self.nack},
            f"{queue}/extend": {"POST": self.extend},
        }

    async def list_queues(self, request: Request) -> Reply:
        """Queues by name, at most `limit` of them, after the name `after`."""
        query = request.parameters()
        limit = _whole(query.get(b"limit"), QUEUES_PER_PAGE_MAX)
        after = query.get(b"after") or b""
        await refresh(self._service)
        media = reply_media(request)
        names = [name for name in self._service.queue_names() if name > after]
        infos = [info for name in names[:limit] if (info := self._service.queue(name)) is not None]
        following = media.name(names[limit - 1]) if len(names) > limit else None
        return media.reply({"queues": [_info(info, media) for info in infos], "next": following})

    async def show(self, request: Request, name: bytes) -> Reply:
        """One queue: counts and effective properties."""
        check_name(name)
        await refresh(self._service)
        info = self._service.queue(name)
        if info is None:
            raise LmqError("queue_not_found", "there is no queue of this name")
        media = reply_media(request)
        return media.reply(_info(info, media) | {"properties": shown(sorted(self._service.properties(name).items()))})

    async def delete(self, request: Request, name: bytes) -> Reply:  # noqa: ARG002  a handler takes its request
        """Delete a queue with its messages and its own properties."""
        if not await self._service.delete(check_name(name)):
            raise LmqError("queue_not_found", "there is no queue of this name")
        return no_content()

    async def properties(self, request: Request, name: bytes) -> Reply:
        """The effective properties of a queue, which need not exist."""
        check_name(name)
        await self._service.barrier()
        return reply_media(request).reply(shown(sorted(self._service.properties(name).items())))

    async def patch(self, request: Request, name: bytes) -> Reply:
        """Set some properties of a queue."""
        check_name(name)
        await self._service.set_properties(name, parse_properties(await read_value(request, HTTP_PROPERTY_BYTES_MAX)))
        return no_content()

    async def clear(self, request: Request, name: bytes) -> Reply:  # noqa: ARG002
        """Remove all properties set on a queue."""
        await self._service.clear_properties(check_name(name))
        return no_content()

    async def push(self, request: Request, name: bytes) -> Reply:
        """Store messages, all or none of them."""
        check_name(name)
        base_key = request.idempotency_key()
        body = _object(await read_value(request, REQUEST_BYTES_MAX), {"messages"})
        messages = _list(body, "messages", PUSH_COUNT_MAX)
        items = [self._item(message, place, base_key, len(messages)) for place, message in enumerate(messages)]
        flags = await self._service.push(name, items) if items else []
        return reply_media(request).reply({"results": [{"accum": FLAGS[flag]} for flag in flags]})

    async def pull(self, request: Request, name: bytes) -> Reply:
        """Deliver up to `max` messages, as soon as there is one, waiting up to `timeout` seconds for it."""
        check_name(name)
        body = _object(await read_value(request, HTTP_PROPERTY_BYTES_MAX), {"max", "timeout"})
        count = body.get("max", 1)
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= PULL_COUNT_MAX:
            raise LmqError("bad_request", f"max must be a whole number from 1 to {PULL_COUNT_MAX}")
        wait_s = _wait(body.get("timeout", 0))
        media = reply_media(request)
        operation = self._service.pull(name, count=count, wait_s=wait_s)
        deliveries = await (self._waits.run(operation, []) if wait_s != 0 else operation)
        return media.reply({"messages": [_message(delivery, media) for delivery in deliveries]})

    async def ack(self, request: Request, name: bytes) -> Reply:
        """Acknowledge messages."""
        return _results(request, await self._service.ack(check_name(name), await _ids(request)))

    async def nack(self, request: Request, name: bytes) -> Reply:
        """Give messages back; it costs each a retry."""
        return _results(request, await self._service.nack(check_name(name), await _ids(request)))

    async def extend(self, request: Request, name: bytes) -> Reply:
        """Start the leases of messages anew."""
        return _results(request, await self._service.extend(check_name(name), await _ids(request)))

    def _item(self, value: Any, place: int, base_key: bytes | None, count: int) -> PushItem:
        where = f"messages[{place}]"
        message = _object(value, {"content", "content_type", "key"}, where)
        if "content" not in message:
            raise LmqError("bad_request", f"{where} has no content")
        content = content_of(message["content"], f"{where}.content")
        if len(content) > self._message_bytes_max:
            raise LmqError("too_large", f"{where} has more than {self._message_bytes_max} bytes")
        content_type = _text(message.get("content_type"), f"{where}.content_type", CONTENT_TYPE_BYTES_MAX)
        if content_type and has_control(content_type):
            raise LmqError("bad_request", f"{where}.content_type must not hold control characters")
        key = _text(message.get("key"), f"{where}.key", KEY_BYTES_MAX)
        if key is None and base_key is not None:
            # One header covers the batch: each message gets a key of its own that a retry makes again.
            key = base_key if count == 1 else b"%b:%d" % (base_key, place)
        return PushItem(content, content_type, (), key)


def _info(info: QueueInfo, media: Media) -> dict[str, Any]:
    counts = {field: getattr(info, field) for field in _COUNTS}
    return {"name": media.name(info.name), **counts}


def _message(delivery: Delivery, media: Media) -> dict[str, Any]:
    if delivery.compound:
        content: Any = [
            {
                "content": media.content(part.content),
                "content_type": _header_text(part.content_type or OCTET_STREAM),
                "headers": _headers(part.headers),
            }
            for part in delivery.parts
        ]
        content_type = b"multipart/mixed"
    else:
        content, content_type = media.content(delivery.content), delivery.content_type or OCTET_STREAM
    return {
        "id": delivery.id.decode("ascii"),
        "queue": media.name(delivery.queue),
        "type": "compound" if delivery.compound else "normal",
        "retry": delivery.retry,
        "content": content,
        "content_type": _header_text(content_type),
        "headers": _headers(delivery.headers),
    }


def _headers(headers: tuple[tuple[bytes, bytes], ...]) -> dict[str, str]:
    return {_header_text(name): _header_text(value) for name, value in headers}


def _header_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _results(request: Request, done: list[bool]) -> Reply:
    return reply_media(request).reply({"results": done})


async def _ids(request: Request) -> list[bytes]:
    body = _object(await read_value(request, HTTP_PROPERTY_BYTES_MAX), {"ids"})
    ids = [_text(value, "an id", _ID_BYTES_MAX) for value in _list(body, "ids", IDS_MAX)]
    return [identifier or b"" for identifier in ids]


def _object(value: Any, known: set[str], where: str = "the body") -> dict[str, Any]:
    if value is None and where == "the body":
        return {}
    if not isinstance(value, dict):
        raise LmqError("bad_request", f"{where} must be an object, not {type(value).__name__}")
    unknown = sorted(str(name) for name in value.keys() - known)
    if unknown:
        raise LmqError("bad_request", f"{where} has no member {unknown[0][:80]!r}; it takes {', '.join(sorted(known))}")
    return value


def _list(body: dict[str, Any], name: str, count_max: int) -> list[Any]:
    value = body.get(name)
    if not isinstance(value, list):
        raise LmqError("bad_request", f"{name} must be a list")
    if len(value) > count_max:
        raise LmqError("too_large", f"{name} has {len(value)} entries, more than {count_max}; send them in parts")
    return value


def _text(value: Any, what: str, bytes_max: int) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, (str, bytes)):
        raise LmqError("bad_request", f"{what} must be a string, not {type(value).__name__}")
    data = content_of(value, what)
    if not 0 < len(data) <= bytes_max:
        raise LmqError("bad_request", f"{what} has 1 to {bytes_max} bytes, not {len(data)}")
    return data


def _wait(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise LmqError("bad_request", "timeout must be a number of seconds, 0 or more, or null to wait without limit")
    return min(float(value), 1e9)


def _whole(text: bytes | None, most: int) -> int:
    if text is None:
        return most
    if not text.isdigit() or not 1 <= int(text[:10]) <= most:
        raise LmqError("bad_request", f"limit must be a whole number from 1 to {most}")
    return int(text)
