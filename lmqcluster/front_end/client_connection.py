"""The connection of a client in a front-end process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from ..ports import HALF_CLOSED_S, keep_alive, may_be_half_closed, wait_for_acknowledgement, wait_for_reset
from ..ports.front_ends.channel import WINDOW_BYTES, WRITE_REPORT_BYTES, Channel, Operation

__all__ = ["ClientConnection"]

_DATA: Final = int(Operation.DATA)


class ClientConnection(asyncio.Protocol):
    """The socket of a client. The node's process decides what happens with it.

    Args:
        channel: leads to the node.
        number: the number of the connection.
        made: called with the connection when it can be used.
        lost: called with its number when it has ended.
    """

    def __init__(
        self,
        channel: Channel,
        number: int,
        made: Callable[[int, ClientConnection], None],
        lost: Callable[[int], None],
    ) -> None:
        self._channel = channel
        self._number = number
        self._made = made
        self._lost = lost
        self._transport: asyncio.Transport
        self._loop = asyncio.get_running_loop()
        # Reasons not to read: the node's wish, its window, and the channel.
        self._is_paused = False
        self._untaken_bytes = 0
        self._is_held = False
        self._is_reading = True
        self._written_bytes = 0
        self._is_full = False
        self._tasks: set[asyncio.Task[None]] = set()

    # --- the client ---------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Report that the client can send."""
        self._transport = transport  # type: ignore[assignment]
        # So that `resume_writing` reports when everything is written.
        self._transport.set_write_buffer_limits(high=0)
        keep_alive(transport)
        self._made(self._number, self)
        self._channel.send(Operation.UP, self._number)

    def data_received(self, data: bytes) -> None:
        """Relay bytes."""
        self._channel.send_data(_DATA, self._number, data)
        self._untaken_bytes += len(data)
        if self._untaken_bytes > WINDOW_BYTES or self._channel.is_full:
            self._is_held = self._channel.is_full
            self._choose_reading()

    def eof_received(self) -> bool:
        """Report the end, and watch whether a client that waits for answers still exists."""
        self._channel.send(Operation.END, self._number)
        if not may_be_half_closed(self._transport):
            return False
        self._run(self._watch())
        return True

    async def _watch(self) -> None:
        await wait_for_reset(self._transport, HALF_CLOSED_S)
        self._transport.abort()

    def pause_writing(self) -> None:
        """Note that the socket has not taken everything."""
        self._is_full = True

    def resume_writing(self) -> None:
        """Report what the socket has taken."""
        self._is_full = False
        self._report()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Report the end of the connection."""
        self._lost(self._number)
        for task in self._tasks:
            task.cancel()
        self._channel.send(Operation.LOST, self._number)

    # --- the node -----------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send bytes to the client."""
        self._written_bytes += len(data)
        self._transport.write(data)
        if not self._is_full:
            self._report()

    def _report(self) -> None:
        if self._written_bytes >= WRITE_REPORT_BYTES:
            self._channel.send(Operation.WRITTEN, self._number, self._written_bytes)
            self._written_bytes = 0

    def write_end(self) -> None:
        """Close the sending side."""
        self._transport.write_eof()

    def close(self) -> None:
        """Close after everything is written."""
        self._transport.close()

    def abort(self) -> None:
        """End the connection now."""
        self._transport.abort()

    def set_paused(self, *, is_paused: bool) -> None:
        """Stop reading, or read again."""
        self._is_paused = is_paused
        self._choose_reading()

    def taken(self, size_bytes: int) -> None:
        """Note that the node has taken bytes."""
        self._untaken_bytes -= size_bytes
        self._choose_reading()

    def channel_drained(self) -> None:
        """Read again after the channel was full."""
        if self._is_held:
            self._is_held = False
            self._choose_reading()

    def _choose_reading(self) -> None:
        wanted = not (self._is_paused or self._is_held or self._untaken_bytes > WINDOW_BYTES)
        if wanted != self._is_reading and not self._transport.is_closing():
            self._is_reading = wanted
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def report_acknowledgement(self) -> None:
        """Report when the client's host has acknowledged everything written, or that it does not."""
        self._run(self._acknowledge())

    async def _acknowledge(self) -> None:
        self._channel.send(Operation.ACKNOWLEDGED, self._number, await wait_for_acknowledgement(self._transport))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
