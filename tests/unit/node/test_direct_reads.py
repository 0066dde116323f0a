"""Reads without a task: their results, refusals, and returned messages."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any
from unittest import mock

import pytest

from lmqcluster.core.commands import Delivered
from lmqcluster.node.queues import node_session
from lmqcluster.node.queues.direct_reads import DirectRead
from lmqcluster.node.queues.node_session import OWNER, TTL_S, NodeSession
from lmqcluster.node.queues.open_reads import OpenReads
from lmqcluster.testing.node import MemoryNode
from lmqcluster.wire.errors import LmqError

from .test_sessions import push, run, turns


class Client:
    """Records its results (`Taker` and `Asker`)."""

    def __init__(self, room_bytes: int = 1 << 20) -> None:
        self.closed = False
        self.room_bytes = room_bytes
        self.heard: list[object] = []
        self.numbers: list[int] = []

    def has_room(self, size_bytes: int) -> bool:
        return size_bytes <= self.room_bytes

    def taken(self, delivered: list[Delivered]) -> None:
        self.numbers += [number for _, number, _, _ in delivered]
        self.heard += [message.content for _, _, _, message in delivered] or [None]

    def failed(self, error: LmqError) -> None:
        self.heard.append(error.code)

    def not_taken(self) -> None:
        self.heard.append("not taken")

    def done(self) -> bool:
        return False

    def set_result(self, were_open: list[bool] | None, /) -> None:
        self.heard.append(were_open)

    def set_exception(self, error: LmqError, /) -> None:
        self.failed(error)


def bench(node: MemoryNode) -> tuple[NodeSession, OpenReads]:
    session = NodeSession(node.service)
    return session, OpenReads(node.service, session)


def take(reads: OpenReads, client: Client, *, settles: bool = False) -> bool:
    return reads.take_directly(b"q", client, client.has_room, settles=settles)


async def contents(reads: OpenReads) -> list[object]:
    """Return the remaining contents, in order."""
    return [message.content for _, _, _, message in await reads.take(b"q", count=100)]


def test_one_read_is_closed_and_the_next_one_opened() -> None:
    async def main(node: MemoryNode) -> None:
        session, reads = bench(node)
        await push(node, b"q", b"1", b"2", b"3")
        await session.id()
        client = Client()
        assert take(reads, client)
        await turns()
        # The close is executed first, in either order of the requests.
        assert take(reads, client)
        reads.confirm_to(client, b"q", client.numbers)
        await turns()
        assert client.heard == [b"1", [True], b"2"]
        assert await reads.abort_numbers(b"q", client.numbers) == [False, True]
        assert await contents(reads) == [b"2", b"3"]
        session.close()

    run(main)


def test_settled_reads_remove_messages_and_an_empty_queue_gives_none() -> None:
    async def main(node: MemoryNode) -> None:
        session, reads = bench(node)
        await push(node, b"q", b"1")
        first, second = Client(), Client()
        assert take(reads, first, settles=True)
        assert take(reads, second, settles=True)
        await turns()
        assert (first.heard, second.heard) == ([b"1"], [None])
        assert not len(node.service.machine().queues[b"q"])
        session.close()

    run(main)


def test_a_request_larger_than_one_command_is_not_sent() -> None:
    async def main(node: MemoryNode) -> None:
        session, reads = bench(node)
        client = Client()
        assert not take(reads, client, settles=True), "there is no such queue"
        await push(node, b"q", b"1")
        assert not take(reads, client), "there is no session yet"
        await session.id()
        await node.service.set_properties(b"q", [("exclusive", True)])
        assert not take(reads, client), "others may not take from an exclusive queue"
        await turns()
        assert client.heard == []
        session.close()

    run(main)


@pytest.mark.parametrize("lose", [lambda one: setattr(one, "closed", True), lambda one: setattr(one, "room_bytes", 0)])
def test_messages_that_a_client_cannot_take_are_returned(lose: Callable[[Client], None]) -> None:
    async def main(node: MemoryNode) -> None:
        session, reads = bench(node)
        await push(node, b"q", b"1", b"2")
        await session.id()
        client = Client()
        assert take(reads, client)
        lose(client)
        await turns()
        assert client.heard == ([] if client.closed else ["overloaded"])
        assert await contents(reads) == [b"1", b"2"]
        session.close()

    run(main)


def test_a_session_that_the_cluster_has_ended_is_abandoned() -> None:
    async def main(node: MemoryNode) -> None:
        session, reads = bench(node)
        await push(node, b"q", b"1")
        lost: list[int] = []
        session.on_lost.append(lambda: lost.append(1))
        ended = await session.id()
        # The node learns of it with the answer to its next request.
        node.service.board.session_ended.clear()
        assert await node.service.sessions.end(ended, OWNER)
        client = Client()
        assert take(reads, client)
        await turns()
        assert (client.heard, lost) == (["not taken"], [1])
        assert session.sure_number() is None
        assert await contents(reads) == [b"1"]
        assert await session.id() != ended
        session.close()

    run(main)


def test_messages_for_a_stalled_node_are_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    passed_s = [0.0]
    monkeypatch.setattr(node_session, "monotonic", lambda: monotonic() + passed_s[0])

    async def main(node: MemoryNode) -> None:
        session, reads = bench(node)
        await push(node, b"q", b"1", b"2")
        await session.id()
        client = Client()
        assert take(reads, client)
        passed_s[0] = TTL_S
        await turns()
        assert client.heard == ["not taken"]
        assert not take(reads, client), "to find out whether the session lives is for one who can wait"
        # The session lives.
        assert await contents(reads) == [b"1", b"2"]
        session.close()

    run(main)


def test_a_node_that_accepts_no_commands_reports_it() -> None:
    async def main(node: MemoryNode) -> None:
        session, reads = bench(node)
        await push(node, b"q", b"1")
        await session.id()
        node.service.proposer.retire(LmqError("shutting_down", "the node is shutting down"))
        client = Client()
        assert take(reads, client)
        await turns()
        assert client.heard == ["shutting_down"]
        node.service.proposer.resume()
        session.close()

    run(main)


def test_messages_of_a_former_session_are_not_delivered() -> None:
    async def main(node: MemoryNode) -> None:
        session, reads = bench(node)
        await push(node, b"q", b"1", b"2")
        ended = await session.id()
        client = Client()
        assert take(reads, client)
        # The delivery is in flight; the node learns first that its session has ended, and opens another one.
        hear = node.service.board.session_ended[:]
        node.service.board.session_ended.clear()
        pulled = DirectRead.pulled

        def late(self: DirectRead, token: Any, delivered: list[Delivered]) -> None:
            late_ones.append((self, token, delivered))

        late_ones: list[tuple[DirectRead, Any, list[Delivered]]] = []
        with mock.patch.object(DirectRead, "pulled", late):
            await turns()
        assert await node.service.sessions.end(ended, OWNER)
        session.lost(ended)
        node.service.board.session_ended += hear
        assert await session.id() != ended
        for one in late_ones:
            pulled(*one)
        await turns()
        assert client.heard == ["not taken"]
        assert await contents(reads) == [b"1", b"2"]
        session.close()

    run(main)
