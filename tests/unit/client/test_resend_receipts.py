"""`AsyncClient` over lost connections and refusals: resent receipts, and waiting pulls."""

from __future__ import annotations

import asyncio

import pytest

from lmqcluster import AsyncClient, LmqError, Message, Outcome

from .client_cluster import Fate, ModelCluster, Request, ScriptedNode, async_test
from .scripts import client_of, fates

# --- receipts -----------------------------------------------------------------------------------------------------


async def _pulled(client: AsyncClient, cluster: ModelCluster, count: int = 1) -> list[Message]:
    cluster.push(b"q", list(range(count)), None, 0)
    return await client.pull_many("q", count)


@pytest.mark.parametrize("verb", ["done", "release"])
@async_test
async def test_a_repeated_ack_gets_the_result_of_the_first(verb: str) -> None:
    cluster = ModelCluster()
    async with ScriptedNode(cluster, fates(verb, Fate.DROP_AFTER)) as node, client_of(node) as client:
        (message,) = await _pulled(client, cluster)
        assert await getattr(client, verb)("q", message.id) is True
        assert node.methods()[-2:] == [verb, f"{verb}_many"]
        assert await getattr(client, verb)("q", message.id) is False, "a first attempt gets the true result"


@pytest.mark.parametrize("verb", ["done", "release"])
@async_test
async def test_a_repeated_ack_whose_lease_expired_before_the_first_fails(verb: str) -> None:
    cluster = ModelCluster()
    script = fates(verb, Fate.DROP_BEFORE)
    async with ScriptedNode(cluster, script) as node, client_of(node) as client:
        (message,) = await _pulled(client, cluster)
        cluster.leases.clear()
        assert await getattr(client, verb)("q", message.id) is False
        assert node.methods()[-2:] == [verb, f"{verb}_many"]


@async_test
async def test_a_repeated_ack_without_a_record_has_an_unknown_outcome() -> None:
    cluster = ModelCluster()
    script = fates("done", Fate.DROP_AFTER)
    async with ScriptedNode(cluster, script) as node, client_of(node) as client:
        one, two = await _pulled(client, cluster, 2)
        cluster.forgotten.add(one.id.encode())
        with pytest.raises(LmqError, match="forgotten") as raised:
            await client.done("q", one.id)
        assert raised.value.outcome is Outcome.UNKNOWN
        assert await client.done("q", two.id) is True


@async_test
async def test_a_refused_ack_is_not_in_doubt() -> None:
    cluster = ModelCluster()
    async with ScriptedNode(cluster, fates("done", Fate.REFUSE)) as node, client_of(node) as client:
        assert await client.done("q", "0" * 36) is False
        assert node.methods().count("done") == 2


@async_test
async def test_a_repeated_extend_gets_the_true_outcome() -> None:
    cluster = ModelCluster()
    async with (
        ScriptedNode(cluster, fates("retain", Fate.DROP_AFTER, Fate.DROP_BEFORE)) as node,
        client_of(node) as client,
    ):
        (message,) = await _pulled(client, cluster)
        assert await message.extend() is True
        cluster.leases.clear()
        assert await message.extend() is False


@async_test
async def test_repeated_batches_of_receipts() -> None:
    cluster = ModelCluster()
    script = fates("done_many", Fate.DROP_AFTER)
    async with ScriptedNode(cluster, script) as node, client_of(node) as client:
        messages = await _pulled(client, cluster, 3)
        ids = [message.id for message in messages]
        assert await client.done_many("q", ids) == [True] * 3
        assert await client.done_many("q", ids) == [False] * 3
        assert [verb for verb, _ in cluster.settled] == ["done"] * 3


@async_test
async def test_a_missing_queue_has_no_leases() -> None:
    def script(request: Request) -> Fate | str:
        return "throw:queue_not_found" if request.method.startswith(("done", "retain")) else Fate.ANSWER

    async with ScriptedNode(ModelCluster(), script) as node, client_of(node) as client:
        assert await client.done("q", "x") is False
        assert await client.retain("q", "x") is False
        assert await client.done_many("q", ["x", "y"]) == [False, False]


# --- pulls --------------------------------------------------------------------------------------------------------


