"""Queues and messages in the format of the ``/v1`` routes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .....core.messages.message import Part, Traits, loaded, traits_of
from .....core.queue.counters import COUNTERS
from ...server.replies.common_replies import OCTET_STREAM

if TYPE_CHECKING:
    from collections.abc import Callable

    from .....node.queues.pulls.deliveries import Delivery
    from .....node.queues.views.info import QueueInfo
    from .....node.queues.views.peek import PeekedMessage
    from .....wire.ids import ReceiptFormat
    from .media import Media

__all__ = ["QUEUE_FIELDS", "delivered_message", "peeked_message", "queue_row"]

QUEUE_FIELDS = (
    "suspended", "ready", "delayed", "leased", "accumulating", "pushes_waiting", "dead_letters", "size", "bytes",
    "oldest_age_s", "push_rate", "pull_rate", *COUNTERS,
)  # fmt: skip
"""Fields of a queue in addition to its name."""


def queue_row(info: QueueInfo, media: Media, fields: tuple[str, ...] = QUEUE_FIELDS) -> dict[str, Any]:
    """Return a queue's name and the given fields."""
    counters = info.counters
    return {
        "name": media.name(info.name),
        **{field: counters[field] if field in counters else getattr(info, field) for field in fields},
    }


def delivered_message(delivery: Delivery, media: Media) -> dict[str, Any]:
    """Return a message under lease."""
    if delivery.compound:
        content: Any = [_part(media, part.content, part.content_type, part.attributes) for part in delivery.parts]
    else:
        content = media.content(delivery.content)
    return {
        "id": delivery.id.decode("ascii"),
        "queue": media.name(delivery.queue),
        "type": "compound" if delivery.compound else "normal",
        "retry": delivery.retry,
        "content": content,
        "content_type": _content_type(delivery.content_type, compound=delivery.compound),
        "attributes": media.attributes(delivery.attributes),
        "delivery": delivery.delivery,
        "sequence": delivery.sequence,
        "pushed_at": delivery.pushed_s,
        **_traits(delivery.traits, media),
    }


def _traits(traits: Traits, media: Media) -> dict[str, Any]:
    """Return the options that a message was pushed with, and its origin; absent ones are omitted."""
    shown: dict[str, Any] = {}
    if traits.priority:
        shown["priority"] = traits.priority
    for name, text in (("label", traits.label), ("group", traits.group)):
        if text:
            shown[name] = media.name(text)
    if traits.origin is not None:
        origin = traits.origin
        shown["origin"] = {
            "queue": media.name(origin.queue),
            "reason": origin.reason.decode(),
            "deliveries": origin.deliveries,
            "sequence": origin.sequence,
        }
    return shown


def peeked_message(
    peeked: PeekedMessage, media: Media, receipts: ReceiptFormat, unix_us: Callable[[int], int], bytes_max: int
) -> dict[str, Any]:
    """Return a peeked message with at most `bytes_max` bytes of its body."""
    body, (content_type, attributes) = loaded(peeked.message.content), peeked.message.meta
    compound = not isinstance(body, bytes)
    return {
        "sequence": peeked.sequence,
        "id": None if peeked.delivery is None else receipts.format(peeked.delivery).decode("ascii"),
        "state": peeked.state,
        "type": "compound" if compound else "normal",
        "content": media.content(_cut(body, bytes_max)) if isinstance(body, bytes) else _parts(body, media, bytes_max),
        "content_type": _content_type(content_type, compound=compound),
        "attributes": media.attributes(attributes),
        "size": peeked.size,
        "truncated": peeked.size > bytes_max,
        "age_s": peeked.age_s,
        "due_in_s": peeked.due_in_s,
        "deliveries": peeked.message.delivered,
        "deliveries_left": peeked.deliveries_left,
        "pushed_at": unix_us(peeked.message.pushed_us) / 1e6,
        **_traits(traits_of(peeked.message), media),
    }


def _parts(parts: list[Part], media: Media, bytes_max: int) -> list[dict[str, Any]]:
    """Return the first parts of a compound message. The last one is truncated if necessary."""
    shown: list[dict[str, Any]] = []
    for part in list(parts):
        if bytes_max <= 0 and part.content:
            break
        shown.append(_part(media, _cut(part.content, bytes_max), part.content_type, part.attributes))
        bytes_max -= len(part.content)
    return shown


def _part(media: Media, content: bytes, content_type: bytes | None, attributes: bytes) -> dict[str, Any]:
    return {
        "content": media.content(content),
        "content_type": _content_type(content_type, compound=False),
        "attributes": media.attributes(attributes),
    }


def _cut(content: bytes, bytes_max: int) -> bytes:
    """Return the start of a body. It does not end inside a UTF-8 character, which has up to three bytes after its first."""
    if len(content) <= bytes_max:
        return content
    end = bytes_max
    while end > max(0, bytes_max - 3) and content[end] & 0xC0 == 0x80:
        end -= 1
    return content[:end]


def _content_type(content_type: bytes | None, *, compound: bool) -> str:
    return "multipart/mixed" if compound else _header_text(content_type or OCTET_STREAM)


def _header_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")
