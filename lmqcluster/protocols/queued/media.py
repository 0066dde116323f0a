"""JSON and MessagePack in requests, answers and errors, as queued's clients expect them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgpack
from aiohttp import hdrs

from ...ports import VALUE_BYTES
from ...wire.errors import LmqError
from ...wire.limits import REQUEST_BYTES_MAX
from ..http.server.replies.common_replies import RETRY_AFTER
from ..http.server.replies.reply import JSON, Reply
from ..http.server.requests.json_body import decode_json
from ..http.server.requests.values import VALUES_MAX, WINDOW_BYTES, check_json, check_msgpack

if TYPE_CHECKING:
    from ..http.server.requests.request import Request

__all__ = ["NOTHING", "Media", "QueuedError", "error_reply", "read_object", "reply_media"]

_MSGPACK_TYPE: Final = re.compile(r"application/(?:x-)?msgpack|application/[^/;\s]+\+msgpack")
_MSGPACK_HEAD: Final = b"content-type: application/msgpack\r\n"
NOTHING: Final = None
"""Answer without a result: nil in MessagePack, an empty object in JSON."""


class Media(NamedTuple):
    """Format of an answer."""

    is_msgpack: bool

    @property
    def head(self) -> bytes:
        """Return the header line with the content type."""
        return _MSGPACK_HEAD if self.is_msgpack else JSON

    def contents(self, data: bytes) -> dict[str, Any]:
        """Return the member of a message with its contents."""
        if self.is_msgpack:
            return {"contents": data}
        try:
            return {"contents": data.decode()}
        except UnicodeDecodeError:
            return {"contents_base64": _base64(data)}

    def text(self, data: bytes) -> Any:
        """Return a name, which is text by convention."""
        return data.decode("utf-8", "replace")

    def reply(self, value: Any, status: int = 200, head: bytes = b"", *, close: bool = False) -> Reply:
        """Return an answer with a value."""
        if self.is_msgpack:
            return Reply(status, self.head + head, msgpack.packb(value, use_bin_type=True), close=close)
        value = {} if value is NOTHING else value
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        return Reply(status, self.head + head, text.encode("utf-8", "replace"), close=close)


def _base64(data: bytes) -> str:
    import base64  # noqa: PLC0415 - contents that are no text are rare in JSON

    return base64.b64encode(data).decode("ascii")


def _is_msgpack(media_type: str) -> bool:
    return _MSGPACK_TYPE.fullmatch(media_type) is not None


def reply_media(request: Request) -> Media:
    """Return the first format that ``Accept`` names; without one, the format of the request's body; otherwise JSON."""
    for entry in request.headers.get(hdrs.ACCEPT, "").lower().split(","):
        media_type = entry.partition(";")[0].strip()
        if media_type == "application/json":
            return Media(False)
        if _is_msgpack(media_type):
            return Media(True)
    return Media(_is_msgpack(request.media_type()))


async def read_object(request: Request) -> dict[str, Any]:
    """Return the body of a request, an object, decoded by its content type; an unknown content type counts as JSON.

    Raises:
        LmqError: ``bad_request``, ``too_large``, ``overloaded``.
    """
    is_msgpack = _is_msgpack(request.media_type())
    body = await request.read_body(REQUEST_BYTES_MAX)
    if len(body) > WINDOW_BYTES:
        await (check_msgpack if is_msgpack else check_json)(body)
        request.hold(3 * len(body) + VALUE_BYTES * VALUES_MAX)
    value = _unpacked(body) if is_msgpack else await decode_json(body)
    if not isinstance(value, dict):
        raise LmqError("bad_request", "the body must be an object")
    return value


def _unpacked(body: bytes) -> Any:
    try:
        return msgpack.unpackb(body, raw=False, unicode_errors="surrogateescape", strict_map_key=False)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as exc:
        raise LmqError("bad_request", f"the body is not valid MessagePack: {exc}") from exc


class QueuedError(LmqError):
    """A refusal with an error name of queued.

    Attributes:
        status: HTTP status.
        name: the error name.
    """

    def __init__(self, status: int, name: str) -> None:
        super().__init__("bad_request", name)
        self.status = status
        self.name = name


_NAMES: Final = {
    "unauthorized": "NotAuthorized",
    "forbidden": "NotAuthorized",
    "queue_not_found": "QueueNotFound",
    "throttled": "Throttled",
    "suspended": "Suspended",
}


def error_reply(request: Request, error: LmqError) -> Reply:
    """Return an error in the format that the request asks for. Errors that queued has no name for include details."""
    media = reply_media(request)
    if isinstance(error, QueuedError):
        return media.reply({"error": error.name, "error_details": None}, error.status)
    name, status = _NAMES.get(error.code), error.spec.http
    if name == "NotAuthorized":
        status = 401
    details = error.message if name is None else None
    head = RETRY_AFTER if status == 503 else b""
    shown = name or error.code.title().replace("_", "")
    return media.reply({"error": shown, "error_details": details}, status, head, close=error.code == "too_large")
