"""Deadlines in `AsyncClient`: deadlines of calls, silent nodes, closing while no node answers."""

from __future__ import annotations

import asyncio

import pytest

from lmqcluster import AsyncClient, LmqError, Outcome
from lmqcluster.client import Backoff

from .client_cluster import Fate, ModelCluster, Request, ScriptedNode, async_test
from .scripts import QUICK, client_of, fates, once

pytestmark = pytest.mark.usefixtures("single_pushes")


@async_test
async def test_the_deadline_of_a_call_that_was_never_sent() -> None:
    async with ScriptedNode(ModelCluster()) as node:
        pass
    client = client_of(node, timeout_s=0.1)
    with pytest.raises(LmqError) as caught:
        await client.push("q", 1)
    assert (caught.value.code, caught.value.outcome) == ("unreachable", Outcome.NOT_APPLIED)
    await client.close()


@async_test
async def test_the_deadline_of_a_call_that_was_refused_repeatedly(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    clock, ahead_s, timeout_s = loop.time, 0.0, 15.0
    monkeypatch.setattr(loop, "time", lambda: clock() + ahead_s)

    class Pause(Backoff):
        """The deadline passes in the pause after the second refusal, when the call is not in flight."""

        def delay_s(self, failures: int, addresses: int) -> float:
            nonlocal ahead_s
            if failures < 2:
                return 0.0
            ahead_s = timeout_s
            return 1.0

    def script(request: Request) -> Fate:
        return Fate.REFUSE if request.method == "push" else Fate.ANSWER

    async with ScriptedNode(ModelCluster(), script) as node:
        client = AsyncClient([node.address], timeout_s=timeout_s, backoff=Pause())
        with pytest.raises(LmqError) as caught:
            await client.push("q", 1)
        assert (caught.value.code, caught.value.outcome) == ("no_leader", Outcome.NOT_APPLIED)
        assert node.methods().count("push") > 1
        await client.close()


@async_test
async def test_the_deadline_of_a_call_that_may_have_been_applied() -> None:
    def script(request: Request) -> Fate:
        return Fate.HOLD if request.method == "push" else Fate.ANSWER

    async with ScriptedNode(ModelCluster(), script) as node:
        client = client_of(node, timeout_s=1.0)
        with pytest.raises(LmqError) as caught:
            await client.push("q", 1)
        assert (caught.value.code, caught.value.outcome) == ("unknown_outcome", Outcome.UNKNOWN)
        await client.close()


@async_test
async def test_a_silent_node_is_left_for_the_next() -> None:
    cluster = ModelCluster()

    def silent(request: Request) -> Fate:
        return Fate.ANSWER if request.method == "producer" else Fate.HOLD

    async with ScriptedNode(cluster, silent) as first, ScriptedNode(cluster) as second:
        client = client_of(first, second, heartbeat_s=0.05)
        assert await client.push("q", 1) == "ok"
        assert "ping" in [request.method for request in first.requests]
        assert cluster.stored == [1]
        await client.close()


@async_test
async def test_a_node_that_answers_pings_may_take_its_time_with_a_pull() -> None:
    cluster = ModelCluster()
    async with ScriptedNode(cluster) as node:
        client = client_of(node, heartbeat_s=0.1)
        pull = asyncio.ensure_future(client.pull("q"))
        await node.until(lambda: [request.method for request in node.requests].count("ping") >= 3)
        assert node.connections == 1
        await client.push("q", 1)
        assert await pull is not None
        await client.close()


@async_test
async def test_a_node_that_accepts_and_sends_nothing_is_skipped() -> None:
    cluster = ModelCluster()
    async with ScriptedNode(cluster, lambda _request: Fate.HOLD) as first, ScriptedNode(cluster) as second:
        client = AsyncClient([first.address, second.address], connect_timeout_s=0.05, backoff=QUICK)
        assert await client.push("q", 1) == "ok"
        assert client.address == ("127.0.0.1", second.port)
        await client.close()


@async_test
async def test_a_node_that_refuses_the_producer_is_skipped() -> None:
    cluster = ModelCluster()
    script = fates("producer", "shutting_down: bye")
    async with (
        ScriptedNode(cluster, script) as first,
        ScriptedNode(cluster) as second,
        client_of(first, second) as client,
    ):
        assert await client.push("q", 1) == "ok"
        assert client.address == ("127.0.0.1", second.port)


@async_test
async def test_an_idle_client_does_not_reconnect_until_it_is_used() -> None:
    cluster = ModelCluster()
    async with ScriptedNode(cluster) as node, client_of(node) as client:
        await client.push("q", 1)
        node.cut()
        connection = client._session._connection
        assert connection is not None
        await connection.lost
        assert client.address is None
        assert node.connections == 1
        await client.push("q", 2)
        assert node.connections == 2
        assert cluster.stored == [1, 2]


@async_test
async def test_closing_while_no_node_answers_ends_in_time_and_fails_all_calls() -> None:
    async with ScriptedNode(ModelCluster()) as node:
        pass
    client = client_of(node, timeout_s=60)
    push = client.push("q", 1)
    pull = asyncio.ensure_future(client.pull("q"))
    await asyncio.sleep(0)
    await client.close(grace_s=0.05)
    for call in (push, pull):
        with pytest.raises(LmqError, match="closed") as caught:
            await call
        assert caught.value.outcome is Outcome.NOT_APPLIED


@async_test
async def test_closing_does_not_wait_long_for_a_node_that_ignores_the_cancelling_of_pulls() -> None:
    def script(request: Request) -> Fate:
        return Fate.HOLD if request.method == "pull" else Fate.ANSWER

    async with ScriptedNode(ModelCluster(), script) as node:
        client = client_of(node)
        pull = asyncio.ensure_future(client.pull("q"))
        await node.until(lambda: "pull" in node.methods())
        async with asyncio.timeout(10):  # Much less than the 20 s that a call may take.
            await client.close()
        with pytest.raises(LmqError, match="closed"):
            await pull


@async_test
async def test_a_call_never_sent_is_not_in_doubt_beside_one_in_doubt() -> None:
    script = fates("push", *["unknown_outcome: x"] * 10_000)
    async with ScriptedNode(ModelCluster(), script) as node:
        client = AsyncClient(node.address, timeout_s=1.0, in_flight_max=1, backoff=QUICK)
        results = await asyncio.gather(client.push("q", 1), client.push("q", 2), return_exceptions=True)
        assert [result.outcome for result in results if isinstance(result, LmqError)] == [
            Outcome.UNKNOWN,
            Outcome.NOT_APPLIED,
        ]
        await client.close()


@async_test
async def test_a_timed_out_push_of_one_caller_leaves_those_of_others_stored_once() -> None:
    cluster = ModelCluster()
    stalled = once(lambda request: request.method == "push" and request.arguments[1] == 5, Fate.HOLD)
    async with ScriptedNode(cluster, stalled) as first, ScriptedNode(cluster) as second:
        client = client_of(first, second, timeout_s=3.0)
        results = await asyncio.gather(*(client.push("q", number) for number in range(10)), return_exceptions=True)
        assert [number for number, result in enumerate(results) if isinstance(result, LmqError)] == [5]
        assert await client.push("q", 10) == "ok"
        assert cluster.stored == list(range(11))
        await client.close()
