"""Answers of unknown length: sent whole if short, else piece by piece; a failure in between closes the connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from lmqcluster.ports import Memory
from lmqcluster.protocols.http.server.replies.reply import JSON, Reply
from lmqcluster.protocols.http.server.replies.streamed import HELD_BYTES, WHOLE_BYTES_MAX, streamed
from lmqcluster.protocols.http.server.requests.request import Request
from lmqcluster.wire.errors import LmqError

from .test_http_connection import serve

PIECE = b"x" * 10_000
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Pieces:
    """An answer of `count` pieces.

    Attributes:
        made: number of requested pieces.
        closed: set when the iteration ends.
    """

    def __init__(self, count: int, *, fails: bool = False) -> None:
        self._count = count
        self._fails = fails
        self.made = 0
        self.closed = asyncio.Event()

    async def all(self) -> AsyncIterator[bytes]:
        try:
            for _ in range(self._count):
                self.made += 1
                yield PIECE
                await asyncio.sleep(0)
            if self._fails:
                raise LmqError("overloaded", "it cannot continue")
        finally:
            self.closed.set()


def test_a_short_answer_has_its_length() -> None:
    async def main() -> Reply:
        return await streamed(JSON, Pieces(3).all())

    reply = asyncio.run(main())
    assert (reply.code, reply.content, type(reply)) == (200, 3 * PIECE, Reply)


def test_a_failure_before_the_answer_begins_is_an_error() -> None:
    async def main() -> None:
        with pytest.raises(LmqError):
            await streamed(JSON, Pieces(3, fails=True).all())

    asyncio.run(main())


def test_a_later_failure_ends_the_answer_early() -> None:
    async def handler(_request: Request) -> Reply:
        return await streamed(JSON, Pieces(100, fails=True).all())

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(REQUEST)
        data = bytearray()
        with contextlib.suppress(ConnectionError):
            while more := await reader.read(1 << 16):
                data += more
        assert data.startswith(b"HTTP/1.1 200 OK\r\n")
        assert not data.endswith(b"0\r\n\r\n")

    serve(handler, client)


def test_no_more_is_made_than_the_client_reads() -> None:
    pieces = Pieces(10_000)
    requests: list[Request] = []

    async def handler(request: Request) -> Reply:
        requests.append(request)
        return await streamed(JSON, pieces.all())

    async def client(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(REQUEST)
        # The kernel buffers some megabytes for a client that reads nothing.
        while not requests or not requests[0].protocol.writing_paused:  # noqa: ASYNC110  there is no event for it
            await asyncio.sleep(0)
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert WHOLE_BYTES_MAX < pieces.made * len(PIECE) < 50_000_000
        writer.transport.abort()
        await pieces.closed.wait()

    serve(handler, client)


def test_a_client_without_room_gets_an_error() -> None:
    memory = Memory(1 << 30)
    memory.unauthenticated_bytes_max = HELD_BYTES - 1

    async def handler(_request: Request) -> Reply:
        return await streamed(JSON, Pieces(100).all())

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(REQUEST)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 503 ")

    serve(handler, client, memory)
