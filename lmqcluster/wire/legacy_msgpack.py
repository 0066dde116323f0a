"""MessagePack according to its old specification, which LMQ's clients use.

Strings and binaries are one type, raw (fixraw, raw16, raw32). The encoder never writes str8, bin or ext. The decoder
accepts the old and the new types.

Source: the MessagePack specification before 2013 ("old spec"), https://github.com/msgpack/msgpack/blob/master/spec-old.md
"""

from __future__ import annotations

import struct
from typing import Any, NoReturn

import msgpack

from .errors import LmqError

__all__ = [
    "CONTENT_TYPE",
    "UnsupportedExtensionError",
    "head_bytes",
    "make_unpacker",
    "pack",
    "pack_raw",
    "plain_body",
    "raw_head",
    "raw_head_bytes",
    "unpack",
    "unwrapped",
]

CONTENT_TYPE = b"application/x-msgpack"
"""Content type of bodies that were pushed over MessagePack-RPC."""

_RAW_HEADERS = [bytes((0xA0 | n,)) for n in range(32)]
_raw16 = struct.Struct(">BH").pack
_raw32 = struct.Struct(">BI").pack
_packer = msgpack.Packer(use_bin_type=False, autoreset=True)


class UnsupportedExtensionError(ValueError):
    """The data contains a MessagePack extension type, which the protocol does not support."""


def pack(value: object) -> bytes:
    """Encode a value with types of the old specification only.

    Raises:
        LmqError: ``bad_arguments`` if the value cannot be encoded, such as an integer beyond 64 bits.
    """
    try:
        data: bytes = _packer.pack(value)
    except (TypeError, ValueError, OverflowError) as exc:
        raise LmqError("bad_arguments", f"the value cannot be encoded as MessagePack: {exc}") from exc
    return data


def pack_raw(data: bytes) -> bytes:
    """Encode one string as raw. This is the hot path of every push."""
    size = len(data)
    if size < 32:
        return _RAW_HEADERS[size] + data
    if size < 65536:
        return _raw16(0xDA, size) + data
    return _raw32(0xDB, size) + data


def raw_head(size: int) -> bytes:
    """Return the header of a raw string of `size` bytes."""
    if size < 32:
        return _RAW_HEADERS[size]
    return _raw16(0xDA, size) if size < 65536 else _raw32(0xDB, size)


def _string_headers() -> list[tuple[int, int]]:
    """Return, by the first byte of a string, the size of its header and of the length field in it, in bytes."""
    headers = [(0, 0)] * 256
    headers[0xA0:0xC0] = [(1, 0)] * 32
    for first, size_bytes in ((0xD9, 1), (0xDA, 2), (0xDB, 4), (0xC4, 1), (0xC5, 2), (0xC6, 4)):
        headers[first] = (1 + size_bytes, size_bytes)
    return headers


_STRING_HEADERS = _string_headers()


def head_bytes(body: bytes) -> int:
    """Return the size of the header if the body is exactly one MessagePack string, else 0."""
    skip, size_bytes = _STRING_HEADERS[body[0]] if body else (0, 0)
    if not skip:
        return 0
    size = int.from_bytes(body[1:skip], "big") if size_bytes else body[0] & 0x1F
    return skip if skip + size == len(body) else 0


def raw_head_bytes(body: bytes) -> int:
    """Return the size of the header if the body is the output of `pack_raw`, else 0."""
    if not body:
        return 0
    first, size = body[0], len(body)
    if first == 0xDA:
        return 3 if size >= 35 and int.from_bytes(body[1:3], "big") == size - 3 else 0
    if 0xA0 <= first < 0xC0:
        return 1 if first & 0x1F == size - 1 else 0
    return 5 if first == 0xDB and size >= 65541 and int.from_bytes(body[1:5], "big") == size - 5 else 0


def unwrapped(body: bytes) -> bytes:
    """Return the content of a body that is exactly one MessagePack string, old or new, and any other body unchanged.

    A client can declare any HTTP body as MessagePack, so the body may be malformed.
    """
    skip = head_bytes(body)
    return body[skip:] if skip else body


def plain_body(content_type: bytes | None, body: bytes) -> bytes:
    """Return a body for readers without content types: a string pushed over MessagePack-RPC becomes its bytes."""
    return unwrapped(body) if content_type == CONTENT_TYPE else body


_AS_DATETIME = 3
"""Timestamps, also an extension type, bypass `_refuse_extension`; decoded as datetime, they fail in `pack`."""


def _refuse_extension(code: int, _data: bytes) -> NoReturn:
    raise UnsupportedExtensionError(f"MessagePack extension type {code} is not supported")


def make_unpacker(buffer_bytes_max: int) -> msgpack.Unpacker:
    """Create a streaming decoder for the old and the new types that returns every string as bytes.

    Args:
        buffer_bytes_max: largest unfinished object, in bytes; beyond it, the decoder raises `msgpack.BufferFull`.
    """
    return msgpack.Unpacker(
        raw=True,
        strict_map_key=False,
        ext_hook=_refuse_extension,
        timestamp=_AS_DATETIME,
        max_buffer_size=buffer_bytes_max,
    )


def unpack(data: bytes | bytearray) -> Any:
    """Decode one complete value; every string becomes bytes.

    Raises:
        ValueError: the data is not exactly one MessagePack value.
    """
    try:
        return msgpack.unpackb(data, raw=True, strict_map_key=False, ext_hook=_refuse_extension, timestamp=_AS_DATETIME)
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as exc:
        raise ValueError(f"not a MessagePack value: {exc}") from exc
