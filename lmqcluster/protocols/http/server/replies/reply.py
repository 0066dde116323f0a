"""One HTTP answer, laid out byte by byte.

aiohttp capitalises header names and orders them differently. LMQ's clients expect lower-case names and empty bodies
with a length, so the port composes its answers itself and gives aiohttp only bytes.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, cast

from aiohttp import web

from .....wire.errors import LmqError
from ..connection import Connection

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter

__all__ = [
    "CONTINUE",
    "JSON",
    "STALL_S",
    "RepeatablePush",
    "Reply",
    "drain",
    "header_value",
    "open_transport",
    "whole_answer",
]

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
JSON = b"content-type: application/json\r\n"
_WITHDRAWN: Final = (
    b"x-lmq-error: overloaded: answers that are not read fill the client's share of the node's memory\r\n"
    b"retry-after: 1\r\n"
)
STALL_S = 30.0
"""Time in seconds after which a client that reads nothing of its answer is given up."""

_JOIN_BYTES_MAX = 64 * 1024
"""Size in bytes up to which one write of head and body is cheaper than two writes."""
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class _Clock:
    """The ``date`` and ``server`` lines, formatted once a second."""

    __slots__ = ("_lines", "_second")

    def __init__(self) -> None:
        self._second = -1
        self._lines = b""

    def lines(self) -> bytes:
        now = int(time.time())
        if now != self._second:
            self._second = now
            date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(now))
            self._lines = f"date: {date}\r\nserver: lmqcluster\r\n".encode()
        return self._lines


_clock = _Clock()


def header_value(value: bytes) -> bytes:
    """Return a value that is safe in a header: control characters, which could start another header, become spaces."""
    return _CONTROL.sub(b" ", value) if _CONTROL.search(value) else value


def whole_answer(code: int, head: bytes, content: bytes) -> bytes:
    """Return the whole answer to a client whose connection stays open; see `Reply`."""
    return b"%b%bcontent-length: %d\r\n%b\r\n%b" % (_STATUS_LINES[code], head, len(content), _clock.lines(), content)


async def drain(request: web.BaseRequest, transport: asyncio.Transport) -> None:
    """Wait until the client has read most of the written data.

    Raises:
        ConnectionResetError: the client read nothing for `STALL_S` seconds, or has disconnected.
    """
    draining = asyncio.ensure_future(request.writer.drain())
    try:
        while not draining.done():
            size = transport.get_write_buffer_size()
            await asyncio.wait((draining,), timeout=STALL_S)
            if not draining.done() and transport.get_write_buffer_size() >= size:
                transport.abort()
                raise ConnectionResetError(f"the client took nothing of its answer for {STALL_S:g} s")
        await draining
    finally:
        draining.cancel()


def open_transport(request: web.BaseRequest) -> asyncio.Transport:
    """Return the transport for the answer to a request.

    Raises:
        ConnectionResetError: the client has disconnected.
    """
    transport = request.transport
    if transport is None or transport.is_closing():
        raise ConnectionResetError("the client has closed the connection")
    return transport


@dataclass(frozen=True, slots=True)
class RepeatablePush:
    """A push of which only the body matters once its head is known.

    Attributes:
        queue, content_type: as in the request.
        reply: formats the flag of a push.
        on_error: formats an error.
    """

    queue: bytes
    content_type: bytes | None
    reply: Callable[[int], Reply]
    on_error: Callable[[LmqError], Reply]

    def answer(self, outcome: int | LmqError) -> Reply:
        """Return the answer for the flag of a push or its error."""
        return self.on_error(outcome) if isinstance(outcome, LmqError) else self.reply(outcome)


class Reply(web.StreamResponse):
    """A finished answer.

    Attributes:
        code: HTTP status.
        head: header lines, each ended by CR LF, without length, date and connection.
        content: the body.
        repeatable: the push that was answered, if later requests with the same head are alike.
    """

    def __init__(
        self, code: int, head: bytes = b"", content: bytes | Sequence[bytes] = b"", *, close: bool = False
    ) -> None:
        """Create an answer. The base class' constructor is not called, because nothing that it prepares is used.

        Args:
            code: HTTP status.
            head: header lines, each ended by CR LF.
            content: the body, or its pieces.
            close: whether the connection must end, because later data of the client cannot be trusted or awaited.
        """
        self.code = code
        self.head = head
        self.content = content if isinstance(content, bytes) else b"".join(content)
        self.repeatable: RepeatablePush | None = None
        self._closes = close

    @property
    def status(self) -> int:
        """Return the HTTP status."""
        return self.code

    @property
    def keep_alive(self) -> bool:
        """Return whether the connection stays open after this answer."""
        return not self._closes

    def force_close(self) -> None:
        """End the connection after this answer."""
        self._closes = True

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Write the whole answer.

        Raises:
            ConnectionResetError: the client has disconnected.
        """
        transport = open_transport(request)
        hold = cast("Connection", request.protocol).hold
        if not hold(len(self.content)):
            self._withdraw()
        head = self._compose(request)
        content = b"" if request.method == "HEAD" else self.content
        if len(content) <= _JOIN_BYTES_MAX:
            transport.write(head + content)
        else:
            transport.writelines((head, content))
        if request.protocol.writing_paused:
            await drain(request, transport)
        hold(0)
        return None

    def _withdraw(self) -> None:
        """Replace the answer by the error that the client leaves too much unread."""
        self.code = 503
        self.head = _WITHDRAWN
        self.content = b""

    def whole(self) -> bytes:
        """Return the whole answer to a client whose connection stays open."""
        return whole_answer(self.code, self.head, self.content)

    def _compose(self, request: web.BaseRequest) -> bytes:
        """Return the answer up to its body, without the bytes that were already sent; to be written immediately."""
        # After an error, the rest of the body is not awaited, because the client may keep sending useless data.
        if not request.keep_alive or (self.code >= 400 and not request.content.is_eof()):
            self._closes = True
        client, minor = cast("Connection", request.protocol), request.version.minor
        if client.is_last:
            self._closes = True
        if self._closes:
            connection = b"connection: close\r\n"
        elif minor == 0:
            connection = b"connection: keep-alive\r\n"
        else:
            connection = b""
        line = _STATUS_LINES[self.code][client.begin_answer() :]
        return b"".join((line, self.head, self._length(), _clock.lines(), connection, b"\r\n"))

    def _length(self) -> bytes:
        return b"content-length: %d\r\n" % len(self.content)

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing, because `prepare` has written everything."""
