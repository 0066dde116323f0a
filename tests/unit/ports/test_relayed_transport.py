"""The transport of a relayed connection: windows, pauses, and its end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lmqcluster.ports.front_ends.channel import (
    READ_REPORT_BYTES,
    WINDOW_BYTES,
    WRITE_REPORT_BYTES,
    Channel,
    Operation,
)
from lmqcluster.ports.front_ends.relayed_transport import HIGH_BYTES, RelayedTransport
from lmqcluster.ports.front_ends.repeats import Answer, Repeats
from lmqcluster.wire.repeats import RepeatedCall

NUMBER = 7


class _Recorder(Channel):
    """A channel that keeps what is sent."""

    def __init__(self) -> None:
        super().__init__(lambda _frame: None, lambda: None)
        self.sent: list[tuple[int, Any]] = []

    def send(self, operation: int, connection: int, value: Any = None) -> None:
        assert connection == (0 if operation == Operation.ANSWERS else NUMBER)
        self.sent.append((operation, value))

    def send_data(self, operation: int, connection: int, data: bytes) -> None:
        self.send(operation, connection, data)

    def written(self) -> bytes:
        return b"".join(value for operation, value in self.sent if operation == Operation.WRITE)

    def operations(self) -> list[int]:
        return [operation for operation, _value in self.sent]


class _Protocol(asyncio.Protocol):
    """A protocol that keeps what happens."""

    def __init__(self) -> None:
        self.received = b""
        self.happened: list[str] = []
        self.keeps_open = False
        self.fails = False

    def data_received(self, data: bytes) -> None:
        if self.fails:
            raise RuntimeError("a bug")
        self.received += data

    def eof_received(self) -> bool:
        self.happened.append("end")
        return self.keeps_open

    def pause_writing(self) -> None:
        self.happened.append("pause")

    def resume_writing(self) -> None:
        self.happened.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        assert exc is None
        self.happened.append("lost")


Scenario = Callable[[RelayedTransport, _Recorder, _Protocol], Awaitable[None]]


def run(scenario: Scenario, *, is_tls: bool = False) -> None:
    async def main() -> None:
        channel, protocol = _Recorder(), _Protocol()
        transport = RelayedTransport(channel, NUMBER, ("127.0.0.1", 1), protocol, Repeats(channel), is_tls=is_tls)
        await scenario(transport, channel, protocol)

    asyncio.run(main())


def test_no_more_than_a_window_is_on_its_way_and_the_order_is_kept() -> None:
    async def scenario(transport: RelayedTransport, channel: _Recorder, protocol: _Protocol) -> None:
        data, written = random.Random(1).randbytes(5 * WINDOW_BYTES + 123), 0
        for start in range(0, len(data), 10_007):
            transport.write(data[start : start + 10_007])
        transport.close()
        while written < len(data):
            on_the_way = len(channel.written()) - written
            assert 0 < on_the_way <= WINDOW_BYTES
            assert transport.get_write_buffer_size() == len(data) - written
            step = min(WRITE_REPORT_BYTES, on_the_way)
            transport.written(step)
            written += step
        assert channel.written() == data
        assert channel.operations()[-1] == Operation.CLOSE
        assert channel.operations().count(Operation.CLOSE) == 1
        assert protocol.happened == ["pause", "resume"]

    run(scenario)


def test_an_answer_to_a_repeated_request_keeps_its_place() -> None:
    """A large answer that does not fit the window is not interrupted."""

    async def scenario(transport: RelayedTransport, channel: _Recorder, _protocol: _Protocol) -> None:
        answers: list[Answer] = []

        class Group:
            def __init__(self, answer: Answer) -> None:
                answers.append(answer)

            def start(self, connections: list[int], bodies: list[bytes]) -> bool:
                assert (connections, bodies) == ([NUMBER], [b"x"])
                return True

        transport.offer_repeat("q", RepeatedCall(b"q"), Group)
        transport._repeats.received(1, [NUMBER], [b"x"])
        transport.write(b"a" * (WINDOW_BYTES + 10))
        answers[0]([NUMBER], b"<", b">")
        transport.write(b"b")
        transport.written(WINDOW_BYTES)
        assert channel.operations()[1:] == [Operation.WRITE, Operation.WRITE, Operation.ANSWERS, Operation.WRITE]
        assert channel.sent[3:] == [(Operation.ANSWERS, ([NUMBER], b"<", b">")), (Operation.WRITE, b"b")]
        answers[0]([NUMBER], b"<", b">")
        assert channel.operations()[-1] == Operation.ANSWERS

    run(scenario)


@pytest.mark.parametrize("end", ["close", "abort", "write_eof", "received", "lost"])
def test_what_happens_to_a_connection_ends_its_repetitions(end: str) -> None:
    async def scenario(transport: RelayedTransport, channel: _Recorder, _protocol: _Protocol) -> None:
        class Group:
            def __init__(self, _answer: Answer) -> None:
                pass

            def start(self, connections: list[int], _bodies: list[bytes]) -> bool:
                raise AssertionError(connections)

        transport.offer_repeat("q", RepeatedCall(b"q"), Group)
        transport.received(b"x") if end == "received" else getattr(transport, end)()
        channel.sent.clear()
        transport._repeats._channel = Channel(lambda _frame: None, lambda: None)
        transport._repeats.received(1, [NUMBER], [b"x"])

    run(scenario)


def test_nothing_is_offered_while_bytes_wait() -> None:
    """Neither while reading is paused, nor by the first of several pieces that waited."""

    async def scenario(transport: RelayedTransport, channel: _Recorder, protocol: _Protocol) -> None:
        def offer(data: bytes) -> None:
            offered.append((data, transport.offer_repeat("q", RepeatedCall(b"q"), lambda _answer: None)))  # type: ignore[arg-type, return-value]

        offered: list[tuple[bytes, object]] = []
        protocol.data_received = offer  # type: ignore[method-assign]
        transport.pause_reading()
        offer(b"0")
        transport.received(b"1")
        transport.received(b"2")
        transport.resume_reading()
        await asyncio.sleep(0)
        assert [data for data, _group in offered] == [b"0", b"1", b"2"]
        assert [operation for operation in channel.operations() if operation == Operation.REPEAT] == [Operation.REPEAT]

    run(scenario)


def test_nothing_follows_the_end_of_the_sending_side() -> None:
    async def scenario(transport: RelayedTransport, channel: _Recorder, _protocol: _Protocol) -> None:
        transport.write_eof()
        transport.write(b"late")
        assert channel.operations() == [Operation.WRITE_END]

    run(scenario)


def test_writing_resumes_although_the_last_bytes_are_not_reported() -> None:
    async def scenario(transport: RelayedTransport, channel: _Recorder, protocol: _Protocol) -> None:
        transport.set_write_buffer_limits(high=16 * 1024)
        transport.write(bytes(16 * 1024 + 1))
        assert protocol.happened == ["pause"]
        transport.written(16 * 1024 + 1 - (WRITE_REPORT_BYTES - 1))
        assert protocol.happened == ["pause", "resume"]
        assert channel.operations() == [Operation.WRITE]

    run(scenario)


def test_nothing_is_delivered_while_reading_is_paused() -> None:
    async def scenario(transport: RelayedTransport, channel: _Recorder, protocol: _Protocol) -> None:
        transport.received(b"1")
        transport.pause_reading()
        transport.pause_reading()
        transport.received(b"2")
        transport.received(None)
        assert (protocol.received, protocol.happened) == (b"1", [])
        transport.resume_reading()
        transport.received(b"3")
        await asyncio.sleep(0)
        assert (protocol.received, protocol.happened) == (b"12", ["end"])
        assert channel.operations() == [Operation.PAUSE, Operation.RESUME, Operation.CLOSE]

    run(scenario)


def test_taken_bytes_are_reported() -> None:
    async def scenario(transport: RelayedTransport, channel: _Recorder, protocol: _Protocol) -> None:
        for _ in range(4):
            transport.received(bytes(READ_REPORT_BYTES // 2))
        assert channel.sent == [(Operation.TAKEN, READ_REPORT_BYTES)] * 2
        assert len(protocol.received) == 2 * READ_REPORT_BYTES

    run(scenario)


@pytest.mark.parametrize("how", ["abort", "failure", "lost"])
def test_the_end_is_told_once_and_nothing_follows(how: str) -> None:
    async def scenario(transport: RelayedTransport, channel: _Recorder, protocol: _Protocol) -> None:
        transport.write(bytes(HIGH_BYTES + WINDOW_BYTES))
        waiting = asyncio.ensure_future(transport.wait_for_acknowledgement())
        await asyncio.sleep(0)
        if how == "abort":
            transport.abort()
        elif how == "failure":
            protocol.fails = True
            transport.received(b"x")
        else:
            transport.lost()
        await asyncio.sleep(0)
        transport.lost()
        assert await waiting is False
        assert await transport.wait_for_acknowledgement() is False
        sent = len(channel.sent)
        transport.write(b"late")
        transport.received(b"late")
        transport.close()
        assert transport.is_closing()
        assert len(channel.sent) == sent
        assert protocol.happened == ["pause", "lost"]
        assert (Operation.ABORT in channel.operations()) == (how != "lost")

    run(scenario)


def test_a_half_closed_client_is_served_if_the_protocol_wants() -> None:
    async def scenario(transport: RelayedTransport, channel: _Recorder, protocol: _Protocol) -> None:
        protocol.keeps_open = True
        transport.received(None)
        waiting = asyncio.ensure_future(transport.wait_for_acknowledgement())
        await asyncio.sleep(0)
        transport.acknowledged(True)
        assert await waiting
        transport.write_eof()
        assert channel.operations() == [Operation.ACKNOWLEDGE, Operation.WRITE_END]
        assert transport.can_write_eof()

    run(scenario)


def test_tls_has_no_half_closed_connections() -> None:
    async def scenario(transport: RelayedTransport, _channel: _Recorder, _protocol: _Protocol) -> None:
        assert not transport.can_write_eof()
        assert transport.get_extra_info("sslcontext") is not None
        assert transport.get_extra_info("peername") == ("127.0.0.1", 1)

    run(scenario, is_tls=True)
