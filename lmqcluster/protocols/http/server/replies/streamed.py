"""Answers that may be very long, written piece by piece as fast as the client reads them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING, Final, cast

from .....node.process.fair_slices import gathered
from .reply import Reply, drain, open_transport

if TYPE_CHECKING:
    import asyncio

    from aiohttp import web
    from aiohttp.abc import AbstractStreamWriter

    from ..connection import Connection

__all__ = ["streamed"]

WHOLE_BYTES_MAX: Final = 256 * 1024
"""Size in bytes up to which an answer is written as a whole, with its length."""
HELD_BYTES: Final = 2 * WHOLE_BYTES_MAX
"""Memory counted for a longer answer: its start, the piece that is being made, and the data that the client has not read."""


async def streamed(head: bytes, pieces: AsyncIterator[bytes]) -> Reply:
    """Return an answer 200 whose body consists of pieces. Memory holds only the pieces that the client has not read yet.

    Args:
        head: header lines, each ended by CR LF.
        pieces: short pieces. An error in them before the answer has begun is raised here; a later one ends the
            connection.
    """
    rest = gathered(pieces)
    first: list[bytes] = []
    size = 0
    async for piece in rest:
        first.append(piece)
        size += len(piece)
        if size > WHOLE_BYTES_MAX:
            return _Streamed(head, first, rest)
    return Reply(200, head, first)


class _Streamed(Reply):
    """An answer of unknown length."""

    def __init__(self, head: bytes, first: list[bytes], rest: AsyncGenerator[bytes, None]) -> None:
        super().__init__(200, head)
        self._first = first
        self._rest = rest
        self._is_chunked = True

    def _length(self) -> bytes:
        if self.code != 200:
            return super()._length()
        # A client of HTTP/1.0 detects the end of the body by the end of the connection.
        return b"transfer-encoding: chunked\r\n" if self._is_chunked else b""

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Write the whole answer. Raises like `Reply.prepare`."""
        self._is_chunked = request.version.minor > 0
        if not self._is_chunked:
            self.force_close()
        is_complete = False
        try:
            hold = cast("Connection", request.protocol).hold
            if not hold(HELD_BYTES):
                self._withdraw()
                is_complete = True
                return await super().prepare(request)
            transport = open_transport(request)
            transport.write(self._compose(request))
            if request.method != "HEAD":
                await self._write(request, transport)
            hold(0)
            is_complete = True
        finally:
            await self._rest.aclose()
            if not is_complete and request.transport is not None:
                # The client must be able to detect that the rest is missing.
                request.transport.abort()
        return None

    async def _write(self, request: web.BaseRequest, transport: asyncio.Transport) -> None:
        for piece in self._first:
            self._write_piece(transport, piece)
        self._first = []
        if request.protocol.writing_paused:
            await drain(request, transport)
        async for piece in self._rest:
            self._write_piece(open_transport(request), piece)
            if request.protocol.writing_paused:
                await drain(request, transport)
        if self._is_chunked:
            transport.write(b"0\r\n\r\n")

    def _write_piece(self, transport: asyncio.Transport, piece: bytes) -> None:
        transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if self._is_chunked else piece)
