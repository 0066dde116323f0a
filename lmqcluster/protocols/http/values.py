"""How many values a body may hold: counted in slices before any is built, as one byte may become a hundred in memory."""

from __future__ import annotations

import asyncio
import re
from typing import Final

from ...wire.errors import LmqError
from ...wire.values import Scan, TooManyValuesError

__all__ = ["VALUES_MAX", "WINDOW_BYTES", "check_json", "check_msgpack"]

VALUES_MAX: Final = 250_000
"""Each element of an array and each name and value of an object counts as one: 25 for each message of the largest batch."""
WINDOW_BYTES: Final = 64 * 1024
_ESCAPE: Final = re.compile(rb"\\.", re.DOTALL)


def _too_many() -> LmqError:
    return LmqError("too_large", f"a body may hold at most {VALUES_MAX} values; send less in one request")


async def check_json(body: bytes) -> None:
    """Refuse a JSON body with too many values: before each but the first stands a mark that is in no string.

    Raises:
        LmqError: ``too_large``.
    """
    marks, at, in_string = 0, 0, 0
    while at < len(body):
        stop = at + WINDOW_BYTES
        while body[stop - 1 : stop] == b"\\":
            stop += 1
        parts = _ESCAPE.sub(b"", body[at:stop]).split(b'"')
        outside = b"".join(parts[in_string::2])
        marks += sum(map(outside.count, (b",", b":", b"[", b"{")))
        if marks > VALUES_MAX:
            raise _too_many()
        in_string ^= (len(parts) - 1) & 1
        at = stop
        await asyncio.sleep(0)


async def check_msgpack(body: bytes) -> None:
    """Refuse a MessagePack body with too many values.

    Raises:
        LmqError: ``too_large``.
    """
    scan = Scan(VALUES_MAX)
    for start in range(0, len(body), WINDOW_BYTES):
        try:
            if scan.feed(body[start : start + WINDOW_BYTES]) >= 0:
                return
        except TooManyValuesError as exc:
            raise _too_many() from exc
        await asyncio.sleep(0)
