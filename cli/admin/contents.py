"""Contents of messages, to and from people: text, JSON or hexadecimal, whatever protocol they were pushed over."""

from __future__ import annotations

import base64
import datetime as dt
import json
from enum import StrEnum
from typing import Any, Final

from lmqcluster.wire import legacy_msgpack

__all__ = ["Show", "content_bytes", "content_json", "json_value", "shown"]

HEX_COLUMNS: Final = 16
_MSGPACK: Final = legacy_msgpack.CONTENT_TYPE.decode()
# What may move the cursor or change the terminal; line feed and tab may stay.
_CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}


class Show(StrEnum):
    """How to show a content."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"
    HEX = "hex"


def content_json(data: bytes) -> object:
    """Bytes as the API writes them in JSON: a string, or Base64 where they are not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def content_bytes(content: Any) -> bytes:
    """The bytes that the API means by a content in JSON."""
    return base64.b64decode(content["base64"]) if isinstance(content, dict) else str(content).encode()


def json_value(value: object) -> object:
    """A value from MessagePack as one that JSON can express; bytes become text or Base64."""
    if isinstance(value, bytes):
        return content_json(value)
    if isinstance(value, dict):
        return {_key(key): json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    # A timestamp of MessagePack.
    return value.isoformat() if isinstance(value, dt.datetime) else value


def _key(key: object) -> str:
    shown_key = json_value(key)
    return shown_key if isinstance(shown_key, str) else json.dumps(shown_key, ensure_ascii=False)


def shown(data: bytes, content_type: str | None, show: Show, *, for_terminal: bool = False, dump: bool = True) -> str:
    """A content for people. What cannot be shown as it was asked for is shown in hexadecimal, so that nothing is hidden.

    Args:
        data: the body as it is stored.
        content_type: its type; a body of MessagePack is decoded, because that is how RPC clients push.
        show: the form.
        for_terminal: whether control characters must not come through.
        dump: whether hexadecimal comes in lines with offsets, not in one line.
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
    """Offset, bytes, and what of them is printable ASCII, sixteen bytes a line."""
    lines = []
    for start in range(0, len(data), HEX_COLUMNS):
        part = data[start : start + HEX_COLUMNS]
        plain = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{start:08x}  {part.hex(' '):<{HEX_COLUMNS * 3 - 1}}  {plain}")
    return "\n".join(lines)
