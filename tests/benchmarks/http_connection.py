"""A keep-alive HTTP/1.1 connection with minimal cost for the client.

An HTTP client library in Python takes longer for a request than the server does, and would dominate the measurement.
This one writes prepared bytes and reads only the status and the length of the answer.
"""

from __future__ import annotations

import asyncio
from typing import Final, Self, cast

_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"\r\ncontent-length:"


class HttpError(Exception):
    """The answer was not 200, or the connection was closed."""


class HttpConnection(asyncio.Protocol):
    """One connection with at most one request outstanding."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[bytes] | None = None
        self._received = b""

    @classmethod
    async def open(cls, address: str) -> Self:
        """Connect to ``HOST:PORT``.

        Raises:
            OSError: the address refuses the connection.
        """
        host, _, port = address.rpartition(":")
        _, protocol = await asyncio.get_running_loop().create_connection(cls, host, int(port))
        return protocol

    def request(self, data: bytes) -> asyncio.Future[bytes]:
        """Send a whole request. Return an awaitable of the answer's body.

        Raises:
            HttpError: when awaited: the status is not 200, or the connection was closed.
        """
        assert self._waiting is None, "one request at a time"
        self._waiting = asyncio.get_running_loop().create_future()
        if self._transport is None or self._transport.is_closing():
            self._waiting.set_exception(HttpError("the node has closed the connection"))
        else:
            self._transport.write(data)
        return self._waiting

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport of the new connection."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Resolve the request if its answer is complete."""
        self._received = received = self._received + data if self._received else data
        head_end = received.find(_HEAD_END)
        if head_end < 0:
            return
        head = received[:head_end].lower()
        length_at = head.find(_LENGTH)
        length = int(head[length_at + len(_LENGTH) :].partition(b"\r\n")[0]) if length_at >= 0 else 0
        body_at = head_end + len(_HEAD_END)
        if len(received) < body_at + length:
            return
        self._received = b""
        waiting, self._waiting = self._waiting, None
        if waiting is None or waiting.done():
            return
        if head[9:12] == b"200":
            waiting.set_result(received[body_at:])
        else:
            waiting.set_exception(HttpError(received.decode("latin-1")))

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the outstanding request."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_exception(HttpError(f"the connection was closed: {exc}"))


def post(address: str, path: str, content_type: str, body: bytes) -> bytes:
    """Return the bytes of a POST request."""
    head = f"POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode("ascii") + body
