"""Large messages between peers, sent in pieces so that heartbeats, answers and small messages can pass between them.

A message for which `messages.bulk_of` returns bytes is sent as ``part`` frames with these bytes, and then as
``whole``: the message without them. Large messages keep their order; all others overtake them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from ...wire.limits import FRAME_BYTES_MAX
from . import messages
from .chunked_copy import ChunkedCopy
from .frames import FrameStream

__all__ = ["BulkIntake", "BulkSender"]

PART_BYTES = 128 * 1024
PARTS_PER_TURN = 4
"""Other tasks of the event loop run after this many pieces, even if the network accepts more."""


def _nothing(_envelope: bytes, _bulk: bytes) -> None:
    """Do nothing: the connection is gone."""


class BulkSender:
    """Queue of large messages of one connection, sent piece by piece whenever the network accepts more."""

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
        """Send the queue behind the frames already written."""
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
    """Pieces received on one connection.

    Args:
        whole: called with a message without its bulk, and the bulk, when it is complete; in a later turn of the event loop.
    """

    def __init__(self, whole: Callable[[bytes, bytes], None]) -> None:
        self._whole = whole
        self._parts: list[bytes] = []
        self._size = 0
        self._joins = ChunkedCopy()

    def take(self, message: dict[str, Any]) -> bool:
        """Take a message if it is a piece, or the message that the pieces belong to; return whether it is.

        Raises:
            FrameError: there are more pieces than a message may have.
        """
        if message["type"] == "part":
            self._size += len(message["data"])
            if self._size > FRAME_BYTES_MAX:
                raise messages.FrameError(f"a message in pieces is over the limit of {FRAME_BYTES_MAX} bytes")
            self._parts.append(message["data"])
            return True
        if message["type"] == "whole":
            envelope, parts = message["message"], self._parts
            self._parts, self._size = [], 0
            self._joins.join(parts, lambda stream: self._whole(envelope, stream.getvalue()))
            return True
        return False

    def close(self) -> None:
        """Discard incomplete messages, as the connection is gone."""
        self._parts.clear()
        self._joins.close()
        self._whole = _nothing
