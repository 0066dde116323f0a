"""`AsyncClient` over lost connections, refusals and silent nodes: what is repeated, in which order, and what callers are told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from lmqcluster import AsyncClient, LmqError, Message, Outcome
from lmqcluster.client import Backoff

from .client_cluster import Fate, ModelCluster, Request, Script, ScriptedNode, async_test

QUICK = Backoff(first_s=0.002, max_s=0.01)


def fates(method: str, *chosen: Fate | str) -> Script:
    """The given fates for the first requests of one method; everything else is answered."""
    left: Iterator[Fate | str] = iter(chosen)
    return lambda request: next(left, Fate.ANSWER) if request.method == method else Fate.ANSWER


def once(when: Callable[[Request], bool], fate: Fate | str) -> Script:
    """One fate for the first request that `when` picks."""
    done = False

    def script(request: Request) -> Fate | str:
        nonlocal done
        if done or not when(request):
            return Fate.ANSWER
        done = True
        return fate

    return script


def client_of(
    *nodes: ScriptedNode, timeout_s: float = 20, heartbeat_s: float = 5, in_flight_max: int = 8192
) -> AsyncClient:
    return AsyncClient(
        [node.address for node in nodes],
        timeout_s=timeout_s,
        heartbeat_s=heartbeat_s,
        in_flight_max=in_flight_max,
        backoff=QUICK,
    )


# --- pushes -------------------------------------------------------------------------------------------------------


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
async def test_a_single_node_that_comes_back_is_found_again() -> None:
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
async def test_what_a_lost_node_stores_late_is_not_stored_twice() -> None:
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
async def test_a_refused_push_takes_a_new_number_and_one_in_doubt_keeps_its_own() -> None:
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
async def test_what_the_node_itself_does_not_know_is_repeated_before_what_it_has_not_answered() -> None:
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
async def test_the_numbers_skip_what_was_given_up() -> None:
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
async def test_a_push_that_the_node_rejects_for_good_does_not_disturb_the_numbers() -> None:
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
async def test_a_push_with_a_key_of_its_own_is_repeated_under_it() -> None:
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
async def test_a_transaction_in_trouble_is_carried_out_once(trouble: Fate) -> None:
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
        # What was certainly not carried out is no repetition.
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


# --- receipts -----------------------------------------------------------------------------------------------------


async def _pulled(client: AsyncClient, cluster: ModelCluster, count: int = 1) -> list[Message]:
    cluster.push(b"q", list(range(count)), None, 0)
    return await client.pull_many("q", count)


@pytest.mark.parametrize("verb", ["done", "release"])
@async_test
async def test_a_repeated_ack_is_told_what_became_of_the_first(verb: str) -> None:
    cluster = ModelCluster()
    async with ScriptedNode(cluster, fates(verb, Fate.DROP_AFTER)) as node, client_of(node) as client:
        (message,) = await _pulled(client, cluster)
        assert await getattr(client, verb)("q", message.id) is True
        assert node.methods()[-2:] == [verb, f"{verb}_many"]
        assert await getattr(client, verb)("q", message.id) is False, "a first attempt is told the truth"


@pytest.mark.parametrize("verb", ["done", "release"])
@async_test
async def test_a_repeated_ack_whose_lease_ended_before_the_first_is_told_so(verb: str) -> None:
    cluster = ModelCluster()
    script = fates(verb, Fate.DROP_BEFORE)
    async with ScriptedNode(cluster, script) as node, client_of(node) as client:
        (message,) = await _pulled(client, cluster)
        cluster.leases.clear()
        assert await getattr(client, verb)("q", message.id) is False
        assert node.methods()[-2:] == [verb, f"{verb}_many"]


@async_test
async def test_a_repeated_ack_of_which_nothing_is_known_any_more_has_an_unknown_outcome() -> None:
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
async def test_a_repeated_extend_is_told_the_truth() -> None:
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
async def test_a_queue_that_is_not_there_has_no_leases() -> None:
    def script(request: Request) -> Fate | str:
        return "throw:queue_not_found" if request.method.startswith(("done", "retain")) else Fate.ANSWER

    async with ScriptedNode(ModelCluster(), script) as node, client_of(node) as client:
        assert await client.done("q", "x") is False
        assert await client.retain("q", "x") is False
        assert await client.done_many("q", ["x", "y"]) == [False, False]


# --- pulls --------------------------------------------------------------------------------------------------------


@async_test
async def test_a_pull_is_repeated_and_waits_for_what_is_left_of_its_time() -> None:
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
async def test_a_node_that_is_left_delivers_first_what_it_has_for_waiting_pulls(refusal: str) -> None:
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
            # The cancellation meets a task whose future has its result, but which has not gone on yet.
            asyncio.get_running_loop().call_soon(pulls[0].cancel)
            return decode(reply)

        client._message = decode_and_cancel_soon  # type: ignore[method-assign]
        pulls.append(asyncio.get_running_loop().create_task(client.pull("q")))
        with pytest.raises(asyncio.CancelledError):
            await pulls[0]
        await node.until(lambda: bool(cluster.settled))
        assert [verb for verb, _ in cluster.settled] == ["put_back"]


# --- time ---------------------------------------------------------------------------------------------------------


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
async def test_the_deadline_of_a_call_that_was_refused_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    clock, ahead_s, timeout_s = loop.time, 0.0, 15.0
    monkeypatch.setattr(loop, "time", lambda: clock() + ahead_s)

    class Pause(Backoff):
        """The time is over in the pause after the second refusal, when the call is on its way nowhere."""

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
        return Fate.ANSWER if request.method in ("producer", "features") else Fate.HOLD

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
async def test_a_node_that_accepts_and_says_nothing_is_passed_over() -> None:
    cluster = ModelCluster()
    async with ScriptedNode(cluster, lambda _request: Fate.HOLD) as first, ScriptedNode(cluster) as second:
        client = AsyncClient([first.address, second.address], connect_timeout_s=0.05, backoff=QUICK)
        assert await client.push("q", 1) == "ok"
        assert client.address == ("127.0.0.1", second.port)
        await client.close()


@async_test
async def test_a_node_that_refuses_the_producer_is_passed_over() -> None:
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
async def test_closing_while_no_node_answers_ends_in_time_and_tells_everybody() -> None:
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
        async with asyncio.timeout(10):  # Far less than the 20 s a call may take.
            await client.close()
        with pytest.raises(LmqError, match="closed"):
            await pull


@async_test
async def test_a_call_never_sent_is_not_in_doubt_because_another_one_is() -> None:
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
