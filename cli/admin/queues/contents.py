"""Bodies of messages for people: text, JSON or hexadecimal, whatever protocol pushed them."""

from __future__ import annotations

import base64
import datetime as dt
import json
from enum import StrEnum
from typing import Any, Final

from lmqcluster.wire import legacy_msgpack

__all__ = ["Show", "content_bytes", "content_json", "format_body", "json_value"]

HEX_COLUMNS: Final = 16
_MSGPACK: Final = legacy_msgpack.CONTENT_TYPE.decode()
# Characters that may move the cursor or change the terminal; line feed and tab are kept.
_CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}


class Show(StrEnum):
    """Formats of a message body."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"
    HEX = "hex"


def content_json(data: bytes) -> object:
    """Return bytes in the form of the API's JSON: a string, or Base64 if they are not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def content_bytes(content: Any) -> bytes:
    """Return the bytes of a content in the API's JSON."""
    return base64.b64decode(content["base64"]) if isinstance(content, dict) else str(content).encode()


def json_value(value: object) -> object:
    """Return a MessagePack value as JSON can express it; bytes become text or Base64."""
    if isinstance(value, bytes):
        return content_json(value)
    if isinstance(value, dict):
        return {_key(key): json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    # A MessagePack timestamp.
    return value.isoformat() if isinstance(value, dt.datetime) else value


def _key(key: object) -> str:
    shown_key = json_value(key)
    return shown_key if isinstance(shown_key, str) else json.dumps(shown_key, ensure_ascii=False)


def format_body(
    data: bytes, content_type: str | None, show: Show, *, for_terminal: bool = False, dump: bool = True
) -> str:
    """Return a body for people; one that does not fit the format is shown in hexadecimal, so that nothing is hidden.

    Args:
        data: the body as stored.
        content_type: its type; a MessagePack body is decoded, because RPC clients push in that form.
        show: the format.
        for_terminal: whether to escape control characters.
        dump: whether hexadecimal has lines with offsets, instead of one line.
    """
    text = None if show is Show.HEX else _as_text(data, content_type, show)
    if text is None:
        return _hex_dump(data) if dump else data.hex(" ")
    return text.translate(_CONTROLS) if for_terminal else text


def _as_text(data: bytes, content_type: str | None, show: Show) -> str | None:
    try:
        value: Any = legacy_msgpack.unpack(data) if content_type == _MSGPACK else data
        if not isinstance(value, bytes):
            return json.dumps(json_value(value), ensure_ascii=False, indent=2 if show is Show.JSON else None)
        text = value.decode()
        return json.dumps(json.loads(text), ensure_ascii=False, indent=2) if show is Show.JSON else text
    except ValueError:
        return None


def _hex_dump(data: bytes) -> str:
    """Return lines of sixteen bytes: offset, hexadecimal, printable ASCII."""
    lines = []
    for start in range(0, len(data), HEX_COLUMNS):
        part = data[start : start + HEX_COLUMNS]
        plain = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{start:08x}  {part.hex(' '):<{HEX_COLUMNS * 3 - 1}}  {plain}")
    return "\n".join(lines)
