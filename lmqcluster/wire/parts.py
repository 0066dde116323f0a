"""Encoding into parts: large byte strings are separate parts, so that they are copied at most once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgpack

__all__ = ["LARGE_BYTES", "joined", "packed_parts"]

LARGE_BYTES: Final = 256 * 1024
"""Byte strings of this size or more are separate parts."""

_pack = msgpack.Packer().pack


def packed_parts(value: Any) -> list[bytes]:
    """Return the output of ``msgpack.packb`` for lists, tuples, byte strings and small values, as parts."""
    parts: list[bytes] = []
    _add(value, parts)
    return parts


def _add(value: Any, parts: list[bytes]) -> None:
    if isinstance(value, bytes) and len(value) >= LARGE_BYTES:
        parts += (b"\xc6" + len(value).to_bytes(4, "big"), value)
    elif isinstance(value, list | tuple):
        parts.append(_pack_array_header(len(value)))
        for one in value:
            _add(one, parts)
    else:
        parts.append(_pack(value))


def _pack_array_header(count: int) -> bytes:
    if count < 16:
        return bytes((0x90 | count,))
    return b"\xdc" + count.to_bytes(2, "big") if count < 65536 else b"\xdd" + count.to_bytes(4, "big")


def joined(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in fewer parts; large parts are not copied."""
    small: list[bytes] = []
    for part in parts:
        if len(part) < LARGE_BYTES:
            small.append(part)
            continue
        if small:
            yield b"".join(small)
            small = []
        yield part
    if small:
        yield b"".join(small)
