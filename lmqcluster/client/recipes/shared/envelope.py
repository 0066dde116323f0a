"""Format in which the recipes store one or several items as one message."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from .errors import CorruptItemError

__all__ = ["pack_items", "unpack_items"]

_VERSION = struct.pack(">I", 0x00010001)
_ITEM = b"\x01"
_END = b"\x02"
_LENGTH = struct.Struct(">i")


def pack_items(items: Iterable[bytes]) -> bytes:
    """Pack items into one message, in Curator's format."""
    parts = [_VERSION]
    for item in items:
        parts += (_ITEM, _LENGTH.pack(len(item)), item)
    parts.append(_END)
    return b"".join(parts)


def unpack_items(data: bytes) -> list[bytes]:
    """Return the items of a message and ignore any bytes after their end.

    Raises:
        CorruptItemError: the message is not in the format.
    """
    if data[:4] != _VERSION:
        raise CorruptItemError(f"the message begins with {data[:4].hex() or 'nothing'}, not with {_VERSION.hex()}")
    items = []
    at = 4
    while (opcode := data[at : at + 1]) != _END:
        if opcode != _ITEM:
            raise CorruptItemError(f"there is {opcode.hex() or 'nothing'} at byte {at}, neither an item nor the end")
        start = at + 1 + _LENGTH.size
        if start > len(data):
            raise CorruptItemError(f"the message ends within the length at byte {at + 1}")
        (length,) = _LENGTH.unpack_from(data, at + 1)
        at = start + length
        if length < 0 or at > len(data):
            raise CorruptItemError(f"the item at byte {start} would have {length} bytes of {len(data) - start}")
        items.append(data[start:at])
    return items
