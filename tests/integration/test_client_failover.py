"""Clients while nodes are killed and stopped: no errors, nothing lost or stored twice, order kept."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from lmqcluster import AsyncClient, Client, LmqError, Outcome

from ..unit.client.client_cluster import async_test
from .cluster import Cluster, NodeProcess, fetch, wait_for

PUSHES = 6000
CALLERS = 64


def node_of(cluster: Cluster, client: AsyncClient | Client) -> NodeProcess:
    """Return the node that the client is connected to."""
    return next(node for node in cluster if node.rpc == str(client.address))


async def push_all_numbers(client: AsyncClient, queue: str, on_count: dict[int, Callable[[], object]]) -> None:
    """Push 0 to `PUSHES` - 1 with many calls in flight, and call `on_count` once that many are acknowledged."""
    numbers = iter(range(PUSHES))
    acknowledged = 0

    async def caller() -> None:
        nonlocal acknowledged
        for number in numbers:
            assert await client.push(queue, number) == "ok"
            acknowledged += 1
            if (action := on_count.get(acknowledged)) is not None:
                action()

    await asyncio.gather(*(caller() for _ in range(CALLERS)))


async def drain(client: AsyncClient, queue: str) -> list[int]:
    """Return all contents of the queue in order, acknowledging each."""
    contents: list[int] = []
    while messages := await client.pull_many(queue, 1000):
        contents += [message.content for message in messages]
        assert all(await client.done_many(queue, [message.id for message in messages]))
    return contents


@pytest.mark.parametrize("victim", ["leader", "follower"])
@async_test
async def test_killing_the_node_that_a_producer_uses(cluster: Cluster, victim: str) -> None:
    leader = cluster.leader()
    used = leader if victim == "leader" else next(node for node in cluster if node is not leader)
    others = [node for node in cluster if node is not used]
    async with AsyncClient([used.rpc, *(node.rpc for node in others)]) as client:
        assert node_of(cluster, client) is used
        await push_all_numbers(client, "q", {PUSHES // 2: used.kill})
        assert client.address is not None
        assert node_of(cluster, client) is not used
        contents = await drain(client, "q")
        assert contents == list(range(PUSHES)), "nothing is lost or doubled, and one client's pushes keep their order"


@async_test
async def test_stopping_the_node_that_a_producer_uses(cluster: Cluster) -> None:
    async with AsyncClient(cluster.rpc_addresses) as client:
        used = node_of(cluster, client)
        await push_all_numbers(client, "q", {PUSHES // 2: lambda: used.signal(15)})
        contents = await drain(client, "q")
        assert contents == list(range(PUSHES))
        assert used.wait_exit() == 0


@async_test
async def test_clients_leave_a_frozen_node(cluster: Cluster) -> None:
    used = cluster.followers()[0]
    others = [node.rpc for node in cluster if node is not used]
    async with AsyncClient([used.rpc, *others], heartbeat_s=0.5) as client:
        await push_all_numbers(client, "q", {PUSHES // 2: used.pause})
        used.resume()
        contents = await drain(client, "q")
        assert contents == list(range(PUSHES))


@async_test
async def test_consumers_and_acks_while_their_node_is_killed(cluster: Cluster) -> None:
    used = cluster.followers()[0]
    others = [node.rpc for node in cluster if node is not used]
    async with AsyncClient(others) as producer, AsyncClient([used.rpc, *others]) as consumer:
        await producer.update_props("q", {"timeout": 2, "retry": 10})
        await producer.push_many("q", list(range(2000)))
        seen: Counter[int] = Counter()
        acknowledged: set[int] = set()

        async def work() -> None:
            # Messages whose delivery was lost with the node are redelivered when their lease expires.
            while len(acknowledged) < 2000:
                message = await consumer.pull("q", 1)
                if message is None:
                    continue
                seen[message.content] += 1
                if len(acknowledged) >= 1000 and used.running:
                    used.kill()
                if await message.ack():
                    assert message.content not in acknowledged, "acknowledged twice"
                    acknowledged.add(message.content)

        await asyncio.gather(*(work() for _ in range(32)))
        assert acknowledged == set(range(2000))
        assert sum(count - 1 for count in seen.values()) <= 32, "more delivered twice than were under way"
        assert await consumer.pull("q", 0) is None


@async_test
async def test_a_waiting_pull_outlives_its_node(cluster: Cluster) -> None:
    async with AsyncClient(cluster.rpc_addresses) as client:
        pull = asyncio.ensure_future(client.pull("q"))
        await client.ping()
        used = node_of(cluster, client)
        used.kill()
        async with AsyncClient([node.rpc for node in cluster.alive]) as other:
            await other.push("q", "x")
        message = await pull
        assert message is not None
        assert message.content == b"x"
        assert await message.ack() is True


@async_test
async def test_without_a_quorum_calls_end_with_their_deadline(cluster: Cluster) -> None:
    leader = cluster.leader()
    others = [node for node in cluster if node is not leader]
    async with AsyncClient(leader.rpc, timeout_s=3) as client:
        await client.push("q", 0)
        for node in others:
            node.pause()
        with pytest.raises(LmqError) as caught:
            await client.push("q", 1)
        assert caught.value.code in ("no_leader", "unknown_outcome")
        for node in others:
            node.resume()
        cluster.leader()
        assert await client.push("q", 2) == "ok"
        contents = await drain(client, "q")
        allowed = [[0, 2]] if caught.value.outcome is Outcome.NOT_APPLIED else [[0, 2], [0, 1, 2]]
        assert contents in allowed


def test_the_blocking_client_over_a_kill(cluster: Cluster) -> None:
    with Client(cluster.rpc_addresses) as client:
        for number in range(300):
            assert client.push("q", number) == "ok"
            if number == 150:
                node_of(cluster, client).kill()
        contents = [message.content for message in client.messages("q", prefetch=100, timeout=0)]
        assert contents == list(range(300))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_waiting_pull_of_the_blocking_client_outlives_its_node(cluster: Cluster, number: int) -> None:
    with Client(cluster.rpc_addresses) as client, ThreadPoolExecutor(1) as pool:
        for content in range(10):
            client.push("q", content)
            message = client.pull("q", 60)
            assert message is not None
            assert message.ack()
        used = node_of(cluster, client)
        pull = pool.submit(client.pull, "q")
        wait_for(lambda: b"\nlmq_waiters 1" in fetch(used.http, "/metrics")[1], "the pull")
        used.signal(number)
        with Client([node.rpc for node in cluster if node is not used]) as other:
            other.push("q", "x")
        message = pull.result(120)
        assert message is not None
        assert message.content == b"x"
        assert message.ack() is True
