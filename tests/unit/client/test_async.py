"""`AsyncClient` against a well-behaved node: every method, messages, iteration, limits, closing."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest

from lmqcluster import AsyncClient, LmqError, Message, Outcome
from lmqcluster.client.transport.addresses import NodeAddress
from lmqcluster.client.transport.calls import Call
from lmqcluster.client.transport.connection import Connection

from .client_cluster import Fate, ModelCluster, Request, ScriptedNode, async_test


def node() -> ScriptedNode:
    return ScriptedNode(ModelCluster())


@async_test
async def test_push_pull_ack() -> None:
    async with node() as server, AsyncClient(server.address) as client:
        assert await client.push("q", b"\x00\xff") == "ok"
        message = await client.pull("q", 0)
        assert message is not None
        assert (message.queue, message.type, message.retry, message.content) == ("q", "normal", 2, b"\x00\xff")
        assert message.content_type == "application/x-msgpack"
        assert await message.extend() is True
        assert await message.ack() is True
        assert await message.ack() is False
        assert await client.pull("q", 0) is None
        assert [verb for verb, _ in server.cluster.settled] == ["retain", "done"]


@async_test
async def test_strings_are_returned_as_bytes_unless_decoding_is_requested() -> None:
    value = {"name": "ä", "list": ["x", b"\xff", 1.5, None]}
    async with (
        node() as server,
        AsyncClient(server.address) as client,
        AsyncClient(server.address, decode=True) as text,
    ):
        await client.push_many("q", ["ä", "ä", b"\xff", b"\xff", value, value])
        plain = await client.pull("q", 0)
        decoded = await text.pull("q", 0)
        assert plain is not None
        assert decoded is not None
        assert (plain.content, plain.text) == ("ä".encode(), "ä")
        assert (decoded.content, decoded.text) == ("ä", "ä")
        raw = [await client.pull("q", 0), await text.pull("q", 0)]
        assert [message.content for message in raw if message] == [b"\xff", b"\xff"]
        with pytest.raises(UnicodeDecodeError):
            _ = raw[0].text
        deep = await client.pull("q", 0)
        deep_text = await text.pull("q", 0)
        assert deep is not None
        assert deep_text is not None
        assert deep.content == {b"name": "ä".encode(), b"list": [b"x", b"\xff", 1.5, None]}
        assert deep_text.content == value
        with pytest.raises(TypeError, match="not a string"):
            _ = deep.text


@async_test
async def test_names_may_be_bytes_that_are_not_utf8() -> None:
    async with node() as server, AsyncClient(server.address) as client:
        await client.push(b"\xff", "x")
        message = await client.pull(b"\xff", 0)
        assert message is not None
        assert await message.ack() is True
        assert await client.push(message.queue, "y") == "ok"
        assert list(server.cluster.queues) == [b"\xff"]


@async_test
async def test_all_other_methods_follow_the_protocol() -> None:
    async with node() as server, AsyncClient(server.address) as client:
        assert await client.push("q", 1, key="k") == "ok"
        assert await client.push("q", 1, key="k") == "ok"
        assert await client.push_many("q", [2, 3], keys=["l", b"m"]) == ["ok", "ok"]
        assert await client.push_many("q", []) == []
        assert await client.push_all("^q", "all") == "ok"
        assert await client.pull_any("q", 0) is not None
        messages = await client.pull_many("q", 10)
        assert [message.content for message in messages] == [2, 3, b"all"]
        ids = [message.id for message in messages]
        assert await client.retain_many("q", ids) == [True] * 3
        assert await client.done_many("q", [ids[0], "0" * 36]) == [True, False]
        assert await client.release_many("q", ids[1:2]) == [True]
        assert await client.put_back("q", ids[2]) is True
        assert await client.done_many("q", []) == []
        assert await client.delete("q") == "ok"
        assert await client.update_props("q") == "ok"
        assert await client.update_props("q", {"accum": 1.5}) == "ok"
        assert await client.set_default_props([("^a", {"retry": 1})]) == "ok"
        assert await client.get_default_props() == [("^a", {"pack": 1.5})]
        assert await client.cluster() == {"self": "n1", "leader": "n1", "rpc": [server.address]}
        assert await client.ping() == "pong"
        sent = {request.method: request.arguments for request in server.requests}
        assert sent["push"] == [b"q", 1, {b"key": b"k"}]
        assert sent["push_many"] == [b"q", [2, 3], {b"keys": [b"l", b"m"]}]
        assert sent["pull_many"] == [b"q", 10, 0]
        assert sent["update_props"] == [b"q", {b"accum": 1.5}]
        assert sent["set_default_props"] == [[[b"^a", {b"retry": 1}]]]


@async_test
async def test_a_blocked_pull_does_not_delay_other_calls() -> None:
    async with node() as server, AsyncClient(server.address) as client:
        waiting = asyncio.ensure_future(client.pull("q"))
        await server.until(lambda: "pull" in server.methods())
        assert await client.push("other", 1) == "ok"
        assert not waiting.done()
        await client.push("q", 2)
        message = await waiting
        assert message is not None
        assert message.content == 2


@async_test
async def test_thousands_of_calls_share_one_connection() -> None:
    async with node() as server, AsyncClient(server.address, in_flight_max=50) as client:
        assert set(await asyncio.gather(*(client.push("q", number) for number in range(3000)))) == {"ok"}
        assert server.cluster.stored == list(range(3000))
        assert server.connections == 1


@async_test
async def test_waiting_pulls_do_not_use_up_the_calls_in_flight() -> None:
    async with node() as server, AsyncClient(server.address, in_flight_max=4) as client:
        pulls = [asyncio.ensure_future(client.pull(f"q{number}")) for number in range(20)]
        await server.until(lambda: server.methods().count("pull") == 20)
        await client.push_many("q7", ["x"])
        message = await pulls[7]
        assert message is not None
        assert await message.ack() is True


@async_test
async def test_large_batches_are_split_and_stay_in_order() -> None:
    async with node() as server, AsyncClient(server.address) as client:
        contents = list(range(25_000))
        assert await client.push_many("q", contents) == ["ok"] * 25_000
        blobs = [bytes([number]) * 3_000_000 for number in range(5)]
        assert await client.push_many("q", blobs) == ["ok"] * 5
        assert server.cluster.stored == contents + blobs
        assert server.methods().count("push_many") > 4


@async_test
async def test_large_contents_and_a_node_that_reads_slowly() -> None:
    async with node() as server, AsyncClient(server.address) as client:
        bodies = [bytes([number]) * 1_500_000 for number in range(12)]
        assert set(await asyncio.gather(*(client.push("q", body) for body in bodies))) == {"ok"}
        pulled = await asyncio.gather(*(client.pull("q", 0) for _ in bodies))
        assert [message.content for message in pulled if message] == bodies


@async_test
async def test_replies_may_arrive_in_pieces() -> None:
    async with node() as server, AsyncClient(server.address) as client:
        server.reply_piece = 3
        await client.push_many("q", ["a" * 40, "b" * 70_000])
        first, second = await asyncio.gather(client.pull("q", 0), client.pull("q", 0))
        assert first is not None
        assert second is not None
        assert (first.content, len(second.content)) == (b"a" * 40, 70_000)


@async_test
async def test_too_many_waiting_calls_are_refused() -> None:
    client = AsyncClient("127.0.0.1:1", backlog_max=2, timeout_s=5)
    futures = [client.push("q", number) for number in range(3)]
    with pytest.raises(LmqError) as caught:
        await futures[2]
    assert (caught.value.code, caught.value.outcome) == ("overloaded", Outcome.NOT_APPLIED)
    assert not futures[0].done()
    await client.close(0)
    client = AsyncClient("127.0.0.1:1", backlog_bytes_max=100, timeout_s=5)
    futures = [client.push("q", b"x" * 60) for number in range(2)]
    with pytest.raises(LmqError, match="wait to be sent"):
        await futures[1]
    await client.close(0)
    with pytest.raises(LmqError):
        await futures[0]


@async_test
async def test_errors_of_the_node_reach_the_caller() -> None:
    def script(request: Request) -> Fate | str:
        return {"push": "bad_name: no", "update_props": "throw:invalid", "pull": "function_clause"}.get(
            request.method, Fate.ANSWER
        )

    async with ScriptedNode(ModelCluster(), script) as server, AsyncClient(server.address) as client:
        for call, code in (
            (client.push("q", 1), "bad_name"),
            (client.update_props("q", {"retry": "x"}), "bad_property"),
            (client.pull("q", 0), "bad_arguments"),
        ):
            with pytest.raises(LmqError) as caught:
                await call
            assert (caught.value.code, caught.value.outcome) == (code, Outcome.NOT_APPLIED)
        assert server.connections == 1


@async_test
async def test_wrong_arguments_are_refused_before_anything_is_sent() -> None:
    async with node() as server, AsyncClient(server.address) as client:
        before = len(server.requests)
        with pytest.raises(TypeError, match="list of messages"):
            client.push_many("q", "abc")
        with pytest.raises(TypeError, match="list of ids"):
            client.done_many("q", "abc")
        with pytest.raises(ValueError, match="as many keys"):
            client.push_many("q", [1, 2], keys=["a"])
        with pytest.raises(TypeError, match="str or bytes"):
            client.push(7, 1)  # type: ignore[arg-type]
        with pytest.raises(LmqError, match="MessagePack"):
            client.push("q", object())
        for timeout in (-1, float("nan"), float("inf")):
            with pytest.raises(ValueError, match="timeout"):
                await client.pull("q", timeout)
        for wrong in ("5", timedelta(seconds=5)):
            with pytest.raises(TypeError, match="timeout must be a number of seconds, not "):
                await client.pull("q", wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="wait must be a number of seconds, not '5'"):
            client.push("q", 1, wait="5")  # type: ignore[arg-type]
        for count in (0, 10_001, "5"):
            with pytest.raises(ValueError, match="max must be"):
                await client.pull_many("q", count)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="prefetch"):
                client.messages("q", prefetch=count)  # type: ignore[arg-type]
        assert len(server.requests) == before


@pytest.mark.parametrize(
    "options",
    [
        {"timeout_s": 0},
        {"timeout_s": 301},
        {"connect_timeout_s": 0},
        {"heartbeat_s": -1},
        {"in_flight_max": 0},
        {"backlog_max": 0},
        {"backlog_bytes_max": 0},
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        AsyncClient("127.0.0.1:1", **options)


@async_test
async def test_message_as_a_context() -> None:
    async with node() as server, AsyncClient(server.address) as client:
        await client.push_many("q", [1, 2, 3, 4])

        async def next_message() -> Message:
            message = await client.pull("q", 0)
            assert message is not None
            return message

        async with await next_message():
            pass
        with pytest.raises(ZeroDivisionError):
            async with await next_message():
                raise ZeroDivisionError
        with pytest.raises(asyncio.CancelledError):
            async with await next_message():
                raise asyncio.CancelledError
        async with await next_message() as message:
            await message.nack()
        assert [verb for verb, _ in server.cluster.settled] == ["done", "release", "put_back", "release"]


@async_test
async def test_a_lease_that_ended_within_the_context_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with node() as server, AsyncClient(server.address) as client:
        await client.push("q", 1)
        message = await client.pull("q", 0)
        assert message is not None
        with caplog.at_level(logging.WARNING, "lmqcluster.client"):
            async with message:
                server.cluster.leases.clear()
        assert "ended before its ack" in caplog.text


@async_test
async def test_iterating_over_a_queue() -> None:
    async with node() as server, AsyncClient(server.address) as client:
        await client.push_many("q", list(range(10)))
        seen = [message.content async for message in client.messages("q", prefetch=4, timeout=0)]
        assert seen == list(range(10))
        assert server.methods().count("pull_many") == 4


@async_test
async def test_leaving_an_iteration_returns_prefetched_messages_in_order() -> None:
    async with node() as server, AsyncClient(server.address) as client:
        await client.push_many("q", list(range(6)))
        async with client.messages("q", prefetch=4) as messages:
            async for message in messages:
                await message.ack()
                break
        assert sorted(server.cluster.queues[b"q"]) == [1, 2, 3, 4, 5]
        assert {verb for verb, _ in server.cluster.settled} == {"done", "put_back"}
        assert [message async for message in messages] == []


@async_test
async def test_closing_ends_waiting_pulls_and_waits_for_the_rest() -> None:
    async with node() as server:
        client = AsyncClient(server.address)
        waiting = asyncio.ensure_future(client.pull("q"))
        await server.until(lambda: "pull" in server.methods())
        pushes = [client.push("other", number) for number in range(100)]
        await client.close()
        assert {push.result() for push in pushes} == {"ok"}
        with pytest.raises(LmqError, match="closed"):
            await waiting
        assert [method for method, _ in server.notifications] == ["cancel"]
        for call in (client.push("q", 1), client.pull("q", 0), client.ping()):
            with pytest.raises(LmqError, match="closed"):
                await call
        await client.close()
        assert client.address is None


@async_test
async def test_a_client_connects_with_its_first_call_and_shows_the_address() -> None:
    async with node() as server:
        client = AsyncClient(server.address)
        assert client.address is None
        await client.push("q", 1)
        assert client.address == NodeAddress("127.0.0.1", server.port)
        await client.close()


@async_test
async def test_entering_fails_if_no_node_answers() -> None:
    async with node() as server:
        pass
    with pytest.raises(LmqError) as caught:
        async with AsyncClient(server.address, timeout_s=0.2):
            pass
    assert (caught.value.code, caught.value.outcome) == ("unreachable", Outcome.NOT_APPLIED)
    assert server.address in caught.value.message


class _Recorder:
    """The owner of a connection, which only records its calls."""

    def __init__(self) -> None:
        self.lost: list[str] = []
        self.rounds = 0

    def answered_error(self, connection: Connection, call: Call, element: Any) -> None:
        raise AssertionError

    def answered_late(self, call: Call, value: Any) -> None:
        raise AssertionError

    def received(self, connection: Connection) -> None:
        self.rounds += 1

    def write_paused(self, connection: Connection) -> None:
        raise AssertionError

    def answered_moved(self, call: Call) -> None:
        raise AssertionError

    def connection_lost(self, connection: Connection, reason: str) -> None:
        self.lost.append(reason)


@async_test
async def test_replies_byte_by_byte_and_message_numbers_that_wrap() -> None:
    loop = asyncio.get_running_loop()
    async with node() as server:
        owner = _Recorder()
        connection = Connection(owner, loop, NodeAddress("127.0.0.1", server.port))
        await loop.create_connection(lambda: connection, "127.0.0.1", server.port)
        old = Call(loop.create_future(), b"\xa4hold\x90", bytes, 0)
        connection._serial = 4
        connection.send(old)
        connection._serial = 2**32 + 3
        calls = [Call(loop.create_future(), b"\xa4ping\x90", bytes, 0) for _ in range(2)]
        for call in calls:
            connection.send(call)
        assert list(connection.pending) == [5, 4, 6], "5 is still waited for and must not be used again"
        for byte in b"\x94\x01\x04\xc0\xa4pong\x94\x01\xce\x00\x00\x00\x06\xc0\xa4pong":
            connection.data_received(bytes((byte,)))
        assert [call.future.result() for call in calls] == [b"pong", b"pong"]
        connection.close("enough")
        await connection.lost
        assert owner.lost == ["enough"]


@pytest.mark.parametrize(
    "garbage", [b"\xc1", b"\x94\x01\x63\xc0\xc0", b"\x05", b"\x93\x01\x02\x03", b"\x94\x00\x01\xc0\xc0"]
)
@async_test
async def test_a_peer_with_another_protocol_is_disconnected(garbage: bytes) -> None:
    async def talk(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(garbage)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with node() as good, AsyncClient(f"127.0.0.1:{port},{good.address}") as client:
        assert await client.push("q", 1) == "ok"
        assert client.address == NodeAddress("127.0.0.1", good.port)
    server.close()
    await server.wait_closed()
