"""The connection of a client in a front-end process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from ..ports import HALF_CLOSED_S, keep_alive, may_be_half_closed, wait_for_acknowledgement, wait_for_reset
from ..ports.front_ends.channel import WINDOW_BYTES, WRITE_REPORT_BYTES, Channel, Operation
from ..wire.repeats import REPEATED_BYTES_MAX, Pattern

__all__ = ["ClientConnection"]

_DATA: Final = int(Operation.DATA)
REPEAT_S: Final = 1.0
"""How long a connection repeats a request before the node sees it in full again, and so knows that the client is active."""


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
        # The request that may be repeated, its group, and until when.
        self._pattern: Pattern | None = None
        self._group = 0
        self._repeat_until_s = 0.0
        # The repetition without an answer, the tag of its answer, and what came after it: data, the end, and the node's wish
        # to close.
        self._repetition: bytes | None = None
        self._tag = b""
        self._later: list[bytes] = []
        self._ends_later = self._closes_later = False
        self._has_written_end = False

    # --- the client ---------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Report that the client can send."""
        self._transport = transport  # type: ignore[assignment]
        # So that `resume_writing` reports when everything is written. With a limit of 0, a TLS transport whose buffer is empty
        # pauses and resumes in turn, and may stay paused.
        self._transport.set_write_buffer_limits(high=1, low=0)
        keep_alive(transport)
        self._made(self._number, self)
        self._channel.send(Operation.UP, self._number)

    def data_received(self, data: bytes) -> None:
        """Relay bytes, unless they repeat a request."""
        if (self._pattern is not None or self._repetition is not None) and self._repeats(data):
            return
        self._channel.send_data(_DATA, self._number, data)
        self._untaken_bytes += len(data)
        if self._untaken_bytes > WINDOW_BYTES or self._channel.is_full:
            self._is_held = self._channel.is_full
            self._choose_reading()

    def _repeats(self, data: bytes) -> bool:
        """Return whether the bytes are a repetition, which is sent, or come after one, and are kept."""
        if self._repetition is not None:
            self._later.append(data)
            self._choose_reading()
            return True
        found = None
        # A client that does not read its answers gets no more of them here, because only the node bounds them.
        is_valid = len(data) <= REPEATED_BYTES_MAX and not self._is_full and self._loop.time() < self._repeat_until_s
        if is_valid and self._pattern is not None:
            found = self._pattern.match(data)
        if found is None:
            self._pattern = None
            return False
        self._repetition = data
        self._tag, body = found
        self._channel.send_repeat(self._group, self._number, body, len(data))
        return True

    def eof_received(self) -> bool:
        """Report the end, and watch whether a client that waits for answers still exists."""
        if self._repetition is not None:
            self._ends_later = True
        else:
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
        """Send bytes to the client, unless the sending side is closed."""
        if self._has_written_end:
            return
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
        self._has_written_end = True
        self._pattern = None
        self._transport.write_eof()

    def repeat(self, group: int, pattern: Pattern) -> None:
        """Recognize repetitions of the last request."""
        self._group, self._pattern = group, pattern
        self._repeat_until_s = self._loop.time() + REPEAT_S

    def answer(self, before: bytes, after: bytes) -> None:
        """Answer the repetition."""
        if not self._has_written_end:
            self._transport.write(before + self._tag + after)
        self._go_on()

    def send_in_full(self) -> None:
        """Send the repetition as data."""
        self._pattern = None
        if self._repetition is not None:
            self._later.insert(0, self._repetition)
        self._go_on()

    def _go_on(self) -> None:
        """Continue with what came after the repetition, until the next one."""
        self._repetition = None
        if self._later:
            later, self._later = self._later, []
            for data in later:
                self.data_received(data)
            self._choose_reading()
        self._end_after_answer()

    def _end_after_answer(self) -> None:
        """Carry out what waits for the answer to the last repetition."""
        if self._repetition is not None:
            return
        if self._closes_later:
            self._transport.close()
        elif self._ends_later:
            self._ends_later = False
            self._channel.send(Operation.END, self._number)

    def close(self) -> None:
        """Close after everything is written and the repetition is answered."""
        self._pattern = None
        if self._repetition is not None:
            self._closes_later = True
        else:
            self._transport.close()

    def finish(self) -> None:
        """Close after everything is written. There will be no answers."""
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
        wanted = not (self._is_paused or self._is_held or self._later or self._untaken_bytes > WINDOW_BYTES)
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
