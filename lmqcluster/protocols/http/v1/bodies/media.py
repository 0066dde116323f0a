"""JSON and MessagePack for the ``/v1`` routes, in both directions.

A content is bytes. MessagePack carries it as bin (str is accepted too); JSON as a string if it is UTF-8, otherwise as
``{"base64": "..."}``. The same applies to queue names.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, NamedTuple

import msgpack
from aiohttp import hdrs

from .....ports import VALUE_BYTES
from .....wire.attributes import unpack_attributes
from .....wire.errors import LmqError
from ...server.replies.long_content import LONG_BYTES, LongContent
from ...server.replies.problem import HttpRefusalError
from ...server.replies.reply import JSON, Reply
from ...server.requests.json_body import decode_json
from ...server.requests.request import Request
from ...server.requests.values import VALUES_MAX, WINDOW_BYTES, check_json, check_msgpack

__all__ = ["Media", "content_of", "read_value", "reply_media"]

_JSON_TYPES = frozenset(("application/json", ""))
_MSGPACK_TYPES = frozenset(("application/x-msgpack", "application/msgpack", "application/vnd.msgpack"))
_MSGPACK_HEAD = b"content-type: application/x-msgpack\r\n"


class Media(NamedTuple):
    """Format of an answer."""

    is_msgpack: bool

    @property
    def head(self) -> bytes:
        """Return the header line with the content type."""
        return _MSGPACK_HEAD if self.is_msgpack else JSON

    def content(self, data: bytes) -> Any:
        """Return a message body in this format. Only `reply_with_list` can encode a `LongContent`."""
        if self.is_msgpack:
            return data
        return LongContent(data) if len(data) > LONG_BYTES else _json_bytes(data)

    def attributes(self, packed: bytes) -> dict[str, Any]:
        """Return the attributes of a message in this format."""
        attributes = unpack_attributes(packed)
        if self.is_msgpack:
            return attributes
        return {name: _base64(value) if isinstance(value, bytes) else value for name, value in attributes.items()}

    def name(self, data: bytes) -> Any:
        """Return a queue name, or another byte string that is text by convention."""
        if not self.is_msgpack:
            return _json_bytes(data)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return data

    def reply(self, value: Any, status: int = 200) -> Reply:
        """Return the answer with a value."""
        if self.is_msgpack:
            return Reply(status, self.head, msgpack.packb(value, use_bin_type=True))
        return Reply(status, self.head, json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


def _json_bytes(data: bytes) -> str | dict[str, str]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _base64(data)


def _base64(data: bytes) -> dict[str, str]:
    return {"base64": base64.b64encode(data).decode("ascii")}


def reply_media(request: Request) -> Media:
    """Return the format that ``Accept`` prefers; if it names neither, the format of the request's body.

    A malformed ``Accept`` is ignored rather than refused.
    """
    best, found = 0.0, None
    for entry in request.headers.get(hdrs.ACCEPT, "").lower().split(","):
        media_type, *attributes = (part.strip() for part in entry.split(";"))
        is_msgpack = media_type in _MSGPACK_TYPES
        quality = _quality(attributes)
        if (is_msgpack or media_type == "application/json") and quality > best:
            best, found = quality, Media(is_msgpack)
    return found or Media(request.media_type() in _MSGPACK_TYPES)


def _quality(attributes: list[str]) -> float:
    for attribute in attributes:
        name, _equals, value = attribute.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


async def read_value(request: Request, bytes_max: int) -> Any:
    """Return the body of a request, decoded by its content type; None for an empty body.

    Raises:
        LmqError: ``bad_request`` if it is malformed, `HttpRefusalError` 415 for another content type.
    """
    media_type = request.media_type()
    if media_type not in _JSON_TYPES and media_type not in _MSGPACK_TYPES:
        detail = f"bodies are application/json or application/x-msgpack, not {media_type[:80]!r}"
        raise HttpRefusalError(415, "unsupported_media_type", detail)
    body = await request.read_body(bytes_max)
    if not body:
        return None
    if len(body) > WINDOW_BYTES:
        await (check_json if media_type in _JSON_TYPES else check_msgpack)(body)
        request.hold(3 * len(body) + VALUE_BYTES * VALUES_MAX)
    if media_type in _JSON_TYPES:
        return await decode_json(body)
    try:
        return msgpack.unpackb(body, raw=False, unicode_errors="surrogateescape", strict_map_key=False)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as exc:
        raise LmqError("bad_request", f"the body is not valid MessagePack: {exc}") from exc


def content_of(value: Any, what: str = "content") -> bytes:
    """Return the bytes of a string, of bin, or of ``{"base64": ...}``.

    Raises:
        LmqError: ``bad_request`` for anything else.
    """
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        try:
            return value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as exc:
            raise LmqError("bad_request", f"{what} holds half of a surrogate pair, which has no UTF-8 form") from exc
    if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], (str, bytes)):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, ValueError) as exc:
            raise LmqError("bad_request", f"{what}: the value of base64 is not Base64: {exc}") from exc
    raise LmqError("bad_request", f'{what} must be a string or {{"base64": "..."}}, not {type(value).__name__}')
