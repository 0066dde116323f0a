"""The transport of a connection that a front-end process relays."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Final

import structlog

from ...wire.repeats import Pattern
from .channel import READ_REPORT_BYTES, WINDOW_BYTES, WRITE_REPORT_BYTES, Channel, Operation
from .repeats import Answer, RepeatGroup, Repeats

__all__ = ["RelayedTransport"]

log = structlog.get_logger("lmq.ports")

HIGH_BYTES: Final = 64 * 1024
_WRITE, _TAKEN = int(Operation.WRITE), int(Operation.TAKEN)


class RelayedTransport(asyncio.Transport):
    """A client's connection in the node's process. The front end has the socket."""

    def __init__(
        self,
        channel: Channel,
        number: int,
        address: object,
        protocol: asyncio.Protocol,
        repeats: Repeats,
        *,
        is_tls: bool,
    ) -> None:
        """Take a connection.

        Args:
            channel: leads to the front end.
            number: the front end's number of the connection.
            address: the socket address of the client.
            protocol: receives the bytes.
            repeats: the requests that the front end recognizes.
            is_tls: whether the client uses TLS, which the front end removes.
        """
        super().__init__({"peername": address, "sslcontext": True if is_tls else None})
        self._channel = channel
        self._number = number
        self._protocol = protocol
        self._repeats = repeats
        self._loop = asyncio.get_running_loop()
        self._is_closing = self._is_lost = False
        # Bytes that the front end has not written yet, and those that do not fit its window.
        # Answers to repeated requests keep their place among these.
        self._sent_bytes = 0
        self._kept: deque[bytes | memoryview | tuple[bytes, bytes]] = deque()
        self._kept_bytes = 0
        self._high_bytes, self._low_bytes = HIGH_BYTES, HIGH_BYTES // 4
        self._is_full = False
        self._ends = False
        # What arrives while reading is paused, with None for the end.
        self._unread: deque[bytes | None] = deque()
        self._is_reading = True
        self._taken_bytes = 0
        self._acknowledgement: asyncio.Future[bool] | None = None

    # --- from the front end -----------------------------------------------------------------------------------------

    def received(self, data: bytes | None) -> None:
        """Pass on bytes from the client, None for their end."""
        if not self._is_reading or self._unread:
            self._repeats.end(self._number)
            self._unread.append(data)
        else:
            self._pass_on(data)

    def _pass_on(self, data: bytes | None) -> None:
        # It is no repetition, and bytes before it that waited may have permitted some.
        self._repeats.end(self._number)
        if data is None:
            self._end()
        elif not self._is_closing:
            self._taken_bytes += len(data)
            if self._taken_bytes >= READ_REPORT_BYTES:
                self._channel.send(_TAKEN, self._number, self._taken_bytes)
                self._taken_bytes = 0
            try:
                self._protocol.data_received(data)
            except Exception:
                log.exception("connection failed")
                self.abort()

    def _end(self) -> None:
        if not self._is_closing and not self._protocol.eof_received():
            self.close()

    def written(self, size_bytes: int) -> None:
        """Note that the client's socket has taken bytes."""
        self._sent_bytes -= size_bytes
        if self._kept:
            self._send_kept()
        if self._is_full and self.get_write_buffer_size() <= self._low_bytes:
            self._is_full = False
            self._protocol.resume_writing()

    def acknowledged(self, is_acknowledged: bool) -> None:
        """Complete `wait_for_acknowledgement`."""
        if self._acknowledgement is not None and not self._acknowledgement.done():
            self._acknowledgement.set_result(is_acknowledged)

    def lost(self) -> None:
        """End the connection, because it was closed or its front end has ended. Idempotent."""
        if not self._is_lost:
            self._is_lost = self._is_closing = True
            self._drop()
            self.acknowledged(False)
            self._protocol.connection_lost(None)

    def offer_repeat(
        self, identity: Hashable, pattern: Pattern, make: Callable[[Answer], RepeatGroup]
    ) -> RepeatGroup | None:
        """Tell the front end to recognize repetitions of the last request, see `Repeats.offer`.

        Return None if the connection ends, or bytes have arrived that the protocol has not taken.
        """
        if self._is_closing or self._ends or self._unread or not self._is_reading:
            return None
        return self._repeats.offer(self._number, identity, pattern, make)

    # --- asyncio ----------------------------------------------------------------------------------------------------

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Set the receiver."""
        self._protocol = protocol  # type: ignore[assignment]

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the receiver."""
        return self._protocol

    def is_closing(self) -> bool:
        """Return whether the connection is closing or has ended."""
        return self._is_closing

    def is_reading(self) -> bool:
        """Return whether bytes are passed on."""
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        """Pass no bytes on for now."""
        if self._is_reading and not self._is_closing:
            self._is_reading = False
            self._channel.send(Operation.PAUSE, self._number)

    def resume_reading(self) -> None:
        """Pass bytes on again."""
        if not self._is_reading and not self._is_closing:
            self._is_reading = True
            self._channel.send(Operation.RESUME, self._number)
            if self._unread:
                self._loop.call_soon(self._take_unread)

    def _take_unread(self) -> None:
        while self._unread and self._is_reading:
            self._pass_on(self._unread.popleft())

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes to the client."""
        size = len(data)
        if self._is_closing or self._ends or not size:
            return
        if not self._kept and self._sent_bytes + size <= WINDOW_BYTES:
            self._sent_bytes += size
            self._channel.send_data(_WRITE, self._number, data if type(data) is bytes else bytes(data))
        else:
            self._repeats.delay(self._number, self._keep_answer)
            self._kept.append(data if type(data) is bytes else bytes(data))
            self._kept_bytes += size
            self._send_kept()
        if not self._is_full and self._sent_bytes + self._kept_bytes > self._high_bytes:
            self._is_full = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        """Send several pieces to the client."""
        self.write(b"".join(list_of_data))

    def _send_kept(self) -> None:
        """Send as much of the kept bytes as fits the window, then what follows them."""
        while self._kept:
            first = self._kept[0]
            if isinstance(first, tuple):
                self._channel.send(Operation.ANSWERS, 0, ([self._number], *first))
                self._kept.popleft()
                continue
            room = WINDOW_BYTES - self._sent_bytes
            if room <= 0:
                break
            self._kept.popleft()
            data = memoryview(first)
            if len(data) > room:
                self._kept.appendleft(data[room:])
                data = data[:room]
            self._sent_bytes += len(data)
            self._kept_bytes -= len(data)
            self._channel.send_data(_WRITE, self._number, bytes(data))
        if not self._kept:
            self._repeats.delay(self._number, None)
            if self._ends:
                self._channel.send(Operation.WRITE_END, self._number)
            if self._is_closing:
                self._channel.send(Operation.CLOSE, self._number)

    def _keep_answer(self, before: bytes, after: bytes) -> None:
        """Answer a repeated request after the kept bytes."""
        self._kept.append((before, after))

    def can_write_eof(self) -> bool:
        """Return whether the sending side can be closed alone."""
        return self.get_extra_info("sslcontext") is None

    def write_eof(self) -> None:
        """Close the sending side after everything is written."""
        if not self._ends and not self._is_closing:
            self._ends = True
            self._repeats.end(self._number)
            if not self._kept:
                self._channel.send(Operation.WRITE_END, self._number)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the sizes at which the protocol stops writing and goes on."""
        self._high_bytes = HIGH_BYTES if high is None else high
        # The front end reports bytes only from a number on.
        self._low_bytes = max(self._high_bytes // 4 if low is None else low, WRITE_REPORT_BYTES)

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that the client's socket has not taken, as far as the front end has reported."""
        return self._sent_bytes + self._kept_bytes

    def close(self) -> None:
        """Close the connection after everything is written."""
        if not self._is_closing:
            self._is_closing = True
            self._repeats.end(self._number)
            self._unread.clear()
            if not self._kept:
                self._channel.send(Operation.CLOSE, self._number)

    def abort(self) -> None:
        """End the connection now."""
        if not self._is_lost:
            self._is_closing = True
            self._drop()
            self._channel.send(Operation.ABORT, self._number)
            self._loop.call_soon(self.lost)

    def _drop(self) -> None:
        """Drop what was neither sent nor passed on."""
        self._repeats.end(self._number)
        self._repeats.delay(self._number, None)
        self._kept.clear()
        self._kept_bytes = 0
        self._unread.clear()

    async def wait_for_acknowledgement(self) -> bool:
        """Wait like the function of this name for a socket, see `half_closed`."""
        if self._is_lost:
            return False
        if self._acknowledgement is None or self._acknowledgement.done():
            self._acknowledgement = self._loop.create_future()
            self._channel.send(Operation.ACKNOWLEDGE, self._number)
        return await asyncio.shield(self._acknowledgement)
