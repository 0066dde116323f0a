"""Connections: LMQ's answers to what is not HTTP, time limits, and the most that a connection may do."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable
from typing import Final, cast

import structlog
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMethod, HttpProcessingError, LineTooLong
from aiohttp.web_protocol import RequestHandler

from ...node.address import is_loopback
from ...ports import Place
from .body import Budget
from .reply import Reply
from .request import Request

__all__ = ["HEADER_VALUE_BYTES_MAX", "REQUEST_LINE_BYTES_MAX", "Connection", "HttpServer"]

REQUEST_LINE_BYTES_MAX: Final = 4096
HEADER_VALUE_BYTES_MAX: Final = 4096
HEADER_BYTES_MAX: Final = HEADER_VALUE_BYTES_MAX + 256
"""The parser's limit counts a header's name too; the front end checks the values exactly."""
HEADERS_MAX: Final = 128
IDLE_S: Final = 5.0
LINGER_S: Final = 5.0
"""How long the rest of a refused body is read and dropped, so that the client gets to see the answer."""
READ_BUFFER_BYTES: Final = 64 * 1024

_log = structlog.get_logger(__name__)
# llhttp refuses a method it does not know; the line it complains of is only in the text of the error.
_MADE_UP_METHOD = re.compile(r"b['\"][!#$%&'*+.^_`|~0-9A-Za-z-]+ (?P<path>/\S*) HTTP/1\.[01]['\"]")
_NOT_ASCII = re.compile(rb"[\x80-\xff]")
_KEEPALIVE_OPTIONS = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))


class Connection(RequestHandler):
    """One client connection.

    Attributes:
        served: requests answered so far.
        is_local: whether the client is on this machine.
        place: what it counts for.
    """

    __slots__ = ("_in_head", "is_local", "place", "served")

    def __init__(self, manager: HttpServer, place: Place, *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            manager,
            loop=loop,
            keepalive_timeout=IDLE_S,
            access_log=None,  # type: ignore[arg-type]  # None is how aiohttp is told to keep no access log
            max_line_size=REQUEST_LINE_BYTES_MAX,
            max_field_size=HEADER_BYTES_MAX,
            max_headers=HEADERS_MAX,
            lingering_time=LINGER_S,
            read_bufsize=READ_BUFFER_BYTES,
            # A body is opaque: what was pushed compressed is delivered compressed.
            auto_decompress=False,
        )
        self.served = 0
        self.place = place
        self.is_local = is_loopback(place.address)
        self._in_head = False

    def data_received(self, data: bytes) -> None:
        """Take bytes from the client.

        LMQ's clients may send queue names as raw UTF-8, as curl does; the parser refuses that, so the request line is escaped
        before it gets there. That is done where a request line is known to begin: not for pipelined requests.
        """
        if not data:
            super().data_received(data)
            return
        requests = self._request_count
        waiter = self._waiter
        begins = not self._in_head and (requests == 0 or (waiter is not None and not waiter.done()))
        if begins and not data.isascii():
            data = _escape_request_line(data)
        in_head = begins or self._in_head
        super().data_received(data)
        self._in_head = in_head and self._request_count == requests

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection; notice a peer that died silently within a minute."""
        super().connection_made(transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            for name, seconds in _KEEPALIVE_OPTIONS:
                if hasattr(socket, name):
                    sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)

    def close(self) -> None:
        """End the connection: at once if it is idle, else when its request has been answered.

        aiohttp only stops reading an idle one, which leaves a client's next request without any answer.
        """
        is_idle = self._waiter is not None
        super().close()
        if is_idle and self.transport is not None:
            self.transport.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection has ended."""
        super().connection_lost(exc)
        self.place.ended()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what the parser refused, or a failure of ours, with an empty body, and end the connection."""
        if isinstance(exc, HttpProcessingError):
            status = _status_of(exc)
            _log.debug("request refused", status=status, reason=message)
        else:
            _log.error("a request failed", method=request.method, path=request.raw_path, exc_info=exc)
        return Reply(status, close=True)


def _escape_request_line(data: bytes) -> bytes:
    """Percent-encode what is not ASCII in the first line."""
    line, end, rest = data.partition(b"\n")
    return _NOT_ASCII.sub(lambda match: b"%%%02X" % match[0][0], line) + end + rest


def _status_of(exc: HttpProcessingError) -> int:
    """The status for a request that could not be parsed."""
    if isinstance(exc, LineTooLong) and exc.args[1] == REQUEST_LINE_BYTES_MAX:
        return 414
    if isinstance(exc, BadHttpMethod):
        made_up = _MADE_UP_METHOD.search(str(exc))
        if made_up is not None:
            on_messages = made_up["path"].partition("?")[0].split("/")[1] == "messages"
            return 405 if on_messages else 501
    return 400


class HttpServer(web.Server):
    """One port: makes a `Connection` for each client, and a `Request` for each request."""

    def __init__(self, handler: Callable[[Request], Awaitable[web.StreamResponse]], budget: Budget) -> None:
        super().__init__(
            cast("Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]", handler),
            request_factory=self._new_request,
            handler_cancellation=True,
        )
        self._budget = budget

    def connect(self, place: Place) -> Connection:
        """The protocol of a new connection."""
        return Connection(self, place, loop=self._loop)

    def _new_request(self, message, payload, protocol, writer, task) -> Request:  # type: ignore[no-untyped-def]
        return Request(message, payload, protocol, writer, task, self._loop, budget=self._budget)
