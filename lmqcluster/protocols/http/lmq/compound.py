"""Layouts of a compound message's body: multipart, like LMQ's except for its boundary, and MessagePack.

LMQ's boundary is the id of the delivery. A client that guesses an id could push a body that ends its part and begins
another, so each answer uses a random boundary.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import msgpack

from ....node.queues.pulls.deliveries import Delivery, Part
from ....wire.attributes import unpack_attributes
from ....wire.headers import is_header_name, is_reserved
from ..server.replies.common_replies import OCTET_STREAM
from ..server.replies.reply import header_value
from ..server.requests.target import has_control
from .parameters import CompoundFormat

__all__ = ["attribute_headers", "part_headers", "render"]

"""Content type of a message that was pushed without one."""
_BOUNDARY_BYTES = 16
VALUE_BYTES_MAX = 4096
"""Longest attribute that is a header of an answer."""
HEADERS_BYTES_MAX = 16 * 1024
"""Most bytes of attributes that are headers of one answer."""


def part_headers(part: Part) -> Iterator[tuple[bytes, bytes]]:
    """Yield the headers of one part: its content type first, then those of its attributes."""
    yield b"content-type", header_value(part.content_type or OCTET_STREAM)
    yield from attribute_headers(part.attributes)


def attribute_headers(attributes: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the packed attributes of a message that an answer carries as headers.

    Left out are reserved names, those that no header can have, values with control characters, and what would make the
    answer's head so large that clients refuse it.
    """
    size = 0
    for name, given in unpack_attributes(attributes).items():
        value = given if isinstance(given, bytes) else str(given).encode()
        if not is_header_name(name) or is_reserved(name) or has_control(value) or len(value) > VALUE_BYTES_MAX:
            continue
        size += len(name) + len(value)
        if size > HEADERS_BYTES_MAX:
            break
        yield name.encode(), value


def render(delivery: Delivery, layout: CompoundFormat) -> tuple[bytes, list[bytes]]:
    """Return the content type of a compound message and the pieces of its body."""
    if layout == "msgpack":
        return b"application/x-msgpack", [_msgpack(delivery)]
    boundary = _boundary(delivery)
    return b"multipart/mixed; boundary=" + boundary, list(_multipart(delivery, boundary))


def _boundary(delivery: Delivery) -> bytes:
    """Return a random boundary that occurs in none of the parts."""
    while True:
        boundary = secrets.token_hex(_BOUNDARY_BYTES).encode()
        if not any(boundary in part.content for part in delivery.parts):
            return boundary


def _multipart(delivery: Delivery, boundary: bytes) -> Iterator[bytes]:
    separator = b"\r\n--" + boundary
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
    # A MessagePack str carries the bytes of the header unchanged.
    return data.decode("utf-8", "surrogateescape")
