"""Long answers in pieces, so that other clients get their turn while one is made."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

__all__ = ["LONG_CHARACTERS", "Output", "assembled", "json_text"]

Output = dict[str, Any]
"""The members of an answer by the names of the JSON protocol."""
LONG_CHARACTERS: Final = 32 * 1024
"""Most characters that are encoded at once."""
_TURN_BYTES: Final = 64 * 1024


async def assembled(pieces: Iterable[str]) -> bytes:
    """Return the UTF-8 of all pieces; other work gets its turn between them."""
    encoded: list[bytes] = []
    since_turn = 0
    for piece in pieces:
        data = piece.encode()
        encoded.append(data)
        since_turn += len(data)
        if since_turn > _TURN_BYTES:
            since_turn = 0
            await asyncio.sleep(0)
    return b"".join(encoded)


def json_text(value: Any) -> Iterator[str]:
    """Yield the JSON of a value in pieces."""
    if isinstance(value, str) and len(value) > LONG_CHARACTERS:
        yield '"'
        for start in range(0, len(value), LONG_CHARACTERS):
            yield json.dumps(value[start : start + LONG_CHARACTERS], ensure_ascii=False)[1:-1]
        yield '"'
    elif isinstance(value, dict) and value:
        mark = "{"
        for name, member in value.items():
            yield f"{mark}{json.dumps(name, ensure_ascii=False)}:"
            yield from json_text(member)
            mark = ","
        yield "}"
    elif isinstance(value, list) and value:
        mark = "["
        for item in value:
            yield mark
            yield from json_text(item)
            mark = ","
        yield "]"
    else:
        yield json.dumps(value, ensure_ascii=False)
