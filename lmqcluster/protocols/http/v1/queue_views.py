"""Views of queues under ``/v1``: the list, one queue, and its messages. They need no quorum."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ....node.queues.sending.push_items import TEXT_BYTES_MAX
from ....node.queues.views.listing import SORT_KEYS, STATES, QueueList
from ....node.queues.views.peek import PeekQuery
from ....wire.errors import LmqError
from ....wire.limits import PATTERN_BYTES_MAX
from ..server.barrier_read import marked, not_found, refresh
from ..server.replies.long_list import LongList, list_pieces, reply_with_list
from ..server.replies.shown_properties import shown
from ..server.replies.streamed import streamed
from ..server.requests.target import check_name
from .bodies.media import reply_media
from .bodies.members import attribute_filter, choice, text_of, whole
from .bodies.rendering import QUEUE_FIELDS, peeked_message, queue_row

if TYPE_CHECKING:
    from collections.abc import Callable

    from ....node.node import Node
    from ....node.queues.views.info import QueueInfo
    from ..server.replies.reply import Reply
    from ..server.requests.request import Request
    from ..server.requests.target import Query
    from .bodies.media import Media

__all__ = ["QueueViews"]

QUEUES_PER_PAGE_MAX = 10_000
_OFFSET_MAX = 1_000_000_000
PEEK_MAX = 1_000
_PEEK_DEFAULT = 20
CONTENT_BYTES_MAX = 1024 * 1024
_CONTENT_BYTES_DEFAULT = 64 * 1024
PEEK_BYTES_MAX = 8 * 1024 * 1024
"""Size above which a page of messages ends, after the message that exceeds it."""
_RENDERED_FACTOR = 4
_ROW_BYTES = 1024
_SEQUENCE_MAX = (1 << 63) - 1


class QueueViews:
    """Handlers of requests that change nothing."""

    def __init__(self, node: Node) -> None:
        self._service = node.service
        self._counts = node.clients.counts
        self._access = node.access

    async def list_queues(self, request: Request) -> Reply:
        """Return a page of the queues that match, in the requested order."""
        query = request.parameters()
        wanted, fields = _wanted(query), _fields(query)
        principal = request.principal
        if not principal.everywhere:
            wanted = replace(wanted, visible=principal.covers)
        stale = await refresh(self._service)
        media = reply_media(request)
        client = request.client(self._access)
        page = await self._service.list_queues(wanted, client)
        following = None if page.following is None else media.name(page.following)
        rest = {"total": page.total, "next": following, "stale": stale}
        row: Callable[[QueueInfo], Any] = partial(queue_row, media=media, fields=fields)
        if b"consumers" in query:
            rest["unreachable"] = await self._counts.look()
            row = partial(self._row_with_consumers, media, fields)
        rows = LongList("queues", page.queues, row, rest)
        pieces = list_pieces(media, rows, self._service.sender.turns, client)
        return marked(await streamed(media.head, pieces), stale=stale)

    def _row_with_consumers(self, media: Media, fields: tuple[str, ...], info: QueueInfo) -> dict[str, Any]:
        consumers = sum(one.consumers for one in self._counts.of(info.name))
        return {**queue_row(info, media, fields), "consumers": consumers}

    async def show(self, request: Request, name: bytes) -> Reply:
        """Return one queue: counts, its own and its effective properties."""
        check_name(name)
        stale = await refresh(self._service)
        info, described = self._service.queue(name), self._service.description(name)
        if info is None or described is None:
            raise not_found(name, stale=stale)
        media = reply_media(request)
        properties = shown(sorted(self._service.properties(name).items()))
        own = shown(self._service.own_properties(name).items())
        holder, standing_by = self._service.sessions.line(name)
        row = {
            **queue_row(info, media),
            "exclusive_holder": None if holder is None else holder.decode(),
            "standing_by": standing_by,
            "waiting_pulls": self._service.pulls.waiting_for(name),
            "groups": info.groups,
            "held": info.held,
            "held_back": dict(info.held_back),
            "properties": properties,
            "own_properties": own,
            "annotations": dict(described.annotations),
            "created_at": described.created_us / 1e6,
            "changed_at": described.changed_us / 1e6,
            "stale": stale,
        }
        return marked(media.reply(row), stale=stale)

    async def peek(self, request: Request, name: bytes) -> Reply:
        """Return messages of a queue in order of their sequence, without taking any."""
        check_name(name)
        parameters = request.parameters()
        limit = whole(parameters, "limit", 1, PEEK_MAX, _PEEK_DEFAULT)
        after = whole(parameters, "after", 0, _SEQUENCE_MAX, 0)
        label, group = (
            text_of(parameters.get(name.encode()), name, TEXT_BYTES_MAX) or b"" for name in ("label", "group")
        )
        bytes_max = whole(parameters, "bytes", 0, CONTENT_BYTES_MAX, _CONTENT_BYTES_DEFAULT)
        request.hold(_ROW_BYTES * limit + _RENDERED_FACTOR * min(limit * bytes_max, PEEK_BYTES_MAX + bytes_max))
        stale = await refresh(self._service)
        if self._service.queue(name) is None:
            raise not_found(name, stale=stale)
        media = reply_media(request)
        query = PeekQuery(
            after + 1,
            limit,
            PEEK_BYTES_MAX,
            bytes_max,
            label=label,
            group=group,
            attribute=attribute_filter(parameters.get(b"attribute")),
        )
        client = request.client(self._access)
        page = await self._service.peeks.page(name, query, client)
        rows = []
        receipts, unix_us = self._service.receipts(), self._service.unix_us
        for peeked in page.messages:
            (message,) = await self._service.pulls.absent.fetched([peeked.message])
            rows.append(peeked_message(replace(peeked, message=message), media, receipts, unix_us, bytes_max))
        rest = {"next": None if page.following is None else page.following - 1, "stale": stale}
        found = LongList("messages", rows, lambda row: row, rest)
        return marked(await reply_with_list(media, found, self._service.sender.turns, client), stale=stale)


def _wanted(query: Query) -> QueueList:
    sort = choice(query, "sort", tuple(SORT_KEYS), "name")
    order = choice(query, "order", ("asc", "desc"), "asc" if sort == "name" else "desc")
    pattern = query.get(b"pattern")
    if pattern is not None and len(pattern) > PATTERN_BYTES_MAX:
        raise LmqError("bad_pattern", f"a regular expression has at most {PATTERN_BYTES_MAX} bytes")
    return QueueList(
        name=query.get(b"name") or b"",
        pattern=pattern,
        state=choice(query, "state", tuple(STATES), "") or None,
        sort=sort,
        descending=order == "desc",
        after=query.get(b"after"),
        offset=whole(query, "offset", 0, _OFFSET_MAX, 0),
        limit=whole(query, "limit", 1, QUEUES_PER_PAGE_MAX, QUEUES_PER_PAGE_MAX),
    )


def _fields(query: Query) -> tuple[str, ...]:
    text = query.get(b"fields")
    if text is None:
        return QUEUE_FIELDS
    wanted = [field for field in text.decode(errors="replace").split(",") if field and field != "name"]
    unknown = [field for field in wanted if field not in QUEUE_FIELDS]
    if unknown:
        raise LmqError("bad_request", f"a queue has no field {unknown[0][:40]!r}; it has {', '.join(QUEUE_FIELDS)}")
    return tuple(field for field in QUEUE_FIELDS if field in wanted)
