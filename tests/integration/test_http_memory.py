"""The memory that one client can make a node hold over HTTP: unread answers, unfinished bodies and heads."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from .bad_input import MIB, bounded_memory, open_idle
from .cluster import NodeProcess, wait_for
from .guarded_node import Guarded, guarded_node
from .raw_http import Connection, call, open_many, settle

KIB = 1024
PEEKS = 80
MESSAGES = 16


@contextlib.asynccontextmanager
async def small_node(folder: Path, client_bytes_max: int) -> AsyncIterator[Guarded]:
    """A node whose clients have a small share of memory."""
    async with guarded_node(folder, admin=None) as guarded:
        guarded.node.gates.memory.client_bytes_max = client_bytes_max
        yield guarded


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - there is no event for held memory
            await asyncio.sleep(0.01)


async def until_held(guarded: Guarded, size_bytes: int) -> None:
    """Wait until exactly `size_bytes` are held for clients."""
    await until(lambda: guarded.node.gates.memory.clients_bytes == size_bytes)


def request(method: str, target: str, *headers: str) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


async def status(reader: asyncio.StreamReader) -> int:
    """Read one whole answer."""
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
    length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length: "))
    await asyncio.wait_for(reader.readexactly(int(length.partition(b": ")[2])), 60)
    return int(head[9:12])


def test_unread_peeks_are_refused_when_the_share_of_the_client_is_full(tmp_path: Path) -> None:
    """No more than the share is counted; a client beyond it gets an error; when the answers are read there is
    room again.
    """

    async def main() -> None:
        async with small_node(tmp_path, 40 * MIB) as guarded:
            memory = guarded.node.gates.memory
            for _ in range(8):
                await guarded.ask("POST", "/messages/q", None, data=b"x" * MIB)
            peek = request("GET", "/v1/queues/q/messages?limit=8&bytes=1048576")
            port = guarded.http.port
            streams = [await asyncio.open_connection("127.0.0.1", port, limit=KIB) for _ in range(12)]
            for _reader, writer in streams:
                writer.write(peek)
            first = asyncio.gather(*(status(reader) for reader, _writer in streams))
            while not first.done():
                assert memory.clients_bytes <= memory.client_bytes_max
                await asyncio.sleep(0)
            assert set(await first) == {200, 503}
            await until_held(guarded, 0)
            reader, writer = streams[0]
            writer.write(peek)
            assert await status(reader) == 200
            for _reader, writer in streams:
                writer.close()

    asyncio.run(main())


def test_a_pull_without_room_for_its_message_leaves_it_in_the_queue(tmp_path: Path) -> None:
    """The message is returned without a charged delivery."""

    async def main() -> None:
        async with small_node(tmp_path, 40 * MIB) as guarded:
            for _ in range(5):
                await guarded.ask("POST", "/messages/q", None, data=io.BytesIO(b"x" * (12 * MIB)))
            port = guarded.http.port
            streams = [await asyncio.open_connection("127.0.0.1", port, limit=KIB) for _ in range(4)]
            for place, (_reader, writer) in enumerate(streams[:3], 1):
                writer.write(request("GET", "/messages/q?t=0"))
                await until_held(guarded, place * 12 * MIB)
            late_reader, late_writer = streams[3]
            late_writer.write(request("GET", "/messages/q?t=0"))
            refused = (await asyncio.wait_for(late_reader.readuntil(b"\r\n\r\n"), 60)).decode()
            assert refused.startswith("HTTP/1.1 503 ")
            assert "x-lmq-error: overloaded: " in refused
            assert [await status(reader) for reader, _writer in streams[:3]] == [200, 200, 200]
            await until_held(guarded, 0)
            late_writer.write(request("GET", "/messages/q"))
            head = (await asyncio.wait_for(late_reader.readuntil(b"\r\n\r\n"), 60)).decode()
            assert "x-lmq-retry-remaining: 2" in head
            for _reader, writer in streams:
                writer.close()

    asyncio.run(main())


def test_announced_bodies_count_at_once(tmp_path: Path) -> None:
    """A body counts twice, because it arrives in pieces; small requests pass, and closed connections free
    their room.
    """

    async def main() -> None:
        async with small_node(tmp_path, 40 * MIB) as guarded:
            push = request("POST", "/messages/q", f"Content-Length: {4 * MIB}")
            streams = [await asyncio.open_connection("127.0.0.1", guarded.http.port) for _ in range(6)]
            for _reader, writer in streams[:5]:
                writer.write(push)
            await until_held(guarded, 40 * MIB)
            reader, writer = streams[5]
            writer.write(push)
            assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)).startswith(b"HTTP/1.1 503 ")
            assert (await guarded.ask("POST", "/messages/q", None, data=b"small"))[0] == 200
            for _reader, writer in streams:
                writer.close()
            await until_held(guarded, 0)
            assert (await guarded.ask("POST", "/messages/q", None, data=io.BytesIO(b"x" * (4 * MIB))))[0] == 200

    asyncio.run(main())


def test_80_unread_peeks_take_no_more_than_a_clients_share(node: NodeProcess, queue_name: str) -> None:
    """The share is 128 to 512 MiB, depending on the machine's memory; the node logs it."""
    lines = map(json.loads, node.log().splitlines())
    share = next(int(line["one_client_bytes"]) for line in lines if line["event"] == "memory for clients")
    for _ in range(MESSAGES):
        assert call(node.http, "POST", f"/messages/{queue_name}", bytes(range(256)) * 2048).status == 200
    with bounded_memory([node], share + 100 * MIB), open_many([node.http] * PEEKS) as connections:
        for connection in connections:
            connection.ask("GET", f"/v1/queues/{queue_name}/messages?limit={MESSAGES}&bytes={MIB}")
        statuses = [connection.read().status for connection in connections]
        assert 200 in statuses
        assert set(statuses) <= {200, 503}
    call(node.http, "DELETE", f"/queues/{queue_name}")


@pytest.mark.parametrize("in_pieces", [False, True])
def test_a_head_without_end_is_431(node: NodeProcess, in_pieces: bool) -> None:
    """Each line is within its limit; together they are not."""
    with Connection(node.http) as connection:
        connection.send(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n")
        for number in range(9):
            connection.send(b"X-%d: " % number + b"v" * 4000 + b"\r\n")
            if in_pieces:
                settle(node.http)
        assert connection.read().status == 431


def test_half_sent_heads_take_little(node: NodeProcess) -> None:
    """There are 400 of them with 28 KB each."""
    head = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + b"".join(
        b"X-%d: %b\r\n" % (i, b"v" * 4000) for i in range(7)
    )
    with bounded_memory([node], 100 * MIB), open_idle(node.http, 400, lambda _number: head):
        settle(node.http)
    wait_for(lambda: call(node.http, "GET", "/stats").status == 200, "the node answers others")