@async_test
async def test_a_pull_is_repeated_and_waits_for_the_rest_of_its_time() -> None:
    cluster = ModelCluster()
    async with ScriptedNode(cluster) as first, ScriptedNode(cluster) as second, client_of(first, second) as client:
        limited = asyncio.ensure_future(client.pull("a", 100))
        unlimited = asyncio.ensure_future(client.pull("b"))
        await first.until(lambda: first.methods().count("pull") == 2)
        first.cut()
        await second.until(lambda: second.methods().count("pull") == 2)
        waits = {request.arguments[0]: request.arguments[1] for request in second.requests if request.method == "pull"}
        assert 50 < waits[b"a"] < 100
        assert waits[b"b"] > 1e6
        await client.push("a", 1)
        await client.push("b", 2)
        assert [message.content for message in await asyncio.gather(limited, unlimited) if message] == [1, 2]


@async_test
async def test_a_cancelled_pull_is_forgotten_by_the_node() -> None:
    cluster = ModelCluster()
    async with ScriptedNode(cluster) as node, client_of(node) as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await client.pull("q")
        await node.until(lambda: bool(node.notifications))
        request = next(request for request in node.requests if request.method == "pull")
        assert node.notifications == [("cancel", [request.msgid])]
        await client.push("q", 1)
        assert [message.content for message in await client.pull_many("q", 5)] == [1]


@pytest.mark.parametrize("refusal", ["shutting_down: x", "no_leader: x"])
@async_test
async def test_a_node_delivers_messages_of_waiting_pulls_before_the_client_leaves_it(refusal: str) -> None:
    cluster = ModelCluster()
    cluster.push(b"q", [1], None, 0)

    def script(request: Request) -> Fate | str:
        if request.method == "push":
            return refusal
        return Fate.HOLD if request.method == "pull" and request.arguments[0] == b"q" else Fate.ANSWER

    async with (
        ScriptedNode(cluster, script) as first,
        ScriptedNode(cluster) as second,
        client_of(first, second) as client,
    ):
        delivered = asyncio.ensure_future(client.pull("q"))
        waiting = asyncio.ensure_future(client.pull("empty"))
        await first.until(lambda: first.methods() == ["pull", "pull"] and len(cluster.leases) == 1)
        push = asyncio.ensure_future(client.push("other", 2))
        await first.until(lambda: len(first.notifications) == 2)
        first.answer_held()
        message = await delivered
        assert message is not None
        assert message.content == 1
        assert await push == "ok"
        await second.until(lambda: "pull" in second.methods())
        assert [request.arguments[0] for request in second.requests if request.method == "pull"] == [b"empty"]
        await client.push("empty", 3)
        message = await waiting
        assert message is not None
        assert message.content == 3


@async_test
async def test_a_message_that_arrives_for_a_cancelled_pull_is_put_back_uncharged() -> None:
    cluster = ModelCluster()
    cluster.push(b"q", [1, 2], None, 0)

    def script(request: Request) -> Fate:
        return Fate.HOLD if request.method.startswith("pull") else Fate.ANSWER

    async with ScriptedNode(cluster, script) as node, client_of(node) as client:
        pulls = [asyncio.ensure_future(client.pull_many("q", 1)), asyncio.ensure_future(client.pull("q"))]
        await node.until(lambda: len(cluster.leases) == 2)
        for pull in pulls:
            pull.cancel()
        await asyncio.gather(*pulls, return_exceptions=True)
        node.answer_held()
        await node.until(lambda: len(cluster.settled) == 2)
        assert [verb for verb, _ in cluster.settled] == ["put_back", "put_back"]
        assert sorted(cluster.queues[b"q"]) == [1, 2]


@async_test
async def test_a_pull_cancelled_in_the_turn_its_answer_arrives_is_put_back_too() -> None:
    cluster = ModelCluster()
    cluster.push(b"q", [1], None, 0)
    async with ScriptedNode(cluster) as node, client_of(node) as client:
        decode = client._message
        pulls: list[asyncio.Task[Message | None]] = []

        def decode_and_cancel_soon(reply: object) -> Message | None:
            # The cancellation meets a task whose future has its result, but which has not resumed yet.
            asyncio.get_running_loop().call_soon(pulls[0].cancel)
            return decode(reply)

        client._message = decode_and_cancel_soon  # type: ignore[method-assign]
        pulls.append(asyncio.get_running_loop().create_task(client.pull("q")))
        with pytest.raises(asyncio.CancelledError):
            await pulls[0]
        await node.until(lambda: bool(cluster.settled))
        assert [verb for verb, _ in cluster.settled] == ["put_back"]
