"""Connections: LMQ's answers to malformed requests, time limits, and the limits of a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from aiohttp import EMPTY_PAYLOAD, hdrs, web
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler, RequestPayloadError, _ErrInfo

from ....ports import (
    HALF_CLOSED_S,
    ConnectionSlot,
    Ending,
    keep_alive,
    may_be_half_closed,
    wait_for_acknowledgement,
    wait_for_reset,
)
from ....wire.address import is_loopback
from ....wire.errors import forget_frames
from .error_reply import REQUEST_LINE_BYTES_MAX, HeadTooLargeError
from .requests.framing import HEAD_BYTES_MAX, Framing

__all__ = ["BEGINNING", "HEADER_VALUE_BYTES_MAX", "IDLE_S", "Connection", "ErrorReply", "Repeat"]

BEGINNING: Final = b"HTTP/1.1 "
"""First bytes of every answer."""
HEADER_VALUE_BYTES_MAX: Final = 4096
HEADER_BYTES_MAX: Final = HEADER_VALUE_BYTES_MAX + 256
"""Maximum size of a header for the parser, whose limit includes the name. The port checks the values exactly."""
HEADERS_MAX: Final = 128
REQUESTS_PER_CONNECTION_MAX: Final = 10_000
IDLE_S: Final = 5.0
"""Time in seconds after which an idle connection is closed, unless its port keeps connections longer."""
LINGER_S: Final = 5.0
"""Time in seconds for which the rest of a refused body is read and dropped, so that the client receives the answer."""
READ_BUFFER_BYTES: Final = 64 * 1024

SMALL_BYTES: Final = 16 * 1024
"""Size up to which requests and answers are not counted, because the socket buffers may hold as much."""
COUNTED_BYTES_MAX: Final = 112 * 1024 * 1024
"""Maximum size that is counted, so that a client that holds nothing else can be served."""
_SMALL_HEAD_BYTES: Final = 4096
_REPEATED_HEAD_BYTES_MAX: Final = 2048
"""Maximum size of a head that a connection keeps for the requests that repeat it."""
_REPEATS_MAX: Final = 5
"""Most operations whose repetitions a connection recognizes: to receive, to delete, to send with and without options and one
more."""
_PARSED_FACTOR: Final = 4
"""Memory that the parser needs for a head, as a multiple of its bytes."""


ErrorReply = Callable[[web.BaseRequest, int, BaseException | None, str | None], web.StreamResponse]
"""Factory of the answer to a request that the parser refused or that failed: request, status, error, message."""


class Repeat(Protocol):
    """A request that its connection may repeat."""

    def start(self, data: bytes) -> bool:
        """Begin the request in `data` if that is exactly one repetition; return whether it is.

        Later, not within this call, a method of the connection ends the repetition: `answer_repetition`, `end_repetition` or
        `repeat_in_full`.
        """

    def cancel(self) -> None:
        """Note that the client of the request that has begun is gone."""


class Connection(RequestHandler):
    """One client connection.

    Attributes:
        served: number of answered requests.
        is_local: whether the client is on this machine.
        place: its slot in the limits on connections and memory.
        answered: number of answers that have begun.
        has_begun_answer: whether `BEGINNING` of the next answer was already sent.
        head: bytes of the last head; empty if it is long, arrived in pieces, or is followed by another.
        shape: the head of the last request that may be repeated, without digits.
    """

    __slots__ = (
        "_body", "_error_reply", "_framing", "_head_bytes", "_idle_s", "_idle_watch", "_is_over", "_is_put_off", "_repeated",
        "_repeats", "_repetition", "_repetition_ended", "_rest", "_watch",
        "_work_bytes", "answered", "has_begun_answer", "head", "is_local", "place", "served", "shape",
    )  # fmt: skip

    def __init__(
        self,
        manager: web.Server,
        place: ConnectionSlot,
        error_reply: ErrorReply,
        *,
        loop: asyncio.AbstractEventLoop,
        idle_s: float = IDLE_S,
    ) -> None:
        super().__init__(
            manager,
            loop=loop,
            keepalive_timeout=idle_s,
            access_log=None,  # type: ignore[arg-type]  # without it, aiohttp keeps no access log
            max_line_size=REQUEST_LINE_BYTES_MAX,
            max_field_size=HEADER_BYTES_MAX,
            max_headers=HEADERS_MAX,
            lingering_time=LINGER_S,
            read_bufsize=READ_BUFFER_BYTES,
            # A body is opaque: a compressed body is delivered compressed.
            auto_decompress=False,
        )
        self.served = 0
        self._idle_s = idle_s
        self._idle_watch: asyncio.TimerHandle | None = None
        self.place = place
        self.is_local = is_loopback(place.address)
        self._error_reply = error_reply
        self._framing = Framing()
        self._body: StreamReader = EMPTY_PAYLOAD
        self._rest = b""
        self._is_put_off = False
        self._is_over = False
        self._watch: asyncio.Task[None] | None = None
        self.answered = 0
        self.has_begun_answer = False
        self._head_bytes = 0
        self._work_bytes = 0
        self.head = self.shape = b""
        self._repeats: dict[str, Repeat] = {}
        # The repetition without an answer, its bytes, and what waits for its end.
        self._repetition: Repeat | None = None
        self._repeated = b""
        self._repetition_ended: asyncio.Future[None] | None = None

    def data_received(self, data: bytes) -> None:
        """Take bytes from the client and give the parser one head or body at a time.

        While requests or the start of a body wait, the rest is kept. The base class calls
        without data when parsing can continue.
        """
        if self._is_over:
            return
        if self._repetition is not None:
            self._rest += data
            self._pause_transport_reading()
            return
        if self._is_put_off:
            self._rest += data
            return
        if self._repeats and (self._begin_repetition(data) or self._put_off(data)):
            return
        self._parse(data)

    def _parse(self, data: bytes) -> None:
        if not data:
            super().data_received(data)
        rest = self._rest + data if self._rest else data
        while rest and not (self._reading_paused or len(self._messages) >= self._max_msg_queue_size):
            rest = self._feed(rest)
        self._rest = rest

    def _feed(self, data: bytes) -> bytes:
        """Give the first piece to the parser; return the rest."""
        if self._upgraded:
            super().data_received(data)
            return b""
        framing = self._framing
        piece, size = framing.piece(data)
        requests = self._request_count
        super().data_received(piece)
        if self._request_count != requests:
            before, (message, self._body) = self._body, self._messages[-1]
            if isinstance(message, RawRequestMessage):
                is_whole = framing.head_bytes == size <= _REPEATED_HEAD_BYTES_MAX and requests == self.answered
                self.head = data[:size] if is_whole else b""
                framing.head_ended(None if message.chunked else int(message.headers.get(hdrs.CONTENT_LENGTH, "0")))
                self._hold_head(0)
            else:
                # A refused head ends the connection, and the bytes after it have no meaning. A reader of the previous body
                # has no other way to learn of the end.
                self._is_over = True
                if isinstance(message, _ErrInfo):
                    forget_frames(message.exc)
                if not before.is_eof():
                    before.set_exception(RequestPayloadError(message.message))
        elif framing.is_chunked and self._body.is_eof():
            framing.body_ended()
        elif framing.head_bytes > _SMALL_HEAD_BYTES:
            self._check_head(framing.head_bytes)
        return b"" if self._is_over or self._force_close or self._close else data[size:]

    def remember(self, repeat: Repeat, operation: str = "") -> None:
        """Offer what arrives between requests to `repeat`, the last of its operation, before it is parsed."""
        self._repeats.pop(operation, None)
        self._repeats[operation] = repeat
        if len(self._repeats) > _REPEATS_MAX:
            del self._repeats[next(iter(self._repeats))]

    def _begin_repetition(self, data: bytes) -> bool:
        is_between = self._waiter is not None and not self._messages and not self._rest and not self._framing.head_bytes
        if not is_between or len(data) > SMALL_BYTES or self._paused or self._close or self._watch is not None:
            return False
        if self.served + 1 >= REQUESTS_PER_CONNECTION_MAX or self.place.is_spare:
            # The connection ends with the answer.
            return False
        for repeat in self._repeats.values():
            if repeat.start(data):
                self._repetition, self._repeated = repeat, data
                self._request_count += 1
                return True
        return False

    def _put_off(self, data: bytes) -> bool:
        """Take data in the next turn of the event loop if the next request can be recognized only then.

        A fast client sends it before aiohttp's task, which has written the last answer, waits again.
        """
        is_answered = self._waiter is None and self._request_count == self.answered
        if not data or not is_answered or self._messages or self._rest or self._framing.head_bytes:
            return False
        self._rest, self._is_put_off = data, True
        self._loop.call_soon(self._take_put_off)
        return True

    def _take_put_off(self) -> None:
        """Take data that was put off, unless that has happened."""
        if not self._is_put_off:
            return
        self._is_put_off = False
        data, self._rest = self._rest, b""
        if not self._begin_repetition(data):
            self._parse(data)

    def answer_repetition(self, content: bytes) -> None:
        """End the repetition with an answer for a connection that stays open."""
        if self._repetition is None or self.transport is None or self.transport.is_closing():
            return
        self.served += 1
        stays_open = not self.is_last
        if not stays_open:
            content = content.replace(b"\r\n", b"\r\nconnection: close\r\n", 1)
        self.transport.write(content[self.begin_answer() :])
        self.end_repetition(stays_open=stays_open)

    def end_repetition(self, *, stays_open: bool) -> None:
        """Take what has arrived since a repetition that was answered."""
        self._forget_repetition()
        if self.transport is None:
            return
        self._next_keepalive_close_time = self._loop.time() + self._idle_s
        if not stays_open:
            self._is_over = True
            self.transport.close()
        elif self._rest:
            rest, self._rest = self._rest, b""
            self._resume_transport_reading()
            self.data_received(rest)

    def repeat_in_full(self) -> None:
        """Parse the repetition and what has arrived since."""
        data, self._rest = self._repeated + self._rest, b""
        self._forget_repetition()
        if self.transport is None:
            return
        self._request_count -= 1
        self._resume_transport_reading()
        self._parse(data)

    def _forget_repetition(self) -> None:
        self._repetition, self._repeated = None, b""
        ended = self._repetition_ended
        if ended is not None and not ended.done():
            ended.set_result(None)

    def _process_keepalive(self) -> None:
        if self._repetition is not None:
            self._next_keepalive_close_time = self._loop.time() + self._idle_s
        super()._process_keepalive()

    def _watch_idle(self) -> None:
        """Close the connection early if it is idle and its client is unknown, or if the port has few places left."""
        self._idle_watch = None
        if self.transport is None:
            return
        is_idle = self._waiter is not None and not self._waiter.done() and self._repetition is None
        idle_s = self._loop.time() - self._next_keepalive_close_time + self._idle_s
        if is_idle and idle_s >= IDLE_S and (not self.place.is_known or self.place.is_port_crowded):
            self.force_close()
        else:
            self._idle_watch = self._loop.call_later(IDLE_S, self._watch_idle)

    async def shutdown(self, timeout: float | None = 15.0) -> None:  # noqa: ASYNC109 - aiohttp's signature
        """End the connection after the answer to its request, which may take `timeout` seconds."""
        if self._repetition is not None:
            self._repetition_ended = ended = self._loop.create_future()
            await asyncio.wait((ended,), timeout=timeout)
        await super().shutdown(timeout)

    def _check_head(self, size_bytes: int) -> None:
        """Refuse a head that is too large; end the connection if there is no memory for the head."""
        if size_bytes > HEAD_BYTES_MAX:
            self._is_over = True
            error = HeadTooLargeError(message=f"the request line and the headers have more than {HEAD_BYTES_MAX} bytes")
            self._messages.append((_ErrInfo(error.code, error, error.message), EMPTY_PAYLOAD))
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)
        elif not self._hold_head(size_bytes * _PARSED_FACTOR):
            self._is_over = True
            self.place.note(Ending.MEMORY)
            self.force_close()

    def _hold_head(self, size_bytes: int) -> bool:
        if not self.place.hold(self._work_bytes + size_bytes):
            return False
        self._head_bytes = size_bytes
        return True

    def hold(self, size_bytes: int) -> bool:
        """Replace the number of bytes counted for the current request and its answer.

        Returns:
            False if this exceeds the client's share of the node's memory; then nothing has changed.
        """
        size_bytes = 0 if size_bytes <= SMALL_BYTES else min(size_bytes, COUNTED_BYTES_MAX)
        if size_bytes != self._work_bytes:
            if not self.place.hold(self._head_bytes + size_bytes):
                return False
            self._work_bytes = size_bytes
        return True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the connection, with keepalive probes that detect a dead peer within a minute."""
        super().connection_made(transport)
        cast("asyncio.Transport", transport).set_write_buffer_limits(high=SMALL_BYTES)
        keep_alive(transport)
        if self._idle_s > IDLE_S:
            self._idle_watch = self._loop.call_later(IDLE_S, self._watch_idle)

    def eof_received(self) -> bool:  # type: ignore[override]  # aiohttp's is asyncio's without a result
        """Return whether the connection stays open to answer the requests of a client that has half-closed it.

        The start of the answer, which is the same for all answers, is sent first to detect whether the client is still
        there. So no message is taken for a client that is gone.
        """
        if self._watch is not None:
            return True
        self._take_put_off()
        transport = self.transport
        is_asked = self._request_count > self.answered
        if transport is None or not self._body.is_eof() or not may_be_half_closed(transport):
            return False
        if not is_asked and (self._waiter is not None or not self._request_count):
            return False
        if not is_asked:
            # The last answer is being written.
            self.close()
        else:
            self.has_begun_answer = True
            transport.write(BEGINNING)
        self._watch = self._loop.create_task(self._watch_half_closed(transport))
        return True

    async def _watch_half_closed(self, transport: asyncio.Transport) -> None:
        # Once the answer follows, the client has to acknowledge the answer instead.
        if not self.has_begun_answer or await wait_for_acknowledgement(transport) or not self.has_begun_answer:
            await wait_for_reset(transport, HALF_CLOSED_S)
        transport.abort()

    @property
    def has_more(self) -> bool:
        """Return whether bytes have arrived after the current request."""
        return bool(self._messages or self._rest or self._framing.head_bytes)

    def count_answer(self) -> bool:
        """Count an answer; return whether the connection must end with it."""
        self.served += 1
        return self.served >= REQUESTS_PER_CONNECTION_MAX or self.place.is_spare

    def begin_answer(self) -> int:
        """Mark the next answer as begun; return the number of its bytes that were already sent."""
        self.answered += 1
        sent = len(BEGINNING) if self.has_begun_answer else 0
        self.has_begun_answer = False
        return sent

    @property
    def is_last(self) -> bool:
        """Return whether no request follows the current one."""
        return self._close or (self._watch is not None and not self._messages and not self._rest)

    def close(self) -> None:
        """End the connection: immediately if it is idle, otherwise after the current answer.

        aiohttp only stops reading from an idle connection, which leaves a client's next request without an answer.
        """
        is_idle = self._waiter is not None and self._repetition is None
        super().close()
        if is_idle and self.transport is not None:
            self.transport.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Release everything that belongs to the connection."""
        super().connection_lost(exc)
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.cancel()
        if self._repetition is not None:
            self._repetition.cancel()
            self._forget_repetition()
        if self._idle_watch is not None:
            self._idle_watch.cancel()
        self._repeats.clear()
        # Tasks and unread bodies refer to the connection; dropping them breaks the reference cycles.
        self._rest, self._body, self._is_over, self._is_put_off = b"", EMPTY_PAYLOAD, True, False
        self._messages.clear()
        self.place.release()

    def log_exception(self, *args: Any, **kwargs: Any) -> None:
        """Handle a failure in aiohttp. A broken body after a refused request is the client's fault."""
        error = kwargs.get("exc_info")
        if isinstance(error, RequestPayloadError):
            self.place.note(Ending.BAD_REQUEST, "the body of a refused request is broken")
            forget_frames(error)
        else:
            super().log_exception(*args, **kwargs)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer a request that the parser refused or that failed, and end the connection."""
        return self._error_reply(request, status, exc, message)
