"""Open reads of many connections share as few commands as there are steps."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

import pytest

from lmqcluster.core import Op
from lmqcluster.core.log.results import Delivered
from lmqcluster.node.commit.proposer import PendingCommand
from lmqcluster.node.queues import node_session
from lmqcluster.node.queues.node_session import OWNER, TTL_S, NodeSession
from lmqcluster.node.queues.open_reads.open_reads import OpenReads
from lmqcluster.testing.node import MemoryNode
from lmqcluster.wire.errors import LmqError

from .test_sessions import push, run, turns


def commands_of(node: MemoryNode, monkeypatch: pytest.MonkeyPatch) -> list[PendingCommand]:
    """Return the commands that are added from now on."""
    pending_commands: list[PendingCommand] = []
    add = node.service.sender.proposer.add

    def noted(pending: PendingCommand, size_bytes: int) -> None:
        pending_commands.append(pending)
        add(pending, size_bytes)

    monkeypatch.setattr(node.service.sender.proposer, "add", noted)
    return pending_commands


def test_closes_and_opens_of_a_turn_are_two_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(node: MemoryNode) -> None:
        session = NodeSession(node.service)
        reads = OpenReads(node.service, session)
        await push(node, b"q", *(b"%d" % number for number in range(7)))
        held = [await reads.take(b"q") for _ in range(3)]
        pending_commands = commands_of(node, monkeypatch)
        ends = [reads.confirm_soon(b"q", [number]) for ((_, number, _, _),) in held]
        begins = [asyncio.ensure_future(reads.take(b"q", count=count)) for count in (1, 2, 1)]
        found = [[one[3].content for one in await begin] for begin in begins]
        assert found == [[b"3"], [b"4", b"5"], [b"6"]]
        assert [await end for end in ends] == [[True]] * 3
        assert [pending.command.encode()[:2] for pending in pending_commands] == [
            [Op.ACK, b"q"],
            [Op.PULL_IN_SESSION, b"q"],
        ]
        session.close()

    run(main)


def test_each_request_gets_only_its_items() -> None:
    async def main(node: MemoryNode) -> None:
        session = NodeSession(node.service)
        reads = OpenReads(node.service, session)
        await push(node, b"q", b"1", b"2", b"3")
        numbers = [number for _, number, _, _ in await reads.take(b"q", count=3)]
        ends = [reads.confirm_soon(b"q", [numbers[1]]), reads.confirm_soon(b"q", numbers)]
        assert [await end for end in ends] == [[True], [True, False, True]]
        assert await reads.confirm_soon(b"no such queue", numbers) is None
        session.close()

    run(main)


def test_a_settled_read_removes_its_item() -> None:
    async def main(node: MemoryNode) -> None:
        session = NodeSession(node.service)
        reads = OpenReads(node.service, session)
        await push(node, b"q", b"1", b"2")
        both = await asyncio.gather(reads.take_settled(b"q"), reads.take_settled(b"q"))
        assert [[one[3].content for one in found] for found in both] == [[b"1"], [b"2"]]
        assert await reads.take_settled(b"q") == []
        assert not len(node.service.sender.state().queues[b"q"])
        session.close()

    run(main)


def test_a_wait_ends_when_its_event_is_set_and_takes_nothing() -> None:
    async def main(node: MemoryNode) -> None:
        session = NodeSession(node.service)
        reads = OpenReads(node.service, session)
        over = asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(reads.take(b"q", wait_s=None, until=over))
        await turns()
        assert not waiting.done()
        over.set_result(None)
        assert await waiting == []
        await push(node, b"q", b"1")
        assert [one[3].content for one in await reads.take(b"q")] == [b"1"]
        session.close()

    run(main)


def test_a_client_that_closes_in_the_turn_of_its_request_takes_nothing() -> None:
    async def main(node: MemoryNode) -> None:
        session = NodeSession(node.service)
        reads = OpenReads(node.service, session)
        await push(node, b"q", b"1")
        await session.id()
        going = asyncio.ensure_future(reads.take(b"q"))
        await asyncio.sleep(0)
        going.cancel()
        await turns()
        assert going.cancelled()
        assert [one[3].content for one in await reads.take(b"q")] == [b"1"]
        session.close()

    run(main)


def test_a_node_that_accepts_no_commands_reports_it_to_all_of_a_turn() -> None:
    async def main(node: MemoryNode) -> None:
        session = NodeSession(node.service)
        reads = OpenReads(node.service, session)
        await push(node, b"q", b"1")
        ((_, number, _, _),) = await reads.take(b"q")
        node.service.sender.proposer.retire(LmqError("shutting_down", "the node is shutting down"))
        ending, taking = reads.confirm_soon(b"q", [number]), asyncio.ensure_future(reads.take(b"q"))
        for asked in (ending, taking):
            with pytest.raises(LmqError, match="shutting down"):
                await asked
        node.service.sender.proposer.resume()
        session.close()

    run(main)


def test_items_after_the_end_of_the_session_are_not_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(node: MemoryNode) -> None:
        session = NodeSession(node.service)
        reads = OpenReads(node.service, session)
        await push(node, b"q", b"1")
        delivered, lost = node.service.delivered, []

        async def late(*arguments: Any, **more: Any) -> list[Delivered]:
            found = await delivered(*arguments, **more)
            if not lost:
                # The node learns both at once: that it got the message, and that the others considered it dead.
                lost.append(found[0][1])
                assert await node.service.sessions.end(await session.id(), OWNER)
            return found

        monkeypatch.setattr(node.service, "delivered", late)
        ((_, number, _, message),) = await reads.take(b"q")
        assert (message.content, number == lost[0]) == (b"1", False)
        assert await reads.confirm_soon(b"q", lost) == [False]
        assert await reads.confirm_soon(b"q", [number]) == [True]
        session.close()

    run(main)


@pytest.fixture
def passed_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time for which the node has stalled."""
    passed = [0.0]
    monkeypatch.setattr(node_session, "monotonic", lambda: monotonic() + passed[0])
    return passed


