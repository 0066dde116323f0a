"""Attributes of a message: a packed MessagePack map of names to strings, numbers or binary values, empty for none.

A node checks and packs them. The core keeps them as one byte string, because it only stores and returns them. The
exceptions are request headers, which become attributes if the hooks of a queue name them, the name and due time of a
schedule, and the reason of a nack.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from .message import Headers, Message

__all__ = ["Reason", "checked_reason", "reasoned", "with_headers", "with_reason", "with_schedule"]

_FIXED_MAP, _FIXED_MAP_MAX, _MAP_16 = 0x80, 15, 0xDE
_ATTRIBUTES_MAX = 64
_REASON_NAME = b"\xaalmq.reason"
"""Nodes pack this attribute as the first one, so that it is found in a constant time."""
_REASON_BYTES_MAX = 1024
_FIXED_TEXT, _FIXED_TEXT_MAX, _TEXT_8, _TEXT_16 = 0xA0, 31, 0xD9, 0xDA
_NUMBER_BYTES = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_LENGTH_BYTES = {0xC4: 1, 0xC5: 2, 0xC6: 4, _TEXT_8: 1, _TEXT_16: 2, 0xDB: 4}
"""By its first byte, the bytes of a number, and those of the length of a string or a binary value."""


def with_headers(attributes: bytes, headers: Headers) -> bytes:
    """Return packed attributes with these headers added as strings, or as binary values if they are not UTF-8."""
    if not headers:
        return attributes
    count, start = _count_of(attributes)
    added = b"".join(_packed(name) + _packed(value) for name, value in headers)
    return _map_header(count + len(headers)) + attributes[start:] + added


def _count_of(attributes: bytes) -> tuple[int, int]:
    """Return the number of attributes, and where the first one starts."""
    if not attributes:
        return 0, 0
    if attributes[0] == _MAP_16:
        return int.from_bytes(attributes[1:3], "big"), 3
    return attributes[0] - _FIXED_MAP, 1


def _map_header(count: int) -> bytes:
    return bytes((_FIXED_MAP | count,)) if count <= _FIXED_MAP_MAX else b"%c%b" % (_MAP_16, count.to_bytes(2, "big"))


def _packed(text: bytes) -> bytes:
    """Return a MessagePack string, or a binary value if the text is not UTF-8 (MessagePack specification, str 32, bin 32)."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return b"\xc6%b%b" % (len(text).to_bytes(4, "big"), text)
    return b"\xdb%b%b" % (len(text).to_bytes(4, "big"), text)


def with_schedule(attributes: bytes, name: bytes, due_s: float) -> bytes:
    """Return packed attributes with the name of a schedule, and a due time as a number of Unix seconds."""
    count, start = _count_of(attributes)
    added = _packed(b"schedule") + _packed(name) + _packed(b"scheduled_at") + b"\xcb" + struct.pack(">d", due_s)
    return _map_header(count + 2) + attributes[start:] + added


class Reason(NamedTuple):
    """Why a message comes back.

    Attributes:
        text: UTF-8.
        attribute_bytes_max: most bytes of the attributes of the message, this one included.
    """

    text: bytes
    attribute_bytes_max: int


def checked_reason(text: Any, attribute_bytes_max: Any) -> Reason | None:
    """Return the reason of a command, None if it has none.

    Raises:
        ValueError: a field is malformed or out of range.
    """
    if type(text) is not bytes or len(text) > _REASON_BYTES_MAX:
        raise ValueError(f"a reason must have at most {_REASON_BYTES_MAX} bytes")
    if type(attribute_bytes_max) is not int or attribute_bytes_max < 0:
        raise ValueError("the bytes of attributes must be an integer, 0 or more")
    text.decode()
    return Reason(text, attribute_bytes_max) if text else None


def reasoned(message: Message, reason: Reason | None) -> bytes:
    """Return the attributes of a message that comes back. Only the parts of a compound message have any, so it keeps none."""
    attributes = message.meta[1]
    return attributes if reason is None or isinstance(message.content, list) else with_reason(attributes, reason)


def with_reason(attributes: bytes, reason: Reason) -> bytes:
    """Return packed attributes with this reason as the first one, in place of an earlier one.

    The reason is cut if there is room for a part of it, and left out if there is none.
    """
    count, start = _count_of(attributes)
    if attributes.startswith(_REASON_NAME, start):
        start = _end_of_value(attributes, start + len(_REASON_NAME))
        count -= 1
    others = attributes[start:]
    # The longest header of a map and of a string of this length have three bytes.
    room = reason.attribute_bytes_max - len(others) - len(_REASON_NAME) - 2 * 3
    text = reason.text if len(reason.text) <= room else reason.text[: max(0, room)].decode(errors="ignore").encode()
    if not text or count >= _ATTRIBUTES_MAX:
        return _map_header(count) + others if count > 0 else b""
    return _map_header(max(0, count) + 1) + _REASON_NAME + _packed_short(text) + others


def _packed_short(text: bytes) -> bytes:
    """Return a MessagePack string of less than 64 KiB in its shortest form, as nodes pack it."""
    size = len(text)
    if size <= _FIXED_TEXT_MAX:
        return b"%c%b" % (_FIXED_TEXT | size, text)
    return b"%c%c%b" % (_TEXT_8, size, text) if size < 256 else b"%c%b%b" % (_TEXT_16, size.to_bytes(2, "big"), text)


def _end_of_value(packed: bytes, start: int) -> int:
    """Return where a string, a number or a binary value ends."""
    head = packed[start] if start < len(packed) else 0
    if _FIXED_TEXT <= head <= _FIXED_TEXT + _FIXED_TEXT_MAX:
        return start + 1 + head - _FIXED_TEXT
    if head in _LENGTH_BYTES:
        value = start + 1 + _LENGTH_BYTES[head]
        return value + int.from_bytes(packed[start + 1 : value], "big")
    return start + 1 + _NUMBER_BYTES.get(head, 0)
