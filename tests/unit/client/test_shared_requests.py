"""Calls of one turn of the event loop that share a request: the node's view, and the result for each caller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmqcluster import AsyncClient, LmqError, Message
from lmqcluster.client import Backoff
from lmqcluster.client.transport.shared_requests import CALLS_MAX, ITEM_BYTES_MAX

from .client_cluster import Fate, ModelCluster, Request, ScriptedNode, async_test

Use = Callable[[AsyncClient, ScriptedNode, ModelCluster], Awaitable[None]]


async def with_node(use: Use) -> None:
    """Run against one node of this release, with a connected client."""
    cluster = ModelCluster()
    async with ScriptedNode(cluster) as node, AsyncClient(node.address, timeout_s=20) as client:
        await use(client, node, cluster)


def requests(node: ScriptedNode, method: str) -> list[Request]:
    return [request for request in node.requests if request.method == method]


# --- pushes -------------------------------------------------------------------------------------------------------


@async_test
async def test_pushes_of_one_turn_are_one_request_and_keep_their_order() -> None:
    async def use(client: AsyncClient, node: ScriptedNode, cluster: ModelCluster) -> None:
        assert await asyncio.gather(*(client.push("q", number) for number in range(40))) == ["ok"] * 40
        assert cluster.stored == list(range(40))
        assert node.methods() == ["push_each"]

    await with_node(use)


@async_test
async def test_a_single_push_is_a_push() -> None:
    async def use(client: AsyncClient, node: ScriptedNode, _cluster: ModelCluster) -> None:
        await client.push("q", 1)
        await client.push("q", 2)
        assert node.methods() == ["push", "push"]

    await with_node(use)


@async_test
async def test_pushes_to_other_queues_and_large_ones_are_separate_requests() -> None:
    async def use(client: AsyncClient, node: ScriptedNode, cluster: ModelCluster) -> None:
        large = b"x" * (ITEM_BYTES_MAX + 1)
        contents = [("a", 1), ("a", 2), ("b", 3), ("a", 4), ("a", large), ("a", 5), ("a", 6)]
        await asyncio.gather(*(client.push(queue, content) for queue, content in contents))
        assert node.methods() == ["push_each", "push", "push", "push", "push_each"]
        assert cluster.stored == [content for _, content in contents]

    await with_node(use)


@async_test
async def test_a_request_is_shared_by_a_bounded_number_of_calls() -> None:
    async def use(client: AsyncClient, node: ScriptedNode, cluster: ModelCluster) -> None:
        await asyncio.gather(*(client.push("q", number) for number in range(2 * CALLS_MAX + 1)))
        assert [len(request.arguments[1]) for request in requests(node, "push_each")] == [CALLS_MAX, CALLS_MAX]
        assert node.methods()[-1] == "push"
        assert cluster.stored == list(range(2 * CALLS_MAX + 1))

    await with_node(use)


@async_test
async def test_each_push_has_its_outcome() -> None:
    cluster = ModelCluster()
    answers = [b"ok", [b"full: no room"], b"packed", [b"too_large: too much"], "nonsense", [None]]

    async def answered(node: ScriptedNode, client: AsyncClient) -> list[Any]:
        pushes = [client.push("q", number) for number in range(len(answers))]
        await node.until(lambda: bool(requests(node, "push_each")))
        node.answer(requests(node, "push_each")[0], answers)
        return await asyncio.gather(*pushes, return_exceptions=True)

    script = lambda request: Fate.HOLD if request.method == "push_each" else Fate.ANSWER  # noqa: E731
    async with ScriptedNode(cluster, script) as node, AsyncClient(node.address) as client:
        results = await answered(node, client)
        assert (results[0], results[2]) == ("ok", "packed")
        codes = [error.code for error in results if isinstance(error, LmqError)]
        assert codes == ["full", "too_large", "internal", "internal"]


@pytest.mark.parametrize("result", [[b"ok"], b"ok", None, [b"ok"] * 4])
@async_test
async def test_an_answer_for_another_number_of_pushes_ends_the_connection(result: Any) -> None:
    cluster = ModelCluster()
    left = [Fate.HOLD]
    script = lambda request: left.pop() if left and request.method == "push_each" else Fate.ANSWER  # noqa: E731
    async with ScriptedNode(cluster, script) as node, AsyncClient(node.address) as client:
        pushes = [client.push("q", number) for number in range(3)]
        await node.until(lambda: bool(requests(node, "push_each")))
        node.answer(requests(node, "push_each")[0], result)
        assert await asyncio.gather(*pushes) == ["ok"] * 3
        assert cluster.stored == [0, 1, 2], "they were sent again under their numbers"
        assert node.connections == 2


# --- settlements --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["done", "release", "retain"])
@async_test
async def test_settlements_of_one_turn_are_one_request(verb: str) -> None:
    async def use(client: AsyncClient, node: ScriptedNode, cluster: ModelCluster) -> None:
        await client.push_many("q", [1, 2])
        messages = await client.pull_many("q", 2, 1)
        ids = [messages[0].id, "11111111-2222-4333-8444-555555555555", messages[1].id]
        settle = getattr(client, verb)
        assert await asyncio.gather(*(settle("q", one) for one in ids)) == [True, False, True]
        assert node.methods()[-1] == f"{verb}_many"
        assert {one for _, one in cluster.settled} == {messages[0].id.encode(), messages[1].id.encode()}

    await with_node(use)


@async_test
async def test_settlements_in_doubt_are_repeated_one_by_one() -> None:
    cluster = ModelCluster()
    fates = [Fate.DROP_AFTER]
    script = lambda request: fates.pop() if fates and request.method == "done_many" else Fate.ANSWER  # noqa: E731
    async with ScriptedNode(cluster, script) as node, AsyncClient(node.address) as client:
        await client.push_many("q", [1, 2, 3])
        messages = await client.pull_many("q", 3, 1)
        assert await asyncio.gather(*(message.ack() for message in messages)) == [True] * 3
        assert len(requests(node, "done_many")) == 4


# --- pulls --------------------------------------------------------------------------------------------------------


def contents(messages: list[Message | None]) -> list[Any]:
    return [None if message is None else message.content for message in messages]


@async_test
async def test_pulls_of_one_turn_are_one_request_in_order() -> None:
    async def use(client: AsyncClient, node: ScriptedNode, _cluster: ModelCluster) -> None:
        await client.push_many("q", list(range(5)))
        pulled = await asyncio.gather(*(client.pull("q", 5) for _ in range(5)))
        assert contents(pulled) == list(range(5))
        assert [request.arguments[1] for request in requests(node, "pull_many")] == [5]

    await with_node(use)


@async_test
async def test_unserved_pulls_keep_waiting_together() -> None:
    async def use(client: AsyncClient, node: ScriptedNode, _cluster: ModelCluster) -> None:
        await client.push_many("q", [0, 1])
        pulls = [asyncio.ensure_future(client.pull("q", 60)) for _ in range(5)]
        await node.until(lambda: len(requests(node, "pull_many")) == 2)
        assert [pull.done() for pull in pulls] == [True, True, False, False, False]
        await client.push("q", 2)
        await node.until(lambda: len(requests(node, "pull_many")) == 3)
        await client.push_many("q", [3, 4])
        assert contents(await asyncio.gather(*pulls)) == [0, 1, 2, 3, 4]
        assert [request.arguments[1] for request in requests(node, "pull_many")] == [5, 3, 2]
        assert 0 < requests(node, "pull_many")[1].arguments[2] < 60, "for the time that is left"

    await with_node(use)


@async_test
async def test_pulls_that_do_not_wait_get_nothing_from_an_empty_queue() -> None:
    async def use(client: AsyncClient, _node: ScriptedNode, _cluster: ModelCluster) -> None:
        await client.push("q", 1)
        assert contents(await asyncio.gather(*(client.pull("q", 0) for _ in range(3)))) == [1, None, None]

    await with_node(use)


@async_test
async def test_a_pull_that_is_cancelled_leaves_the_others_waiting() -> None:
    async def use(client: AsyncClient, node: ScriptedNode, cluster: ModelCluster) -> None:
        pulls = [asyncio.ensure_future(client.pull("q", 60)) for _ in range(3)]
        await node.until(lambda: bool(requests(node, "pull_many")))
        pulls[0].cancel()
        await node.until(lambda: len(requests(node, "pull_many")) == 2)
        assert requests(node, "pull_many")[1].arguments[1] == 2
        await client.push_many("q", [1, 2, 3])
        assert contents(await asyncio.gather(*pulls[1:])) == [1, 2]
        assert list(cluster.queues[b"q"]) == [3], "nothing is taken for the cancelled caller"

    await with_node(use)


@async_test
async def test_pulls_cancelled_before_they_are_sent_are_not_sent() -> None:
    async def use(client: AsyncClient, node: ScriptedNode, _cluster: ModelCluster) -> None:
        pulls = [asyncio.ensure_future(client.pull("q", 60)) for _ in range(3)]
        await asyncio.sleep(0)
        for pull in pulls:
            pull.cancel()
        await asyncio.wait(pulls)
        await client.ping()
        assert requests(node, "pull_many") == []
        assert client._session._connection is not None
        assert not client._session._connection.pending

    await with_node(use)


@async_test
async def test_messages_for_cancelled_callers_are_returned() -> None:
    cluster = ModelCluster()
    script = lambda request: Fate.HOLD if request.method == "pull_many" else Fate.ANSWER  # noqa: E731
    async with ScriptedNode(cluster, script) as node, AsyncClient(node.address) as client:
        await client.push_many("q", [1, 2])
        pulls = [asyncio.ensure_future(client.pull("q", 60)) for _ in range(2)]
        await node.until(lambda: bool(requests(node, "pull_many")))
        pulls[0].cancel()
        await asyncio.wait(pulls[:1])
        node.answer_held()
        assert contents([await pulls[1]]) == [1]
        await client.ping()
        assert len(requests(node, "put_back_many")) == 1, "it was sent before the ping"
        assert list(cluster.queues[b"q"]) == [2]


@async_test
async def test_pulls_go_to_the_next_node_together_with_their_session() -> None:
    cluster = ModelCluster()
    async with (
        ScriptedNode(cluster) as first,
        ScriptedNode(cluster) as second,
        AsyncClient([first.address, second.address], backoff=Backoff(first_s=0.002, max_s=0.01)) as client,
    ):
        pulls = [asyncio.ensure_future(client.pull("q", 60)) for _ in range(3)]
        await first.until(lambda: bool(requests(first, "pull_many")))
        first.cut()
        await client.push_many("q", [1, 2, 3])
        assert sorted(contents(await asyncio.gather(*pulls))) == [1, 2, 3]
        assert second.connections == 1


@async_test
async def test_more_messages_than_requested_end_the_connection() -> None:
    cluster = ModelCluster()
    fates = [Fate.HOLD]
    script = lambda request: fates.pop() if fates and request.method == "pull_many" else Fate.ANSWER  # noqa: E731
    async with ScriptedNode(cluster, script) as node, AsyncClient(node.address) as client:
        pulls = [asyncio.ensure_future(client.pull("q", 60)) for _ in range(2)]
        await node.until(lambda: bool(requests(node, "pull_many")))
        node.answer(requests(node, "pull_many")[0], [{}, {}, {}])
        await node.until(lambda: node.connections == 2)
        await client.push_many("q", [1, 2])
        assert sorted(contents(await asyncio.gather(*pulls))) == [1, 2]


@settings(deadline=None, max_examples=60)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("push"), st.integers(1, 6)),
            st.tuples(st.just("pull"), st.integers(1, 6)),
            st.tuples(st.just("cancel"), st.integers(0, 40)),
            st.tuples(st.just("turn"), st.integers(1, 3)),
        ),
        max_size=30,
    )
)
def test_every_message_goes_to_one_caller_or_back(steps: list[tuple[str, int]]) -> None:
    asyncio.run(_run(steps))


async def _run(steps: list[tuple[str, int]]) -> None:
    cluster = ModelCluster()
    pulls: list[asyncio.Task[Message | None]] = []
    pushes: list[asyncio.Future[str]] = []
    async with ScriptedNode(cluster) as node, AsyncClient(node.address) as client:
        for what, number in steps:
            if what == "push":
                pushes += [client.push("q", len(pushes) + place) for place in range(number)]
            elif what == "pull":
                pulls += [asyncio.create_task(client.pull("q", 60)) for _ in range(number)]
            elif what == "cancel" and number < len(pulls):
                pulls[number].cancel()
            else:
                for _ in range(number):
                    await client.ping()
        await asyncio.gather(*pushes)
        wanting = sum(not pull.done() for pull in pulls)
        await client.push_many("q", [f"more {number}" for number in range(wanting)])
        results = await asyncio.gather(*pulls, return_exceptions=True)
        got = [result.content for result in results if isinstance(result, Message)]
        assert len(got) == len(results) - sum(isinstance(result, asyncio.CancelledError) for result in results)
        await client.close()
        kept = list(cluster.queues.get(b"q", ()))
        leased = [content for _, content in cluster.leases.values()]
        assert len(set(got)) == len(got)
        assert sorted(map(repr, kept + leased)) == sorted(map(repr, cluster.stored))
        assert set(map(repr, got)) == set(map(repr, leased)), "messages without a receiver were returned"