def test_a_stalled_node_checks_its_session_before_it_delivers(
    monkeypatch: pytest.MonkeyPatch, passed_s: list[float]
) -> None:
    async def main(node: MemoryNode) -> None:
        session = NodeSession(node.service)
        reads = OpenReads(node.service, session)
        await push(node, b"q", b"1", b"2")
        await session.id()
        # It learns of the end of its session only after its earlier opens.
        node.service.board.session_ended.clear()
        delivered, lost = node.service.delivered, []

        async def late(*arguments: Any, **more: Any) -> list[Delivered]:
            found = await delivered(*arguments, **more)
            passed_s[0] += TTL_S
            if not lost:
                lost.append(found[0][1])
                assert await node.service.sessions.end(await session.id(), OWNER)
            return found

        monkeypatch.setattr(node.service, "delivered", late)
        ((_, number, _, message),) = await reads.take(b"q")
        assert (message.content, number == lost[0]) == (b"1", False)
        # This time it stalled for as long, but the session lives.
        assert [one[3].content for one in await reads.take(b"q")] == [b"2"]
        assert await reads.confirm_soon(b"q", [number]) == [True]
        session.close()

    run(main)


def test_possibly_lost_items_are_returned_if_the_session_cannot_be_checked(
    monkeypatch: pytest.MonkeyPatch, passed_s: list[float]
) -> None:
    async def main(node: MemoryNode) -> None:
        session = NodeSession(node.service)
        reads = OpenReads(node.service, session)
        await push(node, b"q", b"1", b"2")
        delivered, renew = node.service.delivered, node.service.sessions.renew

        async def late(*arguments: Any, **more: Any) -> list[Delivered]:
            found = await delivered(*arguments, **more)
            passed_s[0] += TTL_S
            return found

        async def lost(*_: Any) -> bool:
            raise LmqError("no_leader", "there is no leader")

        monkeypatch.setattr(node.service, "delivered", late)
        monkeypatch.setattr(node.service.sessions, "renew", lost)
        with pytest.raises(LmqError, match="no leader"):
            await reads.take(b"q")
        monkeypatch.setattr(node.service.sessions, "renew", renew)
        assert [one[3].content for one in await reads.take(b"q", count=2)] == [b"1", b"2"]
        session.close()

    run(main)


def test_a_read_beyond_the_room_of_the_session_does_not_look_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("lmqcluster.core.handlers.sessions", "lmqcluster.node.queues.open_reads.open_reads"):
        monkeypatch.setattr(f"{module}.LEASES_MAX", 3)

    async def main(node: MemoryNode) -> None:
        session = NodeSession(node.service)
        reads = OpenReads(node.service, session)
        await push(node, b"q", *(b"%d" % number for number in range(5)))
        await session.id()
        # All three share a command, which gets three of five.
        first, second, third = (asyncio.ensure_future(reads.take(b"q", count=count)) for count in (2, 2, 1))
        assert [len(await first), len(await second)] == [2, 1]
        with pytest.raises(LmqError, match="holds 3 messages"):
            await third
        session.close()

    run(main)


def test_items_received_while_the_node_opened_another_session_are_not_delivered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main(node: MemoryNode) -> None:
        session = NodeSession(node.service)
        reads = OpenReads(node.service, session)
        await push(node, b"q", b"1")
        delivered, lost = node.service.delivered, []

        async def late(*arguments: Any, **more: Any) -> list[Delivered]:
            found = await delivered(*arguments, **more)
            if not lost:
                lost.append(found[0][1])
                ended = await session.id()
                assert await node.service.sessions.end(ended, OWNER)
                assert await session.id() != ended
            return found

        monkeypatch.setattr(node.service, "delivered", late)
        ((_, number, _, message),) = await reads.take(b"q")
        assert (message.content, number == lost[0]) == (b"1", False)
        assert await reads.confirm_soon(b"q", lost) == [False]
        assert await reads.confirm_soon(b"q", [number]) == [True]
        session.close()

    run(main)


def test_thousands_of_messages_of_a_lost_connection_return_in_their_order() -> None:
    async def main(node: MemoryNode) -> None:
        session = NodeSession(node.service)
        reads = OpenReads(node.service, session)
        wanted = [b"%04d" % number for number in range(2_500)]
        for start in range(0, len(wanted), 500):
            await push(node, b"q", *wanted[start : start + 500])
        held = await reads.take(b"q", count=len(wanted))
        assert len(held) == len(wanted)
        reads.abort_numbers_soon({b"q": [number for _, number, _, _ in held]})
        assert [one[3].content for one in await reads.take(b"q", count=len(wanted))] == wanted
        session.close()

    run(main)


def test_each_of_thousands_of_confirmations_of_a_turn_gets_its_items() -> None:
    async def main(node: MemoryNode) -> None:
        session = NodeSession(node.service)
        reads = OpenReads(node.service, session)
        for _ in range(5):
            await push(node, b"q", *[b"x"] * 500)
        numbers = [number for _, number, _, _ in await reads.take(b"q", count=2_500)]
        # Every third is no longer open, in parts that do not align with commands.
        closed = numbers[::3]
        assert await reads.confirm_soon(b"q", closed) == [True] * len(closed)
        parts = [numbers[start : start + 7] for start in range(0, len(numbers), 7)]
        ends = [reads.confirm_soon(b"q", part) for part in parts]
        gone = set(closed)
        assert [await end for end in ends] == [[number not in gone for number in part] for part in parts]
        session.close()

    run(main)
