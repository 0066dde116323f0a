"""Limit on the values of a body. Values are counted in slices before any is built, because one byte may become 100 in memory."""

from __future__ import annotations

import asyncio
from typing import Final

from .....wire.errors import LmqError
from .....wire.values import Scan, TooManyValuesError

__all__ = ["VALUES_MAX", "WINDOW_BYTES", "check_json", "check_msgpack"]

VALUES_MAX: Final = 250_000
"""Maximum number of array elements, names and values of objects together: 25 for each message of the largest batch."""
WINDOW_BYTES: Final = 64 * 1024


def _too_many() -> LmqError:
    return LmqError("too_large", f"a body may hold at most {VALUES_MAX} values; send less in one request")


async def check_json(body: bytes) -> None:
    """Refuse a JSON body with too many values. Each value except the first follows a mark outside of strings.

    Raises:
        LmqError: ``too_large``.
    """
    marks, at, in_string = 0, 0, 0
    while at < len(body):
        window = body[at : at + WINDOW_BYTES]
        if (len(window) - len(window.rstrip(b"\\"))) & 1:
            # The character after the last backslash belongs to the escape.
            window = body[at : at + WINDOW_BYTES + 1]
        at += len(window)
        if b"\\" in window:
            # Pairs of backslashes are removed first; then a backslash before a quote escapes it.
            window = window.replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = window.split(b'"')
        outside = b"".join(parts[in_string::2])
        marks += sum(map(outside.count, (b",", b":", b"[", b"{")))
        if marks > VALUES_MAX:
            raise _too_many()
        in_string ^= (len(parts) - 1) & 1
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
