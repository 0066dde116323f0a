"""Long message contents, converted to and from JSON in slices, so that other clients get their turn."""

from __future__ import annotations

import asyncio
import base64
import binascii
import codecs
import json
from typing import Any, Final

from .....wire.errors import LmqError

__all__ = ["LONG_BYTES", "LongContent", "base64_decoded", "json_pieces"]

LONG_BYTES: Final = 16 * 1024
"""Size in bytes above which a content is encoded separately."""
_SLICE_BYTES: Final = 96 * 1024
"""Size of a slice: whole Base64 groups of three bytes or four digits."""


class LongContent:
    """Placeholder for a content in a value that becomes JSON."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        """Take the content."""
        self.data = data


async def json_pieces(data: bytes) -> list[bytes]:
    """Return a content in JSON: a string if it is UTF-8, otherwise an object with Base64."""
    decoder = codecs.getincrementaldecoder("utf-8")("strict")
    pieces = [b'"']
    for start in range(0, len(data), _SLICE_BYTES):
        end = start + _SLICE_BYTES
        try:
            text = decoder.decode(data[start:end], end >= len(data))
        except UnicodeDecodeError:
            return await _base64_pieces(data)
        pieces.append(json.dumps(text, ensure_ascii=False)[1:-1].encode())
        await asyncio.sleep(0)
    return [*pieces, b'"']


async def _base64_pieces(data: bytes) -> list[bytes]:
    pieces = [b'{"base64":"']
    for start in range(0, len(data), _SLICE_BYTES):
        pieces.append(base64.b64encode(data[start : start + _SLICE_BYTES]))
        await asyncio.sleep(0)
    return [*pieces, b'"}']


async def base64_decoded(value: Any, what: str) -> Any:
    """Return the bytes of ``{"base64": ...}`` if it is long; any other value unchanged.

    Raises:
        LmqError: ``bad_request`` if it is not Base64.
    """
    if not isinstance(value, dict) or value.keys() != {"base64"}:
        return value
    digits = value["base64"]
    if not isinstance(digits, (str, bytes)) or len(digits) <= LONG_BYTES:
        return value
    pieces: list[bytes] = []
    for start in range(0, len(digits), _SLICE_BYTES):
        part = digits[start : start + _SLICE_BYTES]
        try:
            piece = base64.b64decode(part, validate=True)
        except (binascii.Error, ValueError) as exc:
            raise _not_base64(what, str(exc)) from exc
        if len(piece) * 4 != len(part) * 3 and start + len(part) < len(digits):
            raise _not_base64(what, "there is data behind the padding")
        pieces.append(piece)
        await asyncio.sleep(0)
    return b"".join(pieces)


def _not_base64(what: str, reason: str) -> LmqError:
    return LmqError("bad_request", f"{what}: the value of base64 is not Base64: {reason}")
