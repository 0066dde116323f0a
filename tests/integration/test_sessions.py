"""Sessions, exclusive queues, locks, and pushes that wait, through the Python client on three nodes."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from lmqcluster import AsyncClient, Client, LmqError

from .cluster import Cluster, wait_for
from .raw_rpc import Rpc


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(LmqError) as caught:
        call()
    return caught.value.code


def test_messages_of_an_ended_session_return_in_order_through_every_node(
    shared_cluster: Cluster, queue_name: str
) -> None:
    with Client(shared_cluster[0].rpc) as one, Client(shared_cluster[1].rpc) as other:
        one.push_many(queue_name, [b"%d" % number for number in range(5)])
        with one.session(ttl=60) as session:
            assert [message.content for message in session.pull_many(queue_name, 3)] == [b"0", b"1", b"2"]
            first = session.pull(queue_name)
            assert first is not None
            assert first.ack()
            assert other.pull(queue_name, 0).content == b"4"
            assert other.pull(queue_name, 0) is None
        assert [message.content for message in other.pull_many(queue_name, 5)] == [b"0", b"1", b"2"]
        assert code_of(lambda: session.pull(queue_name, 0)) == "session_lost"


def test_a_message_of_a_lost_response_is_in_the_next_pull(shared_cluster: Cluster, queue_name: str) -> None:
    with Client(shared_cluster[0].rpc) as one, Client(shared_cluster[1].rpc) as other:
        one.push_many(queue_name, [b"1", b"2"])
        session = one.open_session(60)
        lost = one.pull(queue_name, 0, session=session, after="")
        again = other.pull(queue_name, 0, session=session, after="")
        assert lost is not None
        assert again is not None
        assert (lost.content, again.content, again.id) == (b"1", b"1", lost.id)
        assert [message.content for message in one.pull_many(queue_name, 9, session=session, after=again.id)] == [b"2"]
        assert again.ack()
        assert code_of(lambda: one.pull(queue_name, 0, session=session, after="no id")) == "bad_request"
        assert one.pull(queue_name, 0, session=session, after=again.id).content == b"2"
        one.end_session(session)


def test_an_ack_in_flight_hides_no_lost_response(shared_cluster: Cluster, queue_name: str) -> None:
    with Client(shared_cluster[0].rpc) as client, client.session(ttl=60) as session:
        client.push_many(queue_name, [b"1", b"2"])
        # Simulates a response that the session never received.
        assert client.pull(queue_name, 0, session=session.id).content == b"1"
        assert session.pull(queue_name, 0, auto_ack=True).content == b"2"
        assert session.pull(queue_name, 0).content == b"1"


def test_pulls_of_a_session_from_a_queue_take_turns(shared_cluster: Cluster, queue_name: str) -> None:
    async def main() -> None:
        async with AsyncClient(shared_cluster[0].rpc) as client, client.session(ttl=60) as session:
            first = asyncio.create_task(session.pull(queue_name, 60))
            await asyncio.sleep(0)
            assert await session.pull(queue_name, 0) is None
            second = asyncio.create_task(session.pull(queue_name, 60))
            await client.push_many(queue_name, [b"1", b"2"])
            messages = await asyncio.gather(first, second)
            assert [message.content for message in messages if message is not None] == [b"1", b"2"]
            assert await asyncio.gather(*(message.ack() for message in messages if message is not None)) == [True, True]

    asyncio.run(main())


def test_a_session_that_is_not_renewed_ends(shared_cluster: Cluster, queue_name: str) -> None:
    with Client(shared_cluster[0].rpc) as one, Client(shared_cluster[2].rpc) as other:
        one.push(queue_name, b"x")
        session = one.open_session(1)
        assert one.pull(queue_name, 0, session=session) is not None
        # The wait ends when the session has ended.
        again = other.pull(queue_name, 60)
        assert again is not None
        assert again.delivery == 2 or again.retry == 1
        assert not one.renew_session(session)
        assert not one.end_session(session)


def test_a_lost_session_is_reported(shared_cluster: Cluster) -> None:
    async def main() -> None:
        async with AsyncClient(shared_cluster[0].rpc) as client, client.session(ttl=30) as session:
            assert not session.lost
            await client.end_session(session.id)
            # Simulates the result of the background renewal.
            session.ttl = 0.3
            with pytest.raises(LmqError):
                await session.pull("q", 0)

    asyncio.run(main())


def test_an_exclusive_queue_goes_to_the_next_in_order_when_its_consumer_dies(
    shared_cluster: Cluster, queue_name: str
) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(node.rpc)) for node in shared_cluster]
        clients[0].update_props(queue_name, {"exclusive": True})
        clients[0].push_many(queue_name, [b"%d" % number for number in range(100)])
        assert code_of(lambda: clients[0].pull(queue_name, 0)) == "exclusive"
        sessions = [client.open_session(60) for client in clients]
        got = [clients[0].pull(queue_name, 0, session=sessions[0])]
        # The others wait, in this order.
        for client, session in list(zip(clients, sessions, strict=True))[1:]:
            assert client.pull(queue_name, 0, session=session) is None
        pool = stack.enter_context(ThreadPoolExecutor(2))
        second = pool.submit(lambda: clients[1].pull(queue_name, 60, session=sessions[1]))
        clients[0].end_session(sessions[0])
        again = second.result(60)
        assert again is not None
        assert [got[0].content, again.content] == [b"0", b"0"]
        assert again.ack()
        rest = [message.content for message in clients[1].pull_many(queue_name, 200, session=sessions[1])]
        assert rest == [b"%d" % number for number in range(1, 100)]
        assert clients[2].pull(queue_name, 0, session=sessions[2]) is None
        assert clients[1].leave_queue(queue_name, sessions[1])
        assert len(clients[2].pull_many(queue_name, 200, session=sessions[2])) == 99


def test_a_lock_is_held_by_one_and_its_tokens_grow(shared_cluster: Cluster, queue_name: str) -> None:
    held = threading.Lock()
    tokens: list[int] = []

    def work(address: str) -> None:
        with Client(address) as client, client.session(ttl=60) as session:
            for _ in range(5):
                with session.lock(queue_name, wait=120) as token:
                    assert held.acquire(blocking=False), "two have the lock"
                    tokens.append(token)
                    held.release()

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(work, node.rpc) for node in shared_cluster]:
            done.result(300)
    assert tokens == sorted(tokens)
    assert len(set(tokens)) == 15
    with Client(shared_cluster[0].rpc) as client, client.session() as mine, client.session() as other:
        with mine.lock(queue_name), pytest.raises(TimeoutError), other.lock(queue_name, wait=0):
            pass
        assert not client.unlock(queue_name, mine.id)


def test_64_producers_wait_for_room_and_never_exceed_it(shared_cluster: Cluster, queue_name: str) -> None:
    """Pushes are stored in the order of arrival, and each free place takes one."""
    producers, most = 64, 4

    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(AsyncClient(node.rpc)) for node in shared_cluster]
            await clients[0].update_props(queue_name, {"max_items": most})
            pushes = [
                asyncio.ensure_future(clients[number % 3].push(queue_name, number, wait=300))
                for number in range(producers)
            ]

            def info() -> dict[str, int]:
                found: dict[str, int] = shared_cluster[0].get_json(f"/v1/queues/{queue_name}")
                return found

            await asyncio.to_thread(wait_for, lambda: info()["ready"] == most or None, "the queue is full")
            got: list[int] = []
            while len(got) < producers:
                message = await clients[len(got) % 3].pull(queue_name, 60)
                assert message is not None
                assert (await asyncio.to_thread(info))["ready"] <= most
                got.append(message.content)
                await message.ack()
            assert await asyncio.gather(*pushes) == ["ok"] * producers
            assert sorted(got, key=str) == sorted(range(producers), key=str)
            # Pushes through one node keep their order.
            for node in range(3):
                assert [one for one in got if one % 3 == node] == list(range(node, producers, 3))

    asyncio.run(main())


def test_a_wait_for_room_ends_at_its_deadline_and_with_its_client(shared_cluster: Cluster, queue_name: str) -> None:
    with Client(shared_cluster[0].rpc) as client:
        client.update_props(queue_name, {"max_items": 1})
        client.push(queue_name, "a")
        assert code_of(lambda: client.push(queue_name, "b", wait=0.2)) == "full"
        gone = Rpc(shared_cluster[1].rpc, 60)
        gone.ask("push", queue_name, "c", {"wait": 600})
        machine = shared_cluster[0]
        refused = machine.get_json(f"/v1/queues/{queue_name}")["refused_total"]
        gone.close()

        def withdrawn() -> bool | None:
            return machine.get_json(f"/v1/queues/{queue_name}")["refused_total"] > refused or None

        wait_for(withdrawn, "the push of a closed client is withdrawn")
        assert client.pull(queue_name, 0).content == b"a"
        assert client.pull(queue_name, 0) is None


def test_a_repeated_push_keeps_waiting_when_the_first_connection_is_closed(
    shared_cluster: Cluster, queue_name: str
) -> None:
    def waiting() -> int:
        count: int = shared_cluster[0].get_json(f"/v1/queues/{queue_name}")["pushes_waiting"]
        return count

    def connections() -> set[str]:
        return {one["address"] for one in shared_cluster[1].get_json("/v1/connections?limit=1000")["connections"]}

    with Client(shared_cluster[0].rpc) as client, Rpc(shared_cluster[2].rpc, 60) as second:
        client.update_props(queue_name, {"max_items": 1})
        client.push(queue_name, "a")
        with Rpc(shared_cluster[1].rpc, 60) as first:
            first.ask("push", queue_name, "b", {"wait": 600, "key": "k"})
            wait_for(lambda: waiting() == 1, "the push waits")
            second.ask("push", queue_name, "b", {"wait": 600, "key": "k"})
            # The node executes the next request after it.
            assert second.call("push", f"{queue_name}-next", "x") == b"ok"
            mine = "{}:{}".format(*first.socket.getsockname())
            assert mine in connections()
        wait_for(lambda: mine not in connections(), "the first connection is closed")
        with Rpc(shared_cluster[1].rpc, 60) as third:
            # Executed after the effects of the close.
            assert third.call("push", f"{queue_name}-next", "x") == b"ok"
        assert client.pull(queue_name, 60).ack()
        assert second.read().error is None
        assert client.pull(queue_name, 60).content == b"b"


def test_session_arguments_are_bounded_and_checked(shared_cluster: Cluster, queue_name: str) -> None:
    rpc = Rpc(shared_cluster[0].rpc, 60)
    arguments: list[object]
    for method, arguments, text in [  # type: ignore[assignment]
        ("open_session", [0], b"bad_request"),
        ("open_session", [3601], b"bad_request"),
        ("open_session", [float("nan")], b"bad_request"),
        ("open_session", ["x"], b"function_clause"),
        ("renew_session", [7], b"function_clause"),
        ("lock", ["", "s"], b"bad_name"),
        ("lock", ["x" * 256, "s"], b"bad_name"),
        ("lock", [queue_name, "no session"], b"session_lost"),
        ("unlock", [queue_name, "no session"], b"session_lost"),
        ("leave_queue", [queue_name, "no session"], b"session_lost"),
        ("pull", [queue_name, 0, {"session": "no session"}], b"session_lost"),
        ("pull", [queue_name, 0, {"session": 7}], b"function_clause"),
        ("push", [queue_name, "x", {"wait": -1}], b"bad_request"),
        ("push", [queue_name, "x", {"wait": 1e9}], b"bad_request"),
        ("push", [queue_name, "x", {"wait": "1"}], b"function_clause"),
    ]:
        assert rpc.error(method, *arguments).startswith(text), (method, arguments)
    assert rpc.call("renew_session", "no session") is False
    assert rpc.call("end_session", "no session") is False
    rpc.close()
