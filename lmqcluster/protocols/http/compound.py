"""The two layouts of a compound message's body: multipart, byte for byte LMQ's, and MessagePack."""

from __future__ import annotations

from collections.abc import Iterator

import msgpack

from ...node.service import Delivery, Part
from .parameters import CompoundFormat
from .reply import header_value

__all__ = ["OCTET_STREAM", "part_headers", "render"]

OCTET_STREAM = b"application/octet-stream"
"""Content type of what was pushed without one."""


def part_headers(part: Part) -> Iterator[tuple[bytes, bytes]]:
    """The stored metadata of one part: its content type first, then its preserved headers."""
    yield b"content-type", header_value(part.content_type or OCTET_STREAM)
    for name, value in part.headers:
        yield name, header_value(value)


def render(delivery: Delivery, layout: CompoundFormat) -> tuple[bytes, list[bytes]]:
    """The content type of a compound message and the pieces of its body."""
    if layout == "msgpack":
        return b"application/x-msgpack", [_msgpack(delivery)]
    return b"multipart/mixed; boundary=" + delivery.id, list(_multipart(delivery))


def _multipart(delivery: Delivery) -> Iterator[bytes]:
    separator = b"\r\n--" + delivery.id
    for part in delivery.parts:
        yield separator
        yield b"\r\n"
        for name, value in part_headers(part):
            yield name + b": " + value + b"\r\n"
        yield b"content-transfer-encoding: binary\r\n\r\n"
        yield part.content
    yield separator
    yield b"--\r\n"


def _msgpack(delivery: Delivery) -> bytes:
    parts = [
        ({_text(name): _text(value) for name, value in part_headers(part)}, part.content) for part in delivery.parts
    ]
    data: bytes = msgpack.packb(parts, use_bin_type=True, unicode_errors="surrogateescape")
    return data


def _text(data: bytes) -> str:
    # MessagePack str carries whatever bytes the header had.
    return data.decode("utf-8", "surrogateescape")
