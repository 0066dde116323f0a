"""A front end's connection that repeats a request: the answer comes before anything that follows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from lmqcluster.front_end import client_connection
from lmqcluster.front_end.client_connection import ClientConnection
from lmqcluster.ports.front_ends.channel import Channel, Operation
from lmqcluster.wire.legacy_msgpack import pack
from lmqcluster.wire.repeats import REPEATED_BYTES_MAX, RepeatedCall

NUMBER, GROUP = 5, 3


def push(msgid: int, content: bytes = b"x") -> bytes:
    return pack([0, msgid, b"push", [b"q", content]])


class Recorder(Channel):
    """A channel that keeps what is sent."""

    def __init__(self) -> None:
        super().__init__(lambda _frame: None, lambda: None)
        self.sent: list[tuple[str, Any]] = []

    def send(self, operation: int, connection: int, value: Any = None) -> None:
        assert connection == NUMBER
        self.sent.append((Operation(operation).name, value))

    def send_data(self, operation: int, connection: int, data: bytes) -> None:
        self.send(operation, connection, data)

    def send_repeat(self, group: int, connection: int, body: object, size_bytes: int) -> None:
        assert group == GROUP
        self.send(Operation.REPEATS, connection, body)


class Transport(asyncio.Transport):
    """A transport that keeps what happens to it."""

    def __init__(self) -> None:
        super().__init__({"socket": None})
        self.written: list[bytes] = []
        self.happened: list[str] = []
        self._closing = False

    def write(self, data: Any) -> None:
        self.written.append(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert (high, low) == (1, 0)

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._closing = True
        self.happened.append("close")

    def write_eof(self) -> None:
        self.happened.append("end")

    def abort(self) -> None:
        self.happened.append("abort")

    def pause_reading(self) -> None:
        self.happened.append("pause")

    def resume_reading(self) -> None:
        self.happened.append("resume")


Scenario = Callable[[ClientConnection, Recorder, Transport], None]


def run(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a scenario on a connection that may repeat a push."""

    async def main() -> None:
        channel, transport = Recorder(), Transport()
        connection = ClientConnection(channel, NUMBER, lambda _number, _connection: None, lambda _number: None)
        connection.connection_made(transport)
        channel.sent.clear()
        connection.repeat(GROUP, RepeatedCall(b"q"))
        scenario(connection, channel, transport)

    monkeypatch.setattr(client_connection, "keep_alive", lambda _transport: None)
    monkeypatch.setattr(client_connection, "may_be_half_closed", lambda _transport: False)
    asyncio.run(main())


def test_repetitions_are_sent_without_their_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    def scenario(connection: ClientConnection, channel: Recorder, transport: Transport) -> None:
        for msgid in (1, 300):
            connection.data_received(push(msgid))
            connection.answer(b"<", b">")
        assert channel.sent == [("REPEATS", pack(b"x"))] * 2
        assert transport.written == [b"<" + pack(1) + b">", b"<" + pack(300) + b">"]
        assert transport.happened == []

    run(scenario, monkeypatch)


def test_other_bytes_end_the_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    def scenario(connection: ClientConnection, channel: Recorder, _transport: Transport) -> None:
        other = push(1) + push(2)
        connection.data_received(other)
        connection.data_received(push(3))
        assert channel.sent == [("DATA", other), ("DATA", push(3))]

    run(scenario, monkeypatch)


def test_what_follows_a_repetition_waits_for_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def scenario(connection: ClientConnection, channel: Recorder, transport: Transport) -> None:
        connection.data_received(push(1))
        connection.data_received(push(2))
        connection.data_received(push(3)[:4])
        assert channel.sent == [("REPEATS", pack(b"x"))]
        assert transport.happened == ["pause"]
        connection.answer(b"", b"")
        assert channel.sent == [("REPEATS", pack(b"x"))] * 2
        connection.answer(b"", b"")
        assert channel.sent[2:] == [("DATA", push(3)[:4])]
        assert transport.happened == ["pause", "resume"]

    run(scenario, monkeypatch)


def test_the_end_waits_for_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def scenario(connection: ClientConnection, channel: Recorder, transport: Transport) -> None:
        connection.data_received(push(1))
        connection.data_received(push(2))
        connection.eof_received()
        connection.answer(b"1", b"")
        assert ("END", None) not in channel.sent
        connection.answer(b"2", b"")
        assert channel.sent[-1] == ("END", None)
        assert len(transport.written) == 2

    run(scenario, monkeypatch)


