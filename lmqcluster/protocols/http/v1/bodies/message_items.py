"""Messages in request bodies."""

from __future__ import annotations

from typing import Any, Final

from .....node.queues.sending.push_items import PRIORITY_MAX, TEXT_BYTES_MAX, PushItem, PushOptions
from .....wire.attributes import pack_attributes
from .....wire.errors import LmqError
from .....wire.legacy_msgpack import CONTENT_TYPE, head_bytes
from ...server.replies.long_content import base64_decoded
from ...server.requests.target import has_control
from .media import content_of
from .members import number_of, object_of, text_of, whole_member

__all__ = ["MEMBERS", "item_of"]

CONTENT_TYPE_BYTES_MAX = 4096
KEY_BYTES_MAX = 255
_OPTIONS: Final = {"delay", "due", "ttl", "priority", "label", "group"}
MEMBERS: Final = {"content", "content_type", "key", "attributes", *_OPTIONS}
"""Members of a message."""


async def item_of(value: Any, where: str, bytes_max: int, attribute_bytes_max: int) -> PushItem:
    """Return the message that an object describes.

    Args:
        where: name of the object in error texts.
        bytes_max: maximum size of a body.
        attribute_bytes_max: maximum size of the attributes.

    Raises:
        LmqError: ``bad_request``, ``too_large``.
    """
    message = object_of(value, MEMBERS, where)
    if "content" not in message:
        raise LmqError("bad_request", f"{where} has no content")
    what = f"{where}.content"
    given = message["content"]
    content = content_of(await base64_decoded(given, what) if isinstance(given, dict) else given, what)
    content_type = text_of(message.get("content_type"), f"{where}.content_type", CONTENT_TYPE_BYTES_MAX)
    if content_type and has_control(content_type):
        raise LmqError("bad_request", f"{where}.content_type must not hold control characters")
    if len(content) - (head_bytes(content) if content_type == CONTENT_TYPE else 0) > bytes_max:
        raise LmqError("too_large", f"{where} has more than {bytes_max} bytes")
    key = text_of(message.get("key"), f"{where}.key", KEY_BYTES_MAX)
    options = None if message.keys().isdisjoint(_OPTIONS) else _options(message, where)
    attributes = _attributes(message.get("attributes"), f"{where}.attributes", attribute_bytes_max)
    return PushItem(content, content_type, attributes, key, options)


def _attributes(value: Any, what: str, bytes_max: int) -> bytes:
    if value is None:
        return b""
    if not isinstance(value, dict):
        raise LmqError("bad_request", f"{what} must be an object, not {type(value).__name__}")
    attributes = {
        name: content_of(one, f"{what}.{name}"[:200]) if isinstance(one, dict) else one for name, one in value.items()
    }
    return pack_attributes(attributes, bytes_max)


def _options(message: dict[str, Any], where: str) -> PushOptions:
    return PushOptions(
        delay_s=number_of(message.get("delay"), f"{where}.delay"),
        due_s=number_of(message.get("due"), f"{where}.due"),
        ttl_s=number_of(message.get("ttl"), f"{where}.ttl"),
        priority=whole_member(message.get("priority", 0), f"{where}.priority", -PRIORITY_MAX - 1, PRIORITY_MAX),
        label=text_of(message.get("label"), f"{where}.label", TEXT_BYTES_MAX) or b"",
        group=text_of(message.get("group"), f"{where}.group", TEXT_BYTES_MAX) or b"",
    )
