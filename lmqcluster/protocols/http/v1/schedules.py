"""``/v1/schedules``: messages that the cluster pushes at given times."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ....node.queues.schedules.cron import CRON_BYTES_MAX, ZONE_BYTES_MAX
from ....node.queues.schedules.request import MISSED, ScheduleRequest, check_schedule_name
from ....node.queues.schedules.schedules import PAGE_MAX
from ....wire.errors import LmqError
from ....wire.limits import HTTP_PROPERTY_BYTES_MAX
from ..server.barrier_read import marked, refresh
from ..server.replies.common_replies import no_content
from ..server.replies.problem import on_error, refuse
from ..server.requests.target import check_name
from ..server.routing import Resource, Router
from .bodies.media import Media, content_of, read_value, reply_media
from .bodies.members import number_of, object_of, text_of, whole
from .bodies.message_items import MEMBERS, item_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ....node.node import Node
    from ....node.queues.schedules.schedules import ScheduleInfo
    from ..server.replies.reply import Reply
    from ..server.requests.request import Request
    from ..server.routing import Handler

__all__ = ["ScheduleRoutes"]

_MESSAGE = MEMBERS - {"key", "due"}
_RULE = {"queue", "interval", "cron", "zone", "start", "end", "jitter", "missed"}
_WORD_BYTES_MAX = 16
_LIMIT = 100


class ScheduleRoutes:
    """Routes that translate requests to the node's schedules."""

    def __init__(self, node: Node) -> None:
        self._service = node.service
        self._schedules = node.service.schedules
        self._message_bytes_max = node.config.message_bytes_max
        self._attribute_bytes_max = node.config.attribute_bytes_max

    def add_to(self, router: Router) -> None:
        """Register the routes."""
        for path, methods in self._table().items():
            router.add(path, Resource(methods, on_error, refuse(*methods)))

    def _table(self) -> Mapping[str, Mapping[str, Handler]]:
        one = "/v1/schedules/{name}"
        return {
            "/v1/schedules": {"GET": self.list_all},
            one: {"GET": self.show, "PUT": self.set, "DELETE": self.delete},
            f"{one}/pause": {"POST": self.pause},
            f"{one}/resume": {"POST": self.resume},
            f"{one}/run": {"POST": self.run},
        }

    async def set(self, request: Request, name: bytes) -> Reply:
        """Create a schedule, or replace its definition."""
        check_schedule_name(name)
        body = object_of(await read_value(request, HTTP_PROPERTY_BYTES_MAX), _MESSAGE | _RULE)
        if "queue" not in body:
            raise LmqError("bad_request", "queue must hold the name of a queue")
        message = {member: value for member, value in body.items() if member in _MESSAGE}
        asked = ScheduleRequest(
            name,
            check_name(content_of(body["queue"], "queue")),
            await item_of(message, "the body", self._message_bytes_max, self._attribute_bytes_max),
            interval_s=number_of(body.get("interval"), "interval"),
            cron=_word(body, "cron", CRON_BYTES_MAX),
            zone=_word(body, "zone", ZONE_BYTES_MAX) or "UTC",
            start_s=number_of(body.get("start"), "start"),
            end_s=number_of(body.get("end"), "end"),
            jitter_s=number_of(body.get("jitter"), "jitter") or 0.0,
            missed=_word(body, "missed", _WORD_BYTES_MAX) or MISSED[0],
        )
        return reply_media(request).reply({"result": await self._schedules.set(asked, request.principal)})

    async def delete(self, request: Request, name: bytes) -> Reply:
        """Delete a schedule."""
        await self._schedules.delete(check_schedule_name(name), request.principal)
        return no_content()

    async def pause(self, request: Request, name: bytes) -> Reply:
        """Stop a schedule until it is resumed."""
        await self._schedules.pause(await _checked(request, name), request.principal)
        return no_content()

    async def resume(self, request: Request, name: bytes) -> Reply:
        """Continue a paused schedule."""
        await self._schedules.resume(await _checked(request, name), request.principal)
        return no_content()

    async def run(self, request: Request, name: bytes) -> Reply:
        """Push the message of a schedule now."""
        await self._schedules.run(await _checked(request, name), request.principal)
        return no_content()

    async def show(self, request: Request, name: bytes) -> Reply:
        """Return a schedule with its message."""
        media, stale = reply_media(request), await refresh(self._service)
        info = self._schedules.show(name, request.principal)
        content = info.content if media.is_msgpack else media.name(info.content)
        return marked(media.reply({**_row(info, media), "content": content, "stale": stale}), stale=stale)

    async def list_all(self, request: Request) -> Reply:
        """Return a page of the schedules whose queues the client may see, by name."""
        query = request.parameters()
        limit, after = whole(query, "limit", 1, PAGE_MAX, _LIMIT), query.get(b"after") or b""
        media, stale = reply_media(request), await refresh(self._service)
        found, following = self._schedules.page(request.principal, after, limit)
        rows = [_row(one, media) for one in found]
        shown = {
            "schedules": rows,
            "next": None if following is None else media.name(following),
            "total": self._schedules.total(),
            "stale": stale,
        }
        return marked(media.reply(shown), stale=stale)


async def _checked(request: Request, name: bytes) -> bytes:
    object_of(await read_value(request, HTTP_PROPERTY_BYTES_MAX), set())
    return check_schedule_name(name)


def _word(body: dict[str, Any], member: str, bytes_max: int) -> str | None:
    text = text_of(body.get(member), member, bytes_max)
    try:
        return None if text is None else text.decode()
    except UnicodeDecodeError as exc:
        raise LmqError("bad_request", f"{member} must be text") from exc


def _row(info: ScheduleInfo, media: Media) -> dict[str, Any]:
    """Return a schedule without its body."""
    row = asdict(info)
    del row["content"]
    texts = {member: media.name(row[member]) for member in ("name", "queue", "owner")}
    options = {name: media.name(one) if isinstance(one, bytes) else one for name, one in info.options.items()}
    kind = None if info.content_type is None else info.content_type.decode("utf-8", "backslashreplace")
    attributes = media.attributes(info.packed_attributes)
    del row["packed_attributes"]
    return {
        **row,
        **texts,
        "options": options,
        "content_type": kind,
        "attributes": attributes,
        "size": len(info.content),
    }
