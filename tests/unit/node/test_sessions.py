"""Sessions, exclusive queues, locks, open reads and waiting pushes, as protocols use them at a node."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from lmqcluster.node.queues.node_session import TTL_S, NodeSession
from lmqcluster.node.queues.open_reads.open_reads import OpenReads
from lmqcluster.node.queues.pulls.deliveries import Delivery
from lmqcluster.node.queues.sending.push_items import PushItem
from lmqcluster.node.queues.views.peek import PeekQuery
from lmqcluster.testing.clock import MovableLoop
from lmqcluster.testing.node import MemoryNode
from lmqcluster.wire.errors import LmqError

Main = Callable[[MemoryNode], Awaitable[None]]


def run(main: Main) -> None:
    async def whole(loop: MovableLoop) -> None:
        node = MemoryNode(loop)
        try:
            await main(node)
        finally:
            await node.close()

    loop = MovableLoop()
    try:
        loop.run_until_complete(whole(loop))
    finally:
        loop.close()


async def push(node: MemoryNode, queue: bytes, *bodies: bytes, wait_s: float | None = None) -> None:
    await node.service.push(queue, [PushItem(body) for body in bodies], wait_s=wait_s)


def bodies(found: list[Delivery]) -> list[bytes]:
    return [one.content for one in found]


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


# --- sessions -------------------------------------------------------------------------------------------------------


def test_leases_of_a_session_that_is_not_renewed_return_to_the_head() -> None:
    async def main(node: MemoryNode) -> None:
        sessions = node.service.sessions
        await push(node, b"q", b"1", b"2", b"3")
        session = await sessions.open(10)
        assert bodies(await sessions.pull(b"q", session, count=2)) == [b"1", b"2"]
        await node.advance(9)
        assert await sessions.renew(session)
        await node.advance(9)
        assert bodies(await node.service.pull(b"q")) == [b"3"]
        await node.advance(2)
        assert not await sessions.renew(session)
        assert bodies(await node.service.pull(b"q", count=3)) == [b"1", b"2"]
        with pytest.raises(LmqError) as caught:
            await sessions.pull(b"q", session)
        assert caught.value.code == "session_lost"

    run(main)


def test_a_pull_that_waits_in_a_session_ends_with_it() -> None:
    async def main(node: MemoryNode) -> None:
        sessions = node.service.sessions
        session = await sessions.open(10)
        waiting = asyncio.ensure_future(sessions.pull(b"q", session, wait_s=None))
        await turns()
        await node.advance(10)
        with pytest.raises(LmqError) as caught:
            await waiting
        assert caught.value.code == "session_lost"

    run(main)


def test_an_exclusive_queue_serves_one_session_and_then_the_next_in_order() -> None:
    async def main(node: MemoryNode) -> None:
        sessions, service = node.service.sessions, node.service
        await service.set_properties(b"q", [("exclusive", True)])
        await push(node, b"q", b"1", b"2")
        with pytest.raises(LmqError) as caught:
            await service.pull(b"q")
        assert caught.value.code == "exclusive"
        first, second, third = [await sessions.open(10) for _ in range(3)]
        assert bodies(await sessions.pull(b"q", first)) == [b"1"]
        waits = [asyncio.ensure_future(sessions.pull(b"q", one, wait_s=60)) for one in (second, third)]
        await turns()
        await push(node, b"q", b"3")
        await turns()
        assert not any(one.done() for one in waits)
        assert await sessions.leave(b"q", first)
        assert bodies(await waits[0]) == [b"1"]
        assert not waits[1].done()
        assert await sessions.end(second)
        assert bodies(await waits[1]) == [b"1"]
        assert bodies(await sessions.pull(b"q", third, count=5)) == [b"2", b"3"]

    run(main)


def test_a_message_for_a_closed_client_goes_to_the_next() -> None:
    async def main(node: MemoryNode) -> None:
        sessions = node.service.sessions
        session = await sessions.open(60)
        for charge in (0, 1):
            pull = asyncio.ensure_future(sessions.pull(b"q", session, wait_s=None, charge=charge))
            await turns()
            pull.cancel()
            await push(node, b"q", b"1")
            found = await sessions.pull(b"q", session)
            assert [(one.content, one.retry) for one in found] == [(b"1", 2)]

    run(main)


def test_the_end_of_a_session_lease_is_shown_as_unknown() -> None:
    async def main(node: MemoryNode) -> None:
        sessions = node.service.sessions
        await push(node, b"q", b"1", b"2")
        session = await sessions.open(60)
        await sessions.pull(b"q", session)
        await sessions.pull(b"q", session, lease_s=30)
        found, _ = await node.service.peeks.page(b"q", PeekQuery(0, 10, 1_000), b"client")
        assert [one.state for one in found] == ["leased", "leased"]
        assert found[0].due_in_s is None
        assert found[1].due_in_s is not None

    run(main)


# --- locks ----------------------------------------------------------------------------------------------------------


def test_a_lock_goes_to_the_next_in_line_with_a_larger_token() -> None:
    async def main(node: MemoryNode) -> None:
        sessions = node.service.sessions
        first, second, third = [await sessions.open(ttl) for ttl in (10, 60, 60)]
        token = await sessions.lock(b"l", first)
        assert token
        assert await sessions.lock(b"l", first) == token
        assert await sessions.lock(b"l", second) is None
        waits = [asyncio.ensure_future(sessions.lock(b"l", one, wait_s=None)) for one in (second, third)]
        await turns()
        await node.advance(10)
        second_token = await waits[0]
        assert second_token is not None
        assert second_token > token
        assert not waits[1].done()
        assert await sessions.unlock(b"l", second)
        third_token = await waits[1]
        assert third_token is not None
        assert third_token > second_token
        assert not await sessions.unlock(b"l", second)

    run(main)


def test_a_cancelled_wait_leaves_the_wait_list_of_a_lock() -> None:
    async def main(node: MemoryNode) -> None:
        sessions = node.service.sessions
        first, second, third = [await sessions.open(60) for _ in range(3)]
        await sessions.lock(b"l", first)
        timed_out = asyncio.ensure_future(sessions.lock(b"l", second, wait_s=5))
        cancelled = asyncio.ensure_future(sessions.lock(b"l", third, wait_s=None))
        await turns()
        cancelled.cancel()
        await node.advance(5)
        assert await timed_out is None
        await sessions.unlock(b"l", first)
        assert await sessions.lock(b"l", first) is not None

    run(main)


# --- pushes that wait -----------------------------------------------------------------------------------------------


def test_pushes_wait_in_order_and_one_free_place_takes_one() -> None:
    async def main(node: MemoryNode) -> None:
        service = node.service
        await service.set_properties(b"q", [("max_items", 1)])
        await push(node, b"q", b"0")
        waits = []
        for body in (b"1", b"2", b"3"):
            waits.append(asyncio.ensure_future(push(node, b"q", body, wait_s=60)))
            await turns()
        with pytest.raises(LmqError) as caught:
            await push(node, b"q", b"4")
        assert caught.value.code == "full"
        got = bodies(await service.pull(b"q"))
        await waits[0]
        assert [one.done() for one in waits] == [True, False, False]
        waits[1].cancel()
        await turns()
        got += bodies(await service.pull(b"q"))
        await waits[2]
        got += bodies(await service.pull(b"q"))
        assert got == [b"0", b"1", b"3"]

    run(main)


def test_closing_before_the_push_waits_withdraws_it() -> None:
    async def main(node: MemoryNode) -> None:
        service = node.service
        await service.set_properties(b"q", [("max_items", 0)])
        waiting = asyncio.ensure_future(push(node, b"q", b"1", wait_s=600))
        # The command is in flight, and its result has not returned yet.
        await asyncio.sleep(0)
        waiting.cancel()
        await turns()
        assert service.sender.state().queues[b"q"].pushes_waiting == 0
        late = asyncio.ensure_future(push(node, b"q", b"2", wait_s=600))
        await asyncio.sleep(0)
        service.refuse(LmqError("shutting_down", "the node is shutting down"))
        with pytest.raises(LmqError) as caught:
            await late
        assert caught.value.code == "shutting_down"
        assert service.sender.state().queues[b"q"].pushes_waiting == 0

    run(main)


def test_a_push_waits_no_longer_than_requested_and_ends_with_the_node() -> None:
    async def main(node: MemoryNode) -> None:
        service = node.service
        await service.set_properties(b"q", [("max_items", 0)])
        for end in ("full", "full", "shutting_down"):
            waiting = asyncio.ensure_future(push(node, b"q", b"1", wait_s=5))
            await turns()
            if end == "shutting_down":
                service.refuse(LmqError("shutting_down", "the node is shutting down"))
            else:
                await node.advance(4.9)
                assert not waiting.done()
                await node.advance(0.2)
            with pytest.raises(LmqError) as caught:
                await waiting
            assert caught.value.code == end
        assert service.sender.state().queues[b"q"].pushes_waiting == 0

    run(main)


# --- open reads -----------------------------------------------------------------------------------------------------


def test_open_reads_are_uncharged_and_return_to_the_head_in_order() -> None:
    async def main(node: MemoryNode) -> None:
        session = NodeSession(node.service)
        reads = OpenReads(node.service, session)
        await node.service.set_properties(b"q", [("retry", 0)])
        await push(node, b"q", b"1", b"2", b"3")
        for _ in range(3):
            found = await reads.open(b"q", count=2)
            assert bodies(found) == [b"1", b"2"]
            assert await reads.abort(b"q", [one.id for one in found]) == [True, True]
        found = await reads.open(b"q", count=3)
        reads.abort_soon({b"q": [one.id for one in found]})
        found = await reads.open(b"q")
        assert bodies(found) == [b"1"]
        assert await reads.confirm(b"q", [found[0].id]) == [True]
        assert await reads.confirm(b"q", [found[0].id]) == [False]
        assert await reads.confirm(b"no such queue", [found[0].id]) == [False]
        session.close()

    run(main)


def test_a_node_whose_session_expired_reports_it_and_continues() -> None:
    async def main(node: MemoryNode) -> None:
        session = NodeSession(node.service)
        reads = OpenReads(node.service, session)
        lost: list[int] = []
        reads.on_lost(lambda: lost.append(1))
        await push(node, b"q", b"1")
        found = await reads.open(b"q")
        # The renewal does not succeed in time, and the session ends during it.
        assert session._renewing is not None
        session._renewing.cancel()
        await node.advance(TTL_S)
        assert lost == [1]
        other = await node.service.pull(b"q")
        assert bodies(other) == [b"1"]
        assert await reads.confirm(b"q", [found[0].id]) == [False]
        await push(node, b"q", b"2")
        assert bodies(await reads.open(b"q")) == [b"2"]
        session.close()

    run(main)


def test_a_waiting_open_read_outlives_the_session() -> None:
    async def main(node: MemoryNode) -> None:
        session = NodeSession(node.service)
        reads = OpenReads(node.service, session)
        waiting = asyncio.ensure_future(reads.open(b"q", wait_s=None))
        await turns()
        assert session._renewing is not None
        session._renewing.cancel()
        await node.advance(TTL_S)
        await push(node, b"q", b"1")
        assert bodies(await waiting) == [b"1"]
        session.close()

    run(main)
