"""Layouts of a compound message's body: multipart, like LMQ's except for its boundary, and MessagePack.

LMQ's boundary is the id of the delivery. A client that guesses an id could push a body that ends its part and begins
another, so each answer uses a random boundary.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator

import msgpack

from ....node.queues.pulls.deliveries import Delivery, Part
from ....wire.attributes import unpack_attributes
from ....wire.headers import is_reserved
from ..server.replies.common_replies import OCTET_STREAM
from ..server.replies.reply import header_value
from ..server.requests.target import has_control
from .parameters import CompoundFormat

__all__ = ["IsHeader", "attribute_headers", "part_headers", "render"]

IsHeader = Callable[[bytes], bool]
"""Content type of a message that was pushed without one."""
_BOUNDARY_BYTES = 16


def part_headers(part: Part, is_header: IsHeader) -> Iterator[tuple[bytes, bytes]]:
    """Yield the headers of one part: its content type first, then those of its attributes."""
    yield b"content-type", header_value(part.content_type or OCTET_STREAM)
    yield from attribute_headers(part.attributes, is_header)


def attribute_headers(attributes: bytes, is_header: IsHeader) -> Iterator[tuple[bytes, bytes]]:
    """Yield the attributes that an answer carries as headers; a value that no header can have is left out.

    Args:
        attributes: packed.
        is_header: returns whether the attribute of a name is a header.
    """
    for text, given in unpack_attributes(attributes).items():
        name = text.encode()
        value = given if isinstance(given, bytes) else str(given).encode()
        if is_header(name) and not is_reserved(text) and not has_control(value):
            yield name, header_value(value)


def render(delivery: Delivery, layout: CompoundFormat, is_header: IsHeader) -> tuple[bytes, list[bytes]]:
    """Return the content type of a compound message and the pieces of its body."""
    if layout == "msgpack":
        return b"application/x-msgpack", [_msgpack(delivery, is_header)]
    boundary = _boundary(delivery)
    return b"multipart/mixed; boundary=" + boundary, list(_multipart(delivery, boundary, is_header))


def _boundary(delivery: Delivery) -> bytes:
    """Return a random boundary that occurs in none of the parts."""
    while True:
        boundary = secrets.token_hex(_BOUNDARY_BYTES).encode()
        if not any(boundary in part.content for part in delivery.parts):
            return boundary


def _multipart(delivery: Delivery, boundary: bytes, is_header: IsHeader) -> Iterator[bytes]:
    separator = b"\r\n--" + boundary
    for part in delivery.parts:
        yield separator
        yield b"\r\n"
        for name, value in part_headers(part, is_header):
            yield name + b": " + value + b"\r\n"
        yield b"content-transfer-encoding: binary\r\n\r\n"
        yield part.content
    yield separator
    yield b"--\r\n"


def _msgpack(delivery: Delivery, is_header: IsHeader) -> bytes:
    parts = [
        ({_text(name): _text(value) for name, value in part_headers(part, is_header)}, part.content)
        for part in delivery.parts
    ]
    data: bytes = msgpack.packb(parts, use_bin_type=True, unicode_errors="surrogateescape")
    return data


def _text(data: bytes) -> str:
    # A MessagePack str carries the bytes of the header unchanged.
    return data.decode("utf-8", "surrogateescape")
