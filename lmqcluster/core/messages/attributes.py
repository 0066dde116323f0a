"""Attributes of a message: a packed MessagePack map of names to strings, numbers or binary values, empty for none.

A node checks and packs them. The core keeps them as one byte string, because it only stores and returns them. The
exceptions are request headers, which become attributes if the hooks of a queue name them, and the name and due time
of a schedule.
"""

from __future__ import annotations

import struct

from .message import Headers

__all__ = ["with_headers", "with_schedule"]

_FIXED_MAP, _FIXED_MAP_MAX, _MAP_16 = 0x80, 15, 0xDE


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
