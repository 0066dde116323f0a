"""Both clients against real nodes: every method, large bodies, many pulls at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from lmqcluster import AsyncClient, Client, LmqError, Outcome
from lmqcluster.wire.limits import MESSAGE_BYTES_MAX

from ..unit.client.client_cluster import async_test
from .cluster import Cluster, fetch


@async_test
async def test_push_pull_and_settle_through_different_nodes(shared_cluster: Cluster, queue_name: str) -> None:
    first, second, third = (AsyncClient(address) for address in shared_cluster.rpc_addresses)
    async with first, second, third:
        assert await first.push(queue_name, {"a": [1, b"\xff"]}) == "ok"
        message = await second.pull(queue_name, 5)
        assert message is not None
        assert (message.queue, message.type, message.retry) == (queue_name, "normal", 2)
        assert message.content == {b"a": [1, b"\xff"]}
        assert await third.retain(queue_name, message.id) is True
        assert await third.release(queue_name, message.id) is True
        assert await message.ack() is False
        again = await first.pull(queue_name, 5)
        assert again is not None
        assert again.retry == 1
        async with again:
            pass
        assert await second.pull(queue_name, 0) is None


@async_test
async def test_batches(shared_cluster: Cluster, queue_name: str) -> None:
    async with AsyncClient(shared_cluster.rpc_addresses, decode=True) as client:
        contents = [f"message {number}" for number in range(12_345)]
        assert await client.push_many(queue_name, contents) == ["ok"] * len(contents)
        messages = [*await client.pull_many(queue_name, 10_000), *await client.pull_many(queue_name, 10_000)]
        assert [message.content for message in messages] == contents
        ids = [message.id for message in messages]
        assert await client.retain_many(queue_name, ids[:10]) == [True] * 10
        assert await client.release_many(queue_name, ids[:3]) == [True] * 3
        assert await client.put_back_many(queue_name, ids[3:5]) == [True] * 2
        assert await client.done_many(queue_name, ids[4:10_000]) == [False] + [True] * 9995
        assert await client.done_many(queue_name + "-absent", ids[:2]) == [False, False]
        back = await client.pull_many(queue_name, 10)
        assert {(message.content, message.retry) for message in back} == {
            *((contents[number], 1) for number in range(3)),
            *((contents[number], 2) for number in (3, 4)),
        }


@async_test
async def test_patterns(shared_cluster: Cluster, queue_name: str) -> None:
    async with AsyncClient(shared_cluster.rpc_addresses) as client:
        names = [f"{queue_name}-{letter}" for letter in "abc"]
        for name in names:
            await client.update_props(name)
        pattern = f"^{queue_name}-[ab]$"
        assert await client.push_all(pattern, "to both") == "ok"
        got = [await client.pull_any(pattern, 5) for _ in range(2)]
        assert sorted(message.queue for message in got if message) == names[:2]
        assert await client.pull_any(pattern, 0) is None
        assert await client.pull(names[2], 0) is None
        with pytest.raises(LmqError) as caught:
            await client.pull_any("(", 0)
        assert caught.value.code == "bad_pattern"


@async_test
async def test_properties(shared_cluster: Cluster, queue_name: str) -> None:
    async with AsyncClient(shared_cluster.rpc_addresses) as client:
        rules = await client.get_default_props()
        try:
            ours = [(f"^{queue_name}$", {"pack": 0.0, "retry": 7, "timeout": 5})]
            assert await client.set_default_props([*ours, *rules]) == "ok"
            assert (await client.get_default_props())[0] == (f"^{queue_name}$", ours[0][1])
            await client.push(queue_name, 1)
            message = await client.pull(queue_name, 0)
            assert message is not None
            assert message.retry == 7
        finally:
            await client.set_default_props(rules)
        await client.update_props(queue_name, {"accum": 0.05})
        assert await client.push(queue_name, "x") == "packing started"
        assert await client.push(queue_name, b"y") == "packed"
        package = await client.pull(queue_name, 5)
        assert package is not None
        assert (package.type, package.content) == ("package", [b"x", b"y"])
        assert await client.update_props(queue_name) == "ok"
        assert await client.push(queue_name, "z") == "ok"
        assert await client.delete(queue_name) == "ok"
        assert await client.pull(queue_name, 0) is None
        with pytest.raises(LmqError) as caught:
            await client.update_props(queue_name, {"retry": "many"})
        assert (caught.value.code, caught.value.outcome) == ("bad_property", Outcome.NOT_APPLIED)


@async_test
async def test_contents_with_types_are_stored_as_they_are(shared_cluster: Cluster, queue_name: str) -> None:
    async with AsyncClient(shared_cluster.rpc_addresses) as client:
        contents, types = [b"a,b", {"x": 1}, b"plain"], ["text/csv", None, "text/plain"]
        for _ in range(2):
            await client.push_many(queue_name, contents, keys=["1", "2", "3"], content_types=types)
        found = await client.pull_many(queue_name, 10)
        assert [(message.content, message.content_type) for message in found] == [
            (b"a,b", "text/csv"),
            ({b"x": 1}, "application/x-msgpack"),
            (b"plain", "text/plain"),
        ]
        for wrong in ({"content_types": types}, {"content_types": ["text/csv"], "keys": ["1", "2", "3"]}):
            with pytest.raises(ValueError, match="content types"):
                await client.push_many(queue_name, contents, **wrong)
        with pytest.raises(LmqError) as raised:
            await client.push_many(queue_name, [{"x": 1}], keys=["4"], content_types=["text/csv"])
        assert raised.value.code == "bad_arguments"


@async_test
async def test_a_key_deduplicates_pushes_of_different_clients(shared_cluster: Cluster, queue_name: str) -> None:
    clients = [AsyncClient(address) for address in shared_cluster.rpc_addresses]
    async with clients[0], clients[1], clients[2]:
        await asyncio.gather(*(client.push(queue_name, "x", key="once") for client in clients for _ in range(5)))
        await clients[0].push_many(queue_name, ["y", "x"], keys=["twice", "once"])
        assert [message.content for message in await clients[1].pull_many(queue_name, 10)] == [b"x", b"y"]


@async_test
async def test_content_types(shared_cluster: Cluster, queue_name: str) -> None:
    async with AsyncClient(shared_cluster.rpc_addresses) as client:
        await client.push(queue_name, "x")
        await client.update_props(queue_name)
        await client.push_all(f"^{queue_name}$", "y")
        messages = await client.pull_many(queue_name, 10)
        assert [(message.content, message.content_type) for message in messages] == [
            (b"x", "application/x-msgpack"),
            (b"y", None),
        ]


@async_test
async def test_the_cluster_as_a_node_sees_it(shared_cluster: Cluster) -> None:
    async with AsyncClient(shared_cluster.rpc_addresses) as client:
        seen = await client.cluster()
        assert sorted(seen["rpc"]) == sorted(shared_cluster.rpc_addresses)
        assert seen["self"]
        assert await client.ping() == "pong"


@async_test
async def test_big_bodies(shared_cluster: Cluster, queue_name: str) -> None:
    async with AsyncClient(shared_cluster.rpc_addresses[1]) as client:
        bodies = [bytes([65 + number]) * (3_000_000 + number) for number in range(6)]
        assert await asyncio.gather(*(client.push(queue_name, body) for body in bodies)) == ["ok"] * 6
        messages = await client.pull_many(queue_name, 6)
        assert [message.content for message in messages] == bodies
        assert await client.done_many(queue_name, [message.id for message in messages]) == [True] * 6
        with pytest.raises(LmqError) as caught:
            await client.push(queue_name, bytes(MESSAGE_BYTES_MAX + 1))
        assert (caught.value.code, caught.value.outcome) == ("too_large", Outcome.NOT_APPLIED)
        assert await client.push(queue_name, "still there") == "ok"


@async_test
async def test_many_pulls_wait_at_once(shared_cluster: Cluster, new_queue_name: Callable[[], str]) -> None:
    name = new_queue_name()
    async with (
        AsyncClient(shared_cluster.rpc_addresses[0]) as consumer,
        AsyncClient(shared_cluster.rpc_addresses[2]) as producer,
    ):
        pulls = [asyncio.ensure_future(consumer.pull(name)) for _ in range(1500)]
        await consumer.ping()
        await asyncio.gather(*(producer.push(name, number) for number in range(1500)))
        messages = await asyncio.gather(*pulls)
        assert sorted(message.content for message in messages if message) == list(range(1500))
        assert all(await asyncio.gather(*(message.ack() for message in messages if message)))
        assert await consumer.pull(name, 0) is None


@async_test
async def test_a_cancelled_pull_takes_nothing_and_costs_nothing(shared_cluster: Cluster, queue_name: str) -> None:
    async with AsyncClient(shared_cluster.rpc_addresses[0]) as client:
        pulls = [asyncio.ensure_future(client.pull(queue_name)) for _ in range(20)]
        await client.ping()
        pushes = [client.push(queue_name, number) for number in range(20)]
        for pull in pulls:
            pull.cancel()
        await asyncio.gather(*pulls, return_exceptions=True)
        await asyncio.gather(*pushes)
        got = []
        while len(got) < 20:
            messages = await client.pull_many(queue_name, 20, 5)
            assert messages, f"only {len(got)} were delivered"
            got += messages
        assert sorted(message.content for message in got) == list(range(20))
        assert {message.retry for message in got} == {2}


@async_test
async def test_iterating_returns_unused_messages(shared_cluster: Cluster, queue_name: str) -> None:
    async with AsyncClient(shared_cluster.rpc_addresses) as client:
        await client.push_many(queue_name, list(range(10)))
        async with client.messages(queue_name, prefetch=8) as messages:
            async for message in messages:
                await message.ack()
                if message.content == 2:
                    break
        rest = [message async for message in client.messages(queue_name, timeout=0)]
        assert [(message.content, message.retry) for message in rest] == [(number, 2) for number in range(3, 10)]


def test_the_blocking_client(shared_cluster: Cluster, queue_name: str) -> None:
    with Client(",".join(shared_cluster.rpc_addresses), decode=True) as client:
        assert client.push(queue_name, "one") == "ok"
        assert client.push_many(queue_name, ["two", "three"]) == ["ok", "ok"]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda number: client.push(queue_name, number), range(100)))
        message = client.pull(queue_name, 5)
        assert message is not None
        assert message.content == "one"
        with message:
            pass
        rest = list(client.messages(queue_name, prefetch=10, timeout=0))
        assert [message.content for message in rest[:2]] == ["two", "three"]
        assert sorted(message.content for message in rest[2:]) == list(range(100))
        assert client.done_many(queue_name, [message.id for message in rest]) == [True] * 102
        status, body = fetch(shared_cluster[0].http, f"/v1/queues/{queue_name}")
        assert status == 200, body
