"""`AsyncClient` over lost connections and refusals: repeated calls, their order, and the results for callers."""

from __future__ import annotations

import asyncio

import pytest

from lmqcluster import LmqError, Outcome

from .client_cluster import Fate, ModelCluster, Request, ScriptedNode, async_test
from .scripts import client_of, fates, once

pytestmark = pytest.mark.usefixtures("single_pushes")


@pytest.mark.parametrize(
    "fate", [Fate.DROP_BEFORE, Fate.DROP_AFTER, Fate.DOUBT, Fate.REFUSE, "overloaded: x", "shutting_down: x"]
)
@pytest.mark.parametrize("count", [1, 30])
@async_test
async def test_a_push_in_trouble_is_stored_once_and_in_order(fate: Fate | str, count: int) -> None:
    cluster = ModelCluster()
    script = once(lambda request: request.method == "push" and request.arguments[1] == count // 2, fate)
    async with (
        ScriptedNode(cluster, script) as first,
        ScriptedNode(cluster) as second,
        client_of(first, second) as client,
    ):
        results = await asyncio.gather(*(client.push("q", number) for number in range(count)))
        assert set(results) == {"ok"}
        assert cluster.stored == list(range(count))
        assert client.address == ("127.0.0.1", second.port), "after trouble the client goes to the next node"
        assert await client.push("q", "last") == "ok"
        assert cluster.stored[-1] == b"last"


@async_test
async def test_a_single_node_that_restarts_is_found_again() -> None:
    cluster = ModelCluster()
    async with ScriptedNode(cluster) as node, client_of(node) as client:
        await client.push("q", 0)
        await node.stop()
        pushes = [client.push("q", number) for number in range(1, 20)]
        await asyncio.sleep(0)
        await node.start()
        await asyncio.gather(*pushes)
        assert cluster.stored == list(range(20))


@async_test
async def test_late_storing_by_a_lost_node_is_not_stored_twice() -> None:
    cluster = ModelCluster()
    script = once(lambda request: request.arguments == [b"q", 3], Fate.APPLY_LATE)
    async with ScriptedNode(cluster, script) as first:
        resent = once(lambda request: request.method == "push" and request.arguments[1] == 5, Fate.HOLD)
        async with ScriptedNode(cluster, resent) as second, client_of(first, second) as client:
            pushes = [client.push("q", number) for number in range(10)]
            await second.until(lambda: len(cluster.stored) == 10)
            cluster.apply_late()
            assert cluster.stored == list(range(10))
            second.cut()
            await asyncio.gather(*pushes)
            assert cluster.stored == list(range(10))


@async_test
async def test_late_storing_before_the_resend_arrives_is_not_stored_twice_either() -> None:
    cluster = ModelCluster()

    def applying_late(request: Request) -> Fate:
        if request.method == "push":
            cluster.apply_late()
        return Fate.ANSWER

    script = once(lambda request: request.arguments == [b"q", 3], Fate.APPLY_LATE)
    first, second = ScriptedNode(cluster, script), ScriptedNode(cluster, applying_late)
    async with first, second, client_of(first, second) as client:
        await asyncio.gather(*(client.push("q", number) for number in range(10)))
        assert cluster.stored == list(range(10))


@async_test
async def test_a_refused_push_takes_a_new_number_and_one_in_doubt_keeps_its_number() -> None:
    cluster = ModelCluster()

    def script(request: Request) -> Fate:
        if request.method != "push":
            return Fate.ANSWER
        return Fate.STALL if request.arguments[1] == b"doubtful" else Fate.REFUSE

    async with ScriptedNode(cluster, script) as first, ScriptedNode(cluster) as second:
        async with client_of(first, second) as client:
            await asyncio.gather(client.push("q", "doubtful"), client.push("q", "refused"))
        numbers = {
            (request.arguments[1], request.first_sequence)
            for node in (first, second)
            for request in node.requests
            if request.method == "push"
        }
        assert numbers == {(b"doubtful", 1), (b"refused", 2), (b"refused", 3)}
        assert cluster.stored == [b"doubtful", b"refused"]


@async_test
async def test_unknown_outcomes_are_repeated_before_unanswered_pushes() -> None:
    cluster = ModelCluster()

    def script(request: Request) -> Fate | str:
        if request.method != "push":
            return Fate.ANSWER
        return "unknown_outcome: x" if request.arguments[1] == 1 else Fate.STALL

    async with ScriptedNode(cluster, script) as first, ScriptedNode(cluster) as second:
        async with client_of(first, second) as client:
            await asyncio.gather(*(client.push("q", number) for number in range(4)))
        assert cluster.stored == [0, 1, 2, 3]
        assert [request.first_sequence for request in second.requests if request.method == "push"] == [1, 2, 3, 4]


@async_test
async def test_batches_and_single_pushes_share_the_numbers() -> None:
    cluster = ModelCluster()
    script = fates("push_many", Fate.ANSWER, Fate.DROP_AFTER)
    async with ScriptedNode(cluster, script) as first, ScriptedNode(cluster) as second:
        async with client_of(first, second) as client:
            await asyncio.gather(
                client.push_many("q", [0, 1, 2]),
                client.push("q", 3),
                client.push_many("q", [4, 5]),
                client.push("q", 6),
                client.push("q", "keyed", key="k"),
                client.push("q", 7),
            )
        assert [one for one in cluster.stored if one != b"keyed"] == list(range(8))
        assert cluster.stored.count(b"keyed") == 1


@async_test
async def test_the_numbers_skip_abandoned_pushes() -> None:
    cluster = ModelCluster()
    script = once(lambda request: request.method == "push" and request.arguments[1] == 2, Fate.DROP_BEFORE)
    async with ScriptedNode(cluster, script) as first, ScriptedNode(cluster) as second:
        async with client_of(first, second) as client:
            await client.ping()
            pushes = [client.push("q", number) for number in range(6)]
            pushes[3].cancel()
            await asyncio.gather(*pushes, return_exceptions=True)
            await client.push("q", 6)
        assert cluster.stored == [0, 1, 2, 4, 5, 6]
        numbers = [request.first_sequence for request in second.requests if request.method == "push"]
        assert numbers == [3, 5, 6, 7]


@async_test
async def test_a_permanently_rejected_push_does_not_disturb_the_numbers() -> None:
    cluster = ModelCluster()

    def script(request: Request) -> Fate | str:
        if request.method == "push" and request.arguments[1] == 2:
            return "too_large: no"
        return Fate.DROP_AFTER if request.arguments == [b"q", 5] else Fate.ANSWER

    async with ScriptedNode(cluster, script) as first, ScriptedNode(cluster) as second:
        async with client_of(first, second) as client:
            results = await asyncio.gather(*(client.push("q", number) for number in range(9)), return_exceptions=True)
        assert [type(result) for result in results] == [str, str, LmqError, *[str] * 6]
        assert cluster.stored == [0, 1, 3, 4, 5, 6, 7, 8]


@async_test
async def test_with_a_limit_of_calls_in_flight_order_is_kept_over_losses() -> None:
    cluster = ModelCluster()

    def script(request: Request) -> Fate:
        return Fate.DROP_AFTER if request.method == "push" and len(cluster.stored) % 17 == 16 else Fate.ANSWER

    async with ScriptedNode(cluster, script) as first, ScriptedNode(cluster, script) as second:
        async with client_of(first, second, in_flight_max=7) as client:
            await asyncio.gather(*(client.push("q", number) for number in range(300)))
        assert cluster.stored == list(range(300))


@async_test
async def test_a_push_with_a_key_is_repeated_with_it() -> None:
    cluster = ModelCluster()
    async with ScriptedNode(cluster, fates("push", Fate.DROP_AFTER)) as first, ScriptedNode(cluster) as second:
        async with client_of(first, second) as client:
            assert await client.push("q", 1, key="k") == "ok"
            assert await client.push_many("q", [1, 2], keys=["k", "l"]) == ["ok", "ok"]
        assert cluster.stored == [1, 2]


@async_test
async def test_pushes_with_options_are_repeated_under_their_numbers_among_the_others() -> None:
    cluster = ModelCluster()
    script = fates("push", Fate.DROP_AFTER, Fate.DROP_BEFORE, Fate.REFUSE)
    async with ScriptedNode(cluster, script) as server, client_of(server) as client:
        assert await client.push("q", "x", priority=1) == "ok"
        assert await client.push("q", "y", priority=1) == "ok"
        pushes = [client.push("q", "z"), client.push("q", "a", priority=1), client.push("q", "b")]
        assert await asyncio.gather(*pushes) == ["ok"] * 3
        assert cluster.stored == [b"x", b"y", b"z", b"a", b"b"]
        assert all(b"key" not in options for request in server.requests for options in request.arguments[2:])


@async_test
async def test_a_batch_with_options_takes_a_number_for_each_content() -> None:
    cluster = ModelCluster()
    async with ScriptedNode(cluster, fates("push_many", Fate.DROP_AFTER)) as server, client_of(server) as client:
        many = client.push_many("q", ["x", "y"], options=[{"priority": 1}, None])
        later = client.push("q", "z")
        assert (await many, await later) == (["ok", "ok"], "ok")
        assert cluster.stored == [b"x", b"y", b"z"]


@async_test
async def test_a_push_with_an_explicit_key_is_repeated_under_it() -> None:
    cluster = ModelCluster()
    async with ScriptedNode(cluster, fates("push", Fate.DROP_AFTER)) as server, client_of(server) as client:
        assert await client.push("q", "x", priority=1, key="k") == "ok"
        assert cluster.stored == [b"x"]
        assert [request.arguments[2][b"key"] for request in server.requests if request.method == "push"] == [b"k"] * 2


@async_test
async def test_a_transaction_without_an_ack_is_repeated_under_keys() -> None:
    cluster = ModelCluster()
    async with ScriptedNode(cluster, fates("transaction", Fate.DROP_AFTER)) as server, client_of(server) as client:
        async with client.transaction() as transaction:
            transaction.push("q", "x")
        assert cluster.stored == [b"x"]
        keys = {request.arguments[0][0][3][b"key"] for request in server.requests if request.method == "transaction"}
        assert len(keys) == 1


@async_test
async def test_a_push_that_a_full_queue_refuses_is_not_repeated() -> None:
    cluster = ModelCluster()
    async with ScriptedNode(cluster, fates("push", "full: no room")) as server, client_of(server) as client:
        refused, later = client.push("q", "x"), client.push("q", "y")
        with pytest.raises(LmqError) as caught:
            await refused
        assert (caught.value.code, caught.value.retryable) == ("full", True)
        assert await later == "ok"
        assert server.methods() == ["push", "push"]


@pytest.mark.parametrize("trouble", [Fate.DROP_BEFORE, Fate.DROP_AFTER, Fate.DOUBT, Fate.REFUSE])
@async_test
async def test_a_transaction_in_trouble_is_applied_once(trouble: Fate) -> None:
    cluster = ModelCluster()
    async with ScriptedNode(cluster, fates("transaction", trouble)) as server, client_of(server) as client:
        await client.push("q", "x")
        message = await client.pull("q")
        assert message is not None
        async with client.transaction() as transaction:
            transaction.done(message)
            transaction.push("out", {"a": [1.5, b"\xff"]})
        assert transaction.results == ["ok", "ok"]
        assert cluster.stored == [b"x", {b"a": [1.5, b"\xff"]}]
        first, second = (request.arguments for request in server.requests if request.method == "transaction")
        assert second[0] == first[0]
        # A request that was certainly not applied is no repetition.
        assert second[1:] == ([] if trouble is Fate.REFUSE else [{b"again": True}])


@pytest.mark.parametrize("trouble", [Fate.DROP_AFTER, Fate.DROP_BEFORE, Fate.DOUBT])
@pytest.mark.parametrize("method", ["pull", "pull_many"])
@async_test
async def test_a_pull_that_acknowledges_is_not_repeated_when_it_may_have_happened(method: str, trouble: Fate) -> None:
    async with ScriptedNode(ModelCluster(), fates(method, trouble)) as server, client_of(server) as client:
        await client.push_many("q", ["x", "y"])
        pull = client.pull("q", auto_ack=True) if method == "pull" else client.pull_many("q", 1, auto_ack=True)
        with pytest.raises(LmqError) as caught:
            await pull
        assert (caught.value.code, caught.value.outcome) == ("unknown_outcome", Outcome.UNKNOWN)
        assert server.methods().count(method) == 1


@pytest.mark.parametrize("auto_ack", [False, True])
@async_test
async def test_a_pull_with_options_that_is_refused_is_sent_again_with_them(auto_ack: bool) -> None:
    async with (
        ScriptedNode(ModelCluster(), fates("pull", Fate.REFUSE)) as server,
        client_of(server) as client,
    ):
        await client.push("q", "x")
        message = await client.pull("q", 5, lease=7, auto_ack=auto_ack)
        assert message is not None
        pulls = [request.arguments for request in server.requests if request.method == "pull"]
        assert len(pulls) == 2
        assert all(arguments[2].get(b"lease") == 7 for arguments in pulls)
        assert all(arguments[2].get(b"auto_ack", False) is auto_ack for arguments in pulls)
        assert 0 < pulls[1][1] <= 5


@async_test
async def test_a_repeated_release_keeps_its_options() -> None:
    cluster = ModelCluster()
    async with (
        ScriptedNode(cluster, fates("release", Fate.DROP_AFTER)) as server,
        client_of(server) as client,
    ):
        await client.push("q", "x")
        message = await client.pull("q")
        assert message is not None
        assert await message.nack(delay=3, place="head") is True
        (again,) = [request.arguments for request in server.requests if request.method == "release_many"]
        assert again[2] == {b"again": True, b"delay": 3, b"place": b"head"}


@async_test
async def test_a_push_to_many_queues_is_not_repeated_when_it_may_have_happened() -> None:
    cluster = ModelCluster()
    cluster.push(b"q", [0], None, 0)
    script = fates("push_all", "no_leader: x", Fate.DROP_AFTER)
    async with ScriptedNode(cluster, script) as node, client_of(node) as client:
        with pytest.raises(LmqError) as caught:
            await client.push_all("q", 1)
        assert (caught.value.code, caught.value.outcome) == ("unknown_outcome", Outcome.UNKNOWN)
        assert node.methods().count("push_all") == 2, "refused, it was sent again; in doubt, it was not"
        assert cluster.stored == [0, 1]


@async_test
async def test_a_move_is_not_repeated_when_it_may_have_happened() -> None:
    cluster = ModelCluster()
    cluster.push(b"q", [0, 1], None, 0)
    async with ScriptedNode(cluster, fates("move", "no_leader: x", Fate.DROP_AFTER)) as node, client_of(node) as client:
        with pytest.raises(LmqError) as caught:
            await client.move("q", "r", 1)
        assert (caught.value.code, caught.value.outcome) == ("unknown_outcome", Outcome.UNKNOWN)
        assert node.methods() == ["move", "move"], "refused, it was sent again; in doubt, it was not"
        assert list(cluster.queues[b"r"]) == [0]
        assert await client.move("q", "r") == 1


@pytest.mark.parametrize("trouble", [Fate.DROP_AFTER, Fate.DOUBT, "no_leader: x"])
@async_test
async def test_a_purge_is_repeated_until_it_is_answered(trouble: Fate | str) -> None:
    cluster = ModelCluster()
    cluster.push(b"q", [0, 1], None, 0)
    async with ScriptedNode(cluster, fates("purge", trouble)) as node, client_of(node) as client:
        assert await client.purge("q") == (2 if isinstance(trouble, str) else 0), "what the last attempt removed"
        assert node.methods() == ["purge", "purge"]
        assert not cluster.queues[b"q"]
