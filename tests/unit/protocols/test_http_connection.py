"""Connections on a real socket: internal failures, clients that do not read, bodies that do not arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from lmqcluster.ports import Bounds, ConnectionLimiter, Listener, Memory
from lmqcluster.protocols.http.lmq.errors import on_error
from lmqcluster.protocols.http.server.http_server import HttpServer
from lmqcluster.protocols.http.server.replies import reply
from lmqcluster.protocols.http.server.replies.reply import Reply
from lmqcluster.protocols.http.server.requests import body
from lmqcluster.protocols.http.server.requests.request import Request
from lmqcluster.wire.errors import LmqError

MiB = 1 << 20
Handler = Callable[[Request], Awaitable[Reply]]
Client = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


def serve(handler: Handler, client: Client, memory: Memory | None = None) -> None:
    """Run a client against a server with only this handler."""

    async def main() -> None:
        server = HttpServer(handler)
        gate = ConnectionLimiter("http", Bounds(10, 10), memory or Memory(1 << 30), lambda _address: False)
        listener = Listener(gate, server.connect)
        reader, writer = await asyncio.open_connection("127.0.0.1", await listener.start("127.0.0.1", 0))
        try:
            await client(reader, writer)
        finally:
            writer.transport.abort()
            listener.close()
            await server.shutdown(1)

    asyncio.run(asyncio.wait_for(main(), 20))


def test_an_internal_failure_is_500_without_a_body() -> None:
    async def handler(request: Request) -> Reply:
        raise RuntimeError("a bug")

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n")
        assert answer.endswith(b"connection: close\r\n\r\n")

    serve(handler, client)


def test_a_client_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply, "STALL_S", 0.1)
    ended = asyncio.Event()

    async def handler(request: Request) -> Reply:
        assert request.task is not None
        request.task.add_done_callback(lambda _task: ended.set())
        return Reply(200, content=b"x" * (32 * MiB))

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await ended.wait()
        assert len(await reader.read()) < 32 * MiB

    serve(handler, client)


def test_a_client_that_reads_slowly_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply, "STALL_S", 2.0)

    async def handler(request: Request) -> Reply:
        return Reply(200, content=b"x" * (16 * MiB), close=True)

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        size = 0
        while data := await reader.read(MiB):
            size += len(data)
            await asyncio.sleep(0.005)
        assert size > 16 * MiB

    serve(handler, client)


async def read_body(request: Request, bytes_max: int = 2 * MiB) -> Reply:
    try:
        return Reply(200, content=b"%d" % len(await request.read_body(bytes_max)))
    except LmqError as exc:
        return on_error(exc)


def test_a_stalled_body_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "STALL_S", 0.1)

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert b"x-lmq-error: bad_request: the announced body did not arrive in time" in head

    serve(read_body, client)


@pytest.mark.parametrize("chunked", [False, True])
def test_large_bodies_share_a_budget_and_release_it(chunked: bool) -> None:
    memory = Memory(1 << 30)
    memory.unauthenticated_bytes_max = 5 * MiB
    data = b"x" * (2 * MiB)
    if chunked:
        request = (
            b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n200000\r\n" + data + b"\r\n0\r\n\r\n"
        )
    else:
        request = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2097152\r\n\r\n" + data

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(4):
            writer.write(request)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            assert await reader.readexactly(7) == b"2097152"
        assert memory.unauthenticated_bytes == 0
        memory.unauthenticated_bytes_max = 3 * MiB
        writer.write(request)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 503 ")

    serve(read_body, client, memory)


def test_a_chunked_body_is_refused_where_it_crosses_the_limit() -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(3):
            writer.write(b"100000\r\n" + b"x" * MiB + b"\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 413 ")

    serve(read_body, client)


def test_an_error_before_the_end_of_the_body_ends_the_connection() -> None:
    async def handler(request: Request) -> Reply:
        return Reply(404)

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody")
        assert b"connection" not in await reader.readuntil(b"\r\n\r\n")
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n")
        assert b"\r\nconnection: close\r\n" in await reader.readuntil(b"\r\n\r\n")
        writer.write(b"body")
        assert await reader.read() == b""

    serve(handler, client)
