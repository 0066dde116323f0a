"""Large messages between peers travel in pieces, so that heartbeats, answers and small messages get their turn between them.

A message of which `messages.bulk_of` tells something is sent as ``part`` frames with that, and then as ``whole``: the message
without it. Large messages keep their order among themselves; all others overtake them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from ..wire.limits import FRAME_BYTES_MAX
from . import messages
from .frames import FrameStream

__all__ = ["BulkIntake", "BulkSender"]

PART_BYTES = 128 * 1024
PARTS_PER_TURN = 4
"""Others get their turn after so many, also if the network takes everything at once."""


class BulkSender:
    """What waits to be sent on one connection, piece by piece, whenever the network takes more."""

    def __init__(self, stream: FrameStream) -> None:
        self._stream = stream
        self._waiting: deque[tuple[memoryview, bytes]] = deque()
        self._sent = 0
        self._scheduled = False
        stream.on_writable = self._go_on

    def send(self, message: dict[str, Any], bulk: bytes) -> None:
        """Queue a message, of which `bulk` is large."""
        self._waiting.append((memoryview(bulk), messages.envelope(message)))

    def flush(self) -> None:
        """Send what is queued behind what has been written."""
        if self._waiting and not self._scheduled:
            self._go_on()

    def _go_on(self) -> None:
        self._scheduled = False
        for _ in range(PARTS_PER_TURN):
            if not self._waiting or not self._stream.is_writable:
                return
            self._send_next()
        if self._waiting:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _send_next(self) -> None:
        bulk, envelope = self._waiting[0]
        if self._sent < len(bulk):
            part = bytes(bulk[self._sent : self._sent + PART_BYTES])
            self._sent += len(part)
            self._stream.write(messages.encode({"type": "part", "data": part}))
        else:
            self._waiting.popleft()
            self._sent = 0
            self._stream.write(envelope)


class BulkIntake:
    """The pieces that have come on one connection of the message under way."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def take(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """Take a message as it came; returns it unless it is a piece, a large one with all its pieces.

        Raises:
            FrameError: there are more pieces than a message may have, or what they belong to is no such message.
        """
        if message["type"] == "part":
            self._size += len(message["data"])
            if self._size > FRAME_BYTES_MAX:
                raise messages.FrameError(f"a message in pieces is over the limit of {FRAME_BYTES_MAX} bytes")
            self._parts.append(message["data"])
            return None
        if message["type"] == "whole":
            bulk = b"".join(self._parts)
            self._parts, self._size = [], 0
            return messages.decode(message["message"], bulk)
        return message
