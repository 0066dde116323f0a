"""Answers as text; long ones in pieces, so that other clients get their turn while one is made."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

__all__ = ["LONG_CHARACTERS", "TURN_BYTES", "Output", "assembled", "json_bytes", "json_text"]

Output = dict[str, Any]
"""The members of an answer by the names of the JSON protocol."""
LONG_CHARACTERS: Final = 32 * 1024
"""Most characters that are encoded at once."""
_VALUE_CHARACTERS: Final = 16
"""Characters of a text that take as long to encode as the rest of a value."""
TURN_BYTES: Final = 64 * 1024
"""Most bytes that are made in one turn of the event loop."""
_encode: Final = json.JSONEncoder(ensure_ascii=False).encode


async def json_bytes(value: Any) -> bytes:
    """Return the JSON of a value; other work gets its turn while a long one is made."""
    if _length(value) <= LONG_CHARACTERS:
        return _encode(value).encode()
    return await assembled(json_text(value))


async def assembled(pieces: Iterable[str]) -> bytes:
    """Return the UTF-8 of all pieces; other work gets its turn between them."""
    encoded: list[bytes] = []
    since_turn = 0
    for piece in pieces:
        data = piece.encode()
        encoded.append(data)
        since_turn += len(data)
        if since_turn > TURN_BYTES:
            since_turn = 0
            await asyncio.sleep(0)
    return b"".join(encoded)


def json_text(value: Any) -> Iterator[str]:
    """Yield the JSON of a value in pieces."""
    if _length(value) <= LONG_CHARACTERS:
        yield _encode(value)
    elif isinstance(value, str):
        yield '"'
        for start in range(0, len(value), LONG_CHARACTERS):
            yield _encode(value[start : start + LONG_CHARACTERS])[1:-1]
        yield '"'
    elif isinstance(value, dict):
        mark = "{"
        for name, member in value.items():
            yield f"{mark}{_encode(name)}:"
            yield from json_text(member)
            mark = ","
        yield "}"
    else:
        mark = "["
        for item in value:
            yield mark
            yield from json_text(item)
            mark = ","
        yield "]"


def _length(value: Any) -> int:
    """Return the approximate number of characters of a value, without its names; of a long value only that of a part."""
    if isinstance(value, str):
        return _VALUE_CHARACTERS + len(value)
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return _VALUE_CHARACTERS
    size = _VALUE_CHARACTERS
    for one in value:
        size += _VALUE_CHARACTERS + len(one) if isinstance(one, str) else _length(one)
        if size > LONG_CHARACTERS:
            break
    return size
