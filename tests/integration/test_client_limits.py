"""Limits per client address, and timeouts for slow or silent clients."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp

from lmqcluster.ports import Ending

from .guarded_node import ADMIN, Guarded, guarded_node

DEADLINE_S = 180.0


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await main()

    asyncio.run(bounded())


async def trickle(port: int, begin: bytes) -> bytes:
    """Send `begin` and then single bytes with pauses; return the node's output until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    said = bytearray()

    async def listen() -> None:
        # A byte that reaches the closed connection may reset it.
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                said.extend(data)

    listening = asyncio.ensure_future(listen())
    writer.write(begin)
    while not listening.done():
        if not said:
            writer.write(b"x")
        await asyncio.wait((listening,), timeout=0.1)
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return bytes(said)


async def is_refused(guarded: Guarded) -> bool:
    """Return whether one more connection is closed at once."""
    try:
        await (await guarded.connect()).call("ping")
    except (EOFError, ConnectionError):
        return True
    return False


async def is_served(guarded: Guarded) -> bool:
    """Return whether one more HTTP connection is answered."""
    try:
        return (await guarded.ask("GET", "/livez", None))[0] == 200
    except aiohttp.ClientError:
        return False


def test_connections_per_address_are_limited(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded_node(tmp_path, admin=None, connections_per_client_max=2) as guarded:
            first, second = await guarded.connect(), await guarded.connect()
            assert await first.call("ping") == await second.call("ping") == (None, b"pong")
            assert await (await guarded.connect()).read_end() == b""
            assert guarded.rpc.gate.endings[Ending.CLIENT_FULL] == 1
            assert await second.call("ping") == (None, b"pong")
            # The oldest connection without a request is closed to make room.
            places = [await asyncio.open_connection("127.0.0.1", guarded.http.port) for _ in range(3)]
            assert await places[0][0].read() == b""
            for _, writer in places:
                writer.close()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()
            # Each port counts separately, and a free place is reused.
            while not await is_served(guarded):  # noqa: ASYNC110  the node takes note of the ends when it gets to them
                await asyncio.sleep(0.01)
            await first.close()
            while await is_refused(guarded):  # noqa: ASYNC110  the node takes note of the end when it gets to it
                await asyncio.sleep(0.01)
            assert await second.call("ping") == (None, b"pong")

    run(main)


def test_requests_per_address_are_limited(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded_node(tmp_path, admin=None, requests_per_client_max=20) as guarded:
            answers = [await guarded.session.get(f"http://127.0.0.1:{guarded.http.port}/v1/access") for _ in range(200)]
            refused = [answer for answer in answers if answer.status == 429]
            assert {answer.status for answer in answers} == {200, 429}
            assert refused[0].headers["retry-after"] == "1"
            assert (await refused[0].json(content_type=None))["code"] == "throttled"
            rpc = await guarded.connect()
            assert (await rpc.call("producer", "a producer", 1))[0] is None
            errors = [(await rpc.call("push", "q", "x"))[0] for _ in range(200)]
            assert None in errors
            assert any(error is not None and error.startswith(b"overloaded: this address") for error in errors)
            # A refused push has used up its number nevertheless.
            (connection,) = guarded.rpc._connections
            assert connection.next_sequence == 201
            while (await rpc.call("ping"))[0] is not None:  # noqa: ASYNC110  time goes on by itself
                await asyncio.sleep(0.05)

    run(main)


def test_a_request_that_arrives_byte_by_byte_times_out(tmp_path: Path) -> None:
    """Each byte is in time for a limit on silence alone."""

    async def main() -> None:
        async with guarded_node(tmp_path, admin=None, request_seconds_max=1) as guarded:
            body = b"POST /v1/queues/q/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n"
            head = b"POST /messages/q HTTP/1.1\r\nhost: localhost\r\nx-more: "
            push = b"\x94\x00\x01\xa4push\x92\xa1q\xdb\x00\x01\x00\x00"
            answers = await asyncio.gather(
                trickle(guarded.http.port, body), trickle(guarded.http.port, head), trickle(guarded.rpc.port, push)
            )
            assert b"did not arrive in time" in answers[0]
            assert list(answers[1:]) == [b"", b""]
            assert (await guarded.ask("POST", "/messages/q", None, data=b"x" * 500_000))[0] == 200

    run(main)


def test_an_idle_connection_is_closed(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded_node(tmp_path, admin=None, idle_seconds_max=1) as guarded:
            waiting, idle = await guarded.connect(), await guarded.connect()
            pull = asyncio.ensure_future(waiting.call("pull", "q"))
            assert await idle.read_end() == b""
            assert (await guarded.ask("POST", "/messages/q", None, data=b"x"))[0] == 200
            assert (await pull)[1][b"content"] == b"x"

    run(main)


def test_an_unauthenticated_connection_is_closed(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded_node(tmp_path, request_seconds_max=1) as guarded:
            stranger, known = await guarded.connect(), await guarded.connect(ADMIN)
            with contextlib.suppress(EOFError, ConnectionError):
                # Repeated refusals do not keep the connection open.
                while (await stranger.call("ping"))[0] is not None:  # noqa: ASYNC110  time goes on by itself
                    await asyncio.sleep(0.1)
            assert await known.call("ping") == (None, b"pong")

    run(main)


def test_a_closed_connection_leaves_no_objects(tmp_path: Path) -> None:
    """They must not even wait for the garbage collector, which practically never collects the oldest
    generation in a node.
    """

    async def main() -> None:
        async with guarded_node(tmp_path) as guarded:
            gc.collect()
            gc.disable()
            try:
                known, stranger = await guarded.connect(ADMIN), await guarded.connect()
                assert await known.call("push", "q", [1, {"a": "b"}]) == (None, b"ok")
                assert (await known.call("peek", "q", 10, 0))[0] is None
                assert (await stranger.call("ping"))[0] is not None
                left = [weakref.ref(one) for one in guarded.rpc._connections]
                places = [weakref.ref(one().place) for one in left]
                assert len(left) == 2
                await known.close()
                await stranger.close()
                while guarded.rpc._connections:  # noqa: ASYNC110  the node takes note of the ends when it gets to them
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0)
                assert [one() for one in left + places] == [None] * 4
            finally:
                gc.enable()

    run(main)
