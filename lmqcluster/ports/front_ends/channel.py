"""The channel between the node's process and a front-end process: a Unix socket with a frame for each event-loop turn.

A frame is a MessagePack array of operation, connection and value, repeated. Operations on one connection keep their order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final

import msgpack

__all__ = ["READ_REPORT_BYTES", "WINDOW_BYTES", "WRITE_REPORT_BYTES", "Channel", "Operation"]

WINDOW_BYTES: Final = 256 * 1024
"""Bytes of one connection that may be on their way in each direction, so that no client fills the memory of a process."""
READ_REPORT_BYTES: Final = 64 * 1024
"""The node's process reports that it has taken this many bytes from a client."""
WRITE_REPORT_BYTES: Final = 4 * 1024
"""A front end reports that a client's socket has taken this many bytes. It is less than any limit on unread answers."""
FRAME_BYTES: Final = 256 * 1024
"""A frame with this much data is sent before the turn ends."""
FULL_BYTES: Final = 4 * 1024 * 1024
"""Unsent bytes above which a front end stops reading from clients."""


class Operation(IntEnum):
    """The operations on a connection. The value is None unless stated."""

    # From a front end.
    OPEN = 0  # accepted; value: number of the port, address of the client
    UP = 1  # bytes can follow; after the handshake if there is TLS
    FAILED = 2  # the connection could not be opened; value: why
    DATA = 3  # value: bytes from the client
    END = 4  # the client has closed its sending side
    LOST = 5  # the connection has ended
    WRITTEN = 6  # value: how many more bytes the socket has taken
    ACKNOWLEDGED = 7  # value: whether the client's host has acknowledged everything written
    REPEATS = 8  # requests that repeat earlier ones; the connection is a group, value: connections, bodies
    # To a front end.
    ADMIT = 9  # the connection is counted; read from it
    WRITE = 10  # value: bytes for the client
    WRITE_END = 11  # close the sending side
    CLOSE = 12  # close the connection after everything is written
    ABORT = 13  # end the connection now
    PAUSE = 14  # stop reading
    RESUME = 15  # read again
    TAKEN = 16  # value: how many more bytes the node has taken
    ACKNOWLEDGE = 17  # report when the client's host has acknowledged everything written
    REPEAT = 18  # the next request may repeat this one; value: group, pattern
    RETIRE = 19  # accept no more connections; the connection is the number of a port
    RELOAD = 20  # read the certificate again; the connection is 0
    ANSWERS = 21  # to repeated requests; the connection is 0, value: connections, bytes before and after each tag
    IN_FULL = 22  # send repeated requests as data instead; the connection is 0, value: connections
    # Both ways.
    PING = 23  # send this back; the connection is 0


class Channel(asyncio.Protocol):
    """One end of a channel.

    Args:
        receive: called with each frame.
        lost: called when the other process has ended.
        drained: called when the channel is not full any more.

    Attributes:
        is_full: whether the other process takes less than is sent.
    """

    def __init__(
        self,
        receive: Callable[[list[Any]], None],
        lost: Callable[[], None],
        drained: Callable[[], None] = lambda: None,
    ) -> None:
        self._receive = receive
        self._lost = lost
        self._drained = drained
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        # The other process is trusted, so frames are not limited.
        self._unpacker = msgpack.Unpacker(raw=True, max_buffer_size=0)
        self._frame: list[Any] = []
        self._frame_bytes = 0
        # The repeated requests in the frame, by group.
        self._repeats: dict[int, tuple[list[int], list[Any]]] = {}
        self.is_full = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the channel."""
        self._transport = transport  # type: ignore[assignment]
        self._transport.set_write_buffer_limits(high=FULL_BYTES)  # type: ignore[union-attr]

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Report the end of the other process."""
        self._transport = None
        self._lost()

    def send(self, operation: int, connection: int, value: Any = None) -> None:
        """Send an operation at the end of this turn of the event loop."""
        frame = self._frame
        if not frame:
            self._loop.call_soon(self._flush)
        frame += (operation, connection, value)

    def send_data(self, operation: int, connection: int, data: bytes) -> None:
        """Send an operation with bytes like `send`; if there are many, before the turn ends."""
        if self._repeats:
            # Later repeats of this connection must not join an operation before this one.
            self._repeats = {}
        self.send(operation, connection, data)
        self._frame_bytes += len(data)
        if self._frame_bytes > FRAME_BYTES:
            self._flush()

    def send_repeat(self, group: int, connection: int, body: object, size_bytes: int) -> None:
        """Send a repeated request of this size like `send_data`; those of a group are one operation."""
        repeats = self._repeats.get(group)
        if repeats is None:
            repeats = self._repeats[group] = [], []
            self.send(Operation.REPEATS, group, repeats)
        connections, bodies = repeats
        connections.append(connection)
        bodies.append(body)
        self._frame_bytes += size_bytes
        if self._frame_bytes > FRAME_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._repeats = {}
        frame, self._frame, self._frame_bytes = self._frame, [], 0
        if frame and self._transport is not None:
            self._transport.write(msgpack.packb(frame))

    def data_received(self, data: bytes) -> None:
        """Take bytes from the other process."""
        self._unpacker.feed(data)
        for frame in self._unpacker:
            self._receive(frame)

    def pause_writing(self) -> None:
        """Note that the other process is slow."""
        self.is_full = True

    def resume_writing(self) -> None:
        """Note that the other process has caught up."""
        self.is_full = False
        self._drained()

    def close(self) -> None:
        """Send what is left and close the channel."""
        self._flush()
        if self._transport is not None:
            self._transport.close()