def test_the_node_closes_after_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def scenario(connection: ClientConnection, _channel: Recorder, transport: Transport) -> None:
        connection.data_received(push(1))
        connection.close()
        assert transport.happened == []
        connection.answer(b"<", b">")
        assert transport.happened == ["close"]
        assert len(transport.written) == 1

    run(scenario, monkeypatch)


def test_without_an_answer_the_connection_ends_with_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def scenario(connection: ClientConnection, _channel: Recorder, transport: Transport) -> None:
        connection.data_received(push(1))
        connection.finish()
        assert transport.happened == ["close"]

    run(scenario, monkeypatch)


def test_a_refused_repetition_is_sent_in_full_and_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def scenario(connection: ClientConnection, channel: Recorder, transport: Transport) -> None:
        connection.data_received(push(1))
        connection.data_received(push(2))
        connection.eof_received()
        connection.send_in_full()
        assert channel.sent[1:] == [("DATA", push(1)), ("DATA", push(2)), ("END", None)]
        assert transport.written == []
        # The answer to what was sent in full arrives like any other.
        connection.write(b"answer")
        assert transport.written == [b"answer"]

    run(scenario, monkeypatch)


def test_a_client_that_does_not_read_is_left_to_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def scenario(connection: ClientConnection, channel: Recorder, _transport: Transport) -> None:
        connection.pause_writing()
        connection.data_received(push(1))
        assert channel.sent == [("DATA", push(1))]

    run(scenario, monkeypatch)


def test_a_large_repetition_is_sent_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    def scenario(connection: ClientConnection, channel: Recorder, _transport: Transport) -> None:
        connection.data_received(push(1, bytes(REPEATED_BYTES_MAX)))
        assert [name for name, _value in channel.sent] == ["DATA"]

    run(scenario, monkeypatch)


def test_the_node_sees_an_active_client_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_connection, "REPEAT_S", -1.0)

    def scenario(connection: ClientConnection, channel: Recorder, _transport: Transport) -> None:
        connection.data_received(push(1))
        assert channel.sent == [("DATA", push(1))]

    run(scenario, monkeypatch)


def test_nothing_is_written_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """asyncio's transports raise an error then."""

    def scenario(connection: ClientConnection, channel: Recorder, transport: Transport) -> None:
        connection.data_received(push(1))
        connection.write_end()
        connection.write(b"late")
        connection.answer(b"", b"")
        connection.data_received(push(2))
        assert (transport.happened, transport.written) == (["end"], [])
        assert channel.sent[1:] == [("DATA", push(2))]

    run(scenario, monkeypatch)


def test_a_connection_that_closes_repeats_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def scenario(connection: ClientConnection, channel: Recorder, transport: Transport) -> None:
        connection.data_received(push(1))
        connection.data_received(push(2))
        connection.close()
        connection.answer(b"", b"")
        assert transport.happened[-1] == "close"
        assert [name for name, _value in channel.sent] == ["REPEATS", "DATA"]

    run(scenario, monkeypatch)


def test_a_frame_has_one_operation_for_a_group() -> None:
    async def main() -> list[Any]:
        frames: list[Any] = []

        class Socket(asyncio.Transport):
            def write(self, data: Any) -> None:
                channel.data_received(data)

            def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
                pass

        channel = Channel(frames.append, lambda: None)
        channel.connection_made(Socket())
        channel.send_repeat(1, 10, b"a", 1)
        channel.send_data(Operation.DATA, 11, b"data")
        channel.send_repeat(2, 12, b"b", 1)
        channel.send_repeat(1, 13, b"c", 1)
        channel.send_repeat(1, 15, b"e", 1)
        await asyncio.sleep(0)
        channel.send_repeat(1, 14, b"d", 1)
        await asyncio.sleep(0)
        return frames

    repeats = int(Operation.REPEATS)
    assert asyncio.run(main()) == [
        # Nothing joins an operation before data, which may be of the same connection.
        [
            *(repeats, 1, [[10], [b"a"]]),
            *(int(Operation.DATA), 11, b"data"),
            *(repeats, 2, [[12], [b"b"]]),
            *(repeats, 1, [[13, 15], [b"c", b"e"]]),
        ],
        [repeats, 1, [[14], [b"d"]]],
    ]
