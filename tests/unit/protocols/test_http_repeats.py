"""Requests that repeat the head of an earlier one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

import pytest
from aiohttp import web

from lmqcluster.ports import Answer, Bounds, ConnectionLimiter, Listener, Memory
from lmqcluster.protocols.http.server import connection as connections
from lmqcluster.protocols.http.server.connection import Connection
from lmqcluster.protocols.http.server.http_server import HttpServer
from lmqcluster.protocols.http.server.repeat_groups import RepeatGroups, _TurnGroup
from lmqcluster.protocols.http.server.replies.reply import Reply
from lmqcluster.protocols.http.server.requests.request import Request
from lmqcluster.wire.repeats import RepeatedHead

HEAD = b"POST /messages/q HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\nX: 1\r\n\r\n"


def post(body: bytes) -> bytes:
    return HEAD % len(body) + body


class Outcome:
    """A repetition without an answer."""

    def __init__(self, end: Callable[[bytes], None]) -> None:
        self._end = end

    def set_result(self, flag: int) -> None:
        self._end(b"flag %d" % flag)


class Group:
    """The repetitions of all connections, each of which begins unless its body is ``refused``; ``bug`` raises."""

    def __init__(self, repeating: Repeating, answer: Answer) -> None:
        self._repeating = repeating
        self._answer = answer

    def start(self, connections: list[Any], bodies: list[bytes]) -> bool:
        repeating = self._repeating
        repeating.turns.append(len(bodies))
        if b"bug" in bodies:
            raise RuntimeError("a bug")
        if b"refused" in bodies:
            return False
        if repeating.answers_together:
            content = Reply(200, content=b"together").whole()
            asyncio.get_running_loop().call_soon(self._answer, connections, content, b"")
            return True
        for connection, body in zip(connections, bodies, strict=True):
            repeating.outcomes.append((body, Outcome(partial(self._end, connection))))
        repeating.begun.set()
        return True

    def _end(self, connection: Any, content: bytes) -> None:
        self._answer([connection], Reply(200, content=content).whole(), b"")


class Repeating:
    """A server whose first request may be repeated.

    Attributes:
        full: bodies of requests that were handled in full.
        outcomes: of repetitions, with their bodies.
        turns: how many repetitions began together.
        answers_together: whether those of a turn are answered at once.
    """

    def __init__(self) -> None:
        self.full: list[bytes] = []
        self.outcomes: list[tuple[bytes, Outcome]] = []
        self.turns: list[int] = []
        self.answers_together = False
        self.begun = asyncio.Event()
        self.groups = RepeatGroups()
        self.reply: type[Reply] = Reply
        self.server = HttpServer(self._handle)

    async def _handle(self, request: Request) -> Reply:
        connection = cast("Connection", request.protocol)
        self.full.append(await request.read_body(100_000))
        head = RepeatedHead.of(connection.head)
        if head is not None:
            self.groups.offer(connection, "", "all", head, partial(Group, self))
        return self.reply(200, content=b"full")


class EarlyReply(Reply):
    """An answer whose client sends the next request, in two pieces, before the task of the connection waits for it."""

    async def prepare(self, request: web.BaseRequest) -> None:
        await super().prepare(request)
        asyncio.get_running_loop().call_soon(self._receive, cast("Connection", request.protocol))

    def _receive(self, connection: Connection) -> None:
        data = post(b"early")
        connection.data_received(data[:9])
        connection.data_received(data[9:])


class EarlyEnd(EarlyReply):
    """The same of a client that then ends its half of the connection."""

    def _receive(self, connection: Connection) -> None:
        if connection.answered == 1:
            super()._receive(connection)
            assert connection.eof_received()


Scenario = Callable[[Repeating, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def serve(scenario: Scenario, reply: type[Reply] = Reply) -> None:
    async def main() -> None:
        repeating = Repeating()
        repeating.reply = reply
        gate = ConnectionLimiter("http", Bounds(10, 10), Memory(1 << 30), lambda _address: False)
        listener = Listener(gate, repeating.server.connect)
        reader, writer = await asyncio.open_connection("127.0.0.1", await listener.start("127.0.0.1", 0))
        try:
            writer.write(post(b"first"))
            assert await answer(reader) == b"full"
            await scenario(repeating, reader, writer)
        finally:
            writer.transport.abort()
            listener.close()
            await repeating.server.shutdown(1)

    asyncio.run(asyncio.wait_for(main(), 20))


async def answer(reader: asyncio.StreamReader, status: int = 200) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), head
    length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return await reader.readexactly(length)


async def repeat(
    repeating: Repeating, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes
) -> Outcome:
    """Send a repetition and return it, without an answer."""
    repeating.begun.clear()
    writer.write(post(body))
    await repeating.begun.wait()
    taken, outcome = repeating.outcomes[-1]
    assert taken == body
    return outcome


def test_repetitions_are_not_handled_in_full() -> None:
    async def scenario(repeating: Repeating, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for body in (b"", b"x", b"y" * 1000):
            (await repeat(repeating, reader, writer, body)).set_result(len(body))
            assert await answer(reader) == b"flag %d" % len(body)
        assert repeating.full == [b"first"]

    serve(scenario)


def test_a_repetition_is_recognized_however_early_it_arrives() -> None:
    async def scenario(repeating: Repeating, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await repeating.begun.wait()
        ((taken, outcome),) = repeating.outcomes
        outcome.set_result(7)
        assert (taken, await answer(reader)) == (b"early", b"flag 7")
        (await repeat(repeating, reader, writer, b"next")).set_result(8)
        assert await answer(reader) == b"flag 8"
        assert repeating.full == [b"first"]

    serve(scenario, EarlyReply)


def test_an_early_request_is_answered_before_its_connection_ends() -> None:
    async def scenario(repeating: Repeating, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await answer(reader) == b"full"
        assert repeating.full == [b"first", b"early"]
        assert await reader.read() == b""

    serve(scenario, EarlyEnd)


def test_repetitions_of_a_turn_begin_together() -> None:
    async def scenario(repeating: Repeating, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        streams = [(reader, writer)]
        for _ in range(3):
            streams.append(await asyncio.open_connection(*writer.get_extra_info("peername")))
            streams[-1][1].write(post(b"first"))
            assert await answer(streams[-1][0]) == b"full"
        for number, (_reader, own) in enumerate(streams):
            own.write(post(b"%d" % number))
        while len(repeating.outcomes) < len(streams):
            repeating.begun.clear()
            await repeating.begun.wait()
        assert sum(repeating.turns) == len(streams) > len(repeating.turns)
        for body, outcome in reversed(repeating.outcomes):
            outcome.set_result(int(body))
        for number, (own_reader, own) in enumerate(streams):
            assert await answer(own_reader) == b"flag %d" % number
            own.close()

    serve(scenario)


def test_many_bytes_begin_before_the_turn_ends() -> None:
    async def main() -> list[int]:
        repeating = Repeating()
        group = _TurnGroup(partial(Group, repeating))
        for _ in range(100):
            group.add(cast("Connection", None), b"x", 16 * 1024)
        await asyncio.sleep(0)
        return repeating.turns

    assert asyncio.run(main()) == [16] * 6 + [4]


def test_refused_repetitions_are_handled_in_full() -> None:
    async def scenario(repeating: Repeating, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(3):
            writer.write(post(b"refused"))
            assert await answer(reader) == b"full"
        writer.write(post(b"refused") + post(b"piece")[:20])
        assert await answer(reader) == b"full"
        writer.write(post(b"piece")[20:])
        assert await answer(reader) == b"full"
        assert repeating.full == [b"first", *[b"refused"] * 4, b"piece"]
        (await repeat(repeating, reader, writer, b"x")).set_result(1)
        assert await answer(reader) == b"flag 1"

    serve(scenario)


def test_a_repetition_that_fails_ends_its_connection() -> None:
    async def scenario(repeating: Repeating, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(post(b"bug"))
        assert await reader.read() == b""
        assert repeating.turns == [1]

    serve(scenario)


def test_a_connection_that_fails_does_not_keep_others_from_their_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections of one group that are answered, or handled in full, together: the first of each two fails."""

    async def scenario(repeating: Repeating, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for body, method in ((b"x", "answer_repetition"), (b"refused", "repeat_in_full")):
            second_reader, second = await asyncio.open_connection(*writer.get_extra_info("peername"))
            third_reader, third = await asyncio.open_connection(*writer.get_extra_info("peername"))
            for own_reader, own in ((second_reader, second), (third_reader, third)):
                own.write(post(b"first"))
                assert await answer(own_reader) == b"full"
            right = getattr(Connection, method)
            failed: list[Connection] = []

            def act(connection: Connection, *arguments: Any, failed: Any = failed, right: Any = right) -> None:
                if not failed:
                    failed.append(connection)
                    raise RuntimeError("a bug")
                right(connection, *arguments)

            monkeypatch.setattr(Connection, method, act)
            repeating.answers_together = True
            second.write(post(body))
            third.write(post(body))
            ends = await asyncio.gather(second_reader.readline(), third_reader.readline())
            assert sorted(ends) == [b"", b"HTTP/1.1 200 OK\r\n"]
            assert repeating.turns[-1] == 2
            monkeypatch.setattr(Connection, method, right)
            second.close()
            third.close()

    serve(scenario)


def test_the_last_request_of_a_connection_is_handled_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUESTS_PER_CONNECTION_MAX", 2)

    async def scenario(repeating: Repeating, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (await repeat(repeating, reader, writer, b"x")).set_result(1)
        assert await answer(reader) == b"flag 1"
        writer.write(post(b"last"))
        assert await answer(reader) == b"full"
        assert repeating.full == [b"first", b"last"]

    serve(scenario)


def test_requests_behind_a_repetition_wait_for_its_answer() -> None:
    async def scenario(repeating: Repeating, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        outcome = await repeat(repeating, reader, writer, b"x")
        for body in (b"a", b"b", b"c"):
            writer.write(post(body))
        other = b"POST /other HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nother"
        writer.write(other[:20])
        # By the time a connection opened later has its answer, the server has read everything.
        host, port = writer.get_extra_info("peername")
        last_reader, last_writer = await asyncio.open_connection(host, port)
        last_writer.write(post(b"last"))
        assert await answer(last_reader) == b"full"
        last_writer.close()
        assert repeating.full == [b"first", b"last"]
        outcome.set_result(1)
        assert await answer(reader) == b"flag 1"
        writer.write(other[20:])
        for _ in range(4):
            assert await answer(reader) == b"full"
        assert repeating.full == [b"first", b"last", b"a", b"b", b"c", b"other"]

    serve(scenario)


def test_a_request_in_pieces_is_handled_in_full() -> None:
    async def scenario(repeating: Repeating, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent = post(b"piece")
        for start in range(0, len(sent), 10):
            writer.write(sent[start : start + 10])
            await asyncio.sleep(0.001)
        assert await answer(reader) == b"full"
        (await repeat(repeating, reader, writer, b"x")).set_result(1)
        assert await answer(reader) == b"flag 1"
        assert repeating.full == [b"first", b"piece"]

    serve(scenario)


def test_a_client_that_disconnects_gets_no_answer() -> None:
    async def scenario(repeating: Repeating, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        outcome = await repeat(repeating, reader, writer, b"x")
        writer.transport.abort()
        # The server waits for the answer or for the end of the connection.
        await repeating.server.shutdown(10)
        outcome.set_result(1)

    serve(scenario)


def test_a_half_closed_client_gets_its_answer() -> None:
    async def scenario(repeating: Repeating, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        outcome = await repeat(repeating, reader, writer, b"x")
        writer.write_eof()
        assert await reader.readexactly(9) == b"HTTP/1.1 "
        outcome.set_result(1)
        rest = await reader.read()
        assert rest.startswith(b"200 OK\r\n")
        assert b"\r\nconnection: close\r\n" in rest
        assert rest.endswith(b"\r\n\r\nflag 1")

    serve(scenario)


def test_a_stopping_server_answers_a_repetition() -> None:
    async def scenario(repeating: Repeating, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        outcome = await repeat(repeating, reader, writer, b"x")
        repeating.server.pre_shutdown()
        stop = asyncio.ensure_future(repeating.server.shutdown(10))
        await asyncio.sleep(0)
        outcome.set_result(1)
        rest = await reader.read()
        assert rest.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"\r\nconnection: close\r\n" in rest
        assert rest.endswith(b"\r\n\r\nflag 1")
        await stop

    serve(scenario)


def test_a_repetition_may_take_longer_than_an_idle_connection_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "IDLE_S", 0.05)

    async def scenario(repeating: Repeating, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        outcome = await repeat(repeating, reader, writer, b"x")
        await asyncio.sleep(0.3)
        outcome.set_result(1)
        assert await answer(reader) == b"flag 1"
        # The connection is idle now.
        assert await reader.read() == b""

    serve(scenario)
