"""A pull reads bodies from their pages, whatever happens in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from lmqcluster.core import Op, State
from lmqcluster.core.messages.bodies import Body
from lmqcluster.core.messages.message import loaded
from lmqcluster.node.queues.node_session import NodeSession
from lmqcluster.node.queues.open_reads.open_reads import OpenReads
from lmqcluster.node.queues.pulls import body_fetcher as absent_bodies
from lmqcluster.node.queues.sending.push_items import PushItem, PushOptions
from lmqcluster.testing.node import MemoryNode
from lmqcluster.wire.errors import LmqError, Outcome
from tests.unit.core.page_store import MemoryPages

from .command_bench import Bench, until
from .pull_bench import Client, run
from .test_sessions import run as run_node
from .test_sessions import turns


class SlowPages(MemoryPages):
    """Pages that arrive when the test decides, or turn out to be lost."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[bytes, Callable[[bool], None]]] = []

    def fetch(self, page: bytes, done: Callable[[bool], None]) -> None:
        self.asked.append((page, done))

    def answer(self, *, are_here: bool = True) -> None:
        """Answer all requests so far."""
        asked, self.asked = self.asked, []
        for _page, done in asked:
            done(are_here)


def paging(state: State) -> SlowPages:
    """Give a state pages, and page out all bodies."""
    pager = state.pager
    pages = SlowPages()
    pager.store, pager.resident_bytes_max = pages, 0
    pager.sizes = pager.sizes._replace(body=1, gather_bytes=0, bytes=1)
    return pages


def paged(bench: Bench) -> SlowPages:
    """Push bodies with priorities, the last of which is first, and page out all but some of them."""
    pages, pager = paging(bench.machine.state), bench.machine.state.pager
    rows = [[b"%d" % number, None, b"", None, [-1, 0, 0, -number, b"", b""]] for number in range(1, 5)]
    rows.append([b"last", None, b"", None, [-1, 0, 0, 9, b"", b""]])
    bench.foreign([Op.PUSH_ROWS, b"q", rows])
    pager.page_out(100)
    assert pager.paged_body_bytes
    return pages


class Reader(Client):
    """A `Client` that keeps only bodies in memory."""

    def pulled(self, token: Any, delivered: list[Any]) -> None:
        assert not any(isinstance(one[3].content, Body) and one[3].content.missing() for one in delivered)
        self.got.append((token, [loaded(one[3].content) for one in delivered]))


def left(bench: Bench) -> list[bytes]:
    """Return the contents that can be pulled now."""
    (found,) = bench.foreign([Op.PULL, b"q", 100])
    return [loaded(one[3].content) for one in found]  # type: ignore[misc]


def test_a_pull_is_answered_when_its_pages_have_arrived() -> None:
    async def scenario(bench: Bench) -> None:
        pages = paged(bench)
        reader = Reader()
        bench.pulls.start(b"q", (reader, "one", 2, 0.0))
        await bench.settle()
        assert reader.got == []
        assert pages.asked
        pages.answer()
        assert reader.got == [("one", [b"4", b"3"])]
        assert bench.machine.state.pager.paged_body_bytes, "leased bodies are not read into memory"

    run(scenario)


def test_waiting_pulls_get_bodies_too() -> None:
    async def scenario(bench: Bench) -> None:
        reader = Reader()
        bench.pulls.start(b"q", (reader, "one", 1, None))
        await bench.settle()
        pages = paged(bench)
        await bench.settle()
        assert reader.got == []
        pages.answer()
        assert reader.got == [("one", [b"4"])]

    run(scenario)


def test_unwanted_messages_are_put_back() -> None:
    async def scenario(bench: Bench) -> None:
        pages = paged(bench)
        reader = Reader()
        bench.pulls.start(b"q", (reader, "one", 1, 0.0))
        await bench.settle()
        reader.closed = True
        pages.answer()
        await bench.settle()
        assert reader.got == []
        assert left(bench) == [b"4", b"3", b"2", b"1", b"last"]

    run(scenario)


def test_a_page_that_another_member_sends_in_time_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(absent_bodies, "RETRY_S", 0.0)

    async def scenario(bench: Bench) -> None:
        pages = paged(bench)
        reader = Reader()
        bench.pulls.start(b"q", (reader, "one", 1, 0.0))
        await bench.settle()
        pages.answer(are_here=False)
        await until(lambda: bool(pages.asked))
        pages.answer()
        assert reader.got == [("one", [b"4"])]

    run(scenario)


def test_a_page_that_no_member_has_is_an_error_and_the_message_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(absent_bodies, "PATIENCE_S", 0.0)

    async def scenario(bench: Bench) -> None:
        pages = paged(bench)
        reader = Reader()
        bench.pulls.start(b"q", (reader, "one", 1, 0.0))
        await bench.settle()
        pages.answer(are_here=False)
        await bench.settle()
        assert reader.got == [("one", "overloaded")]
        reading = asyncio.ensure_future(
            bench.pulls.absent.fetched(list(bench.machine.state.queues[b"q"].store.enriched().waiting))
        )
        await bench.turn()
        pages.answer(are_here=False)
        with pytest.raises(LmqError, match="cannot be read"):
            await reading
        assert left(bench) == [b"4", b"3", b"2", b"1", b"last"]

    run(scenario)


@pytest.mark.parametrize("are_here", [True, False])
def test_a_message_settled_by_its_pull_stays_if_its_body_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, are_here: bool
) -> None:
    """Kestrel's get without open uses this."""
    monkeypatch.setattr(absent_bodies, "PATIENCE_S", 0.0)

    async def main(node: MemoryNode) -> None:
        session = NodeSession(node.service)
        reads = OpenReads(node.service, session)
        pages, queue = paging(node.service.sender.state()), b"q"
        for number in range(1, 4):
            await node.service.push(queue, [PushItem(b"%d" % number, options=PushOptions(priority=-number))])
        node.service.sender.state().pager.page_out(100)
        assert node.service.sender.state().pager.paged_body_bytes
        taking = asyncio.ensure_future(reads.take_settled(queue))
        await turns()
        assert pages.asked
        pages.answer(are_here=are_here)
        if are_here:
            assert [loaded(one[3].content) for one in await taking] == [b"3"]
        else:
            with pytest.raises(LmqError, match="cannot be read") as caught:
                await taking
            assert caught.value.outcome is Outcome.NOT_APPLIED
        await turns()
        found = node.service.sender.state().queues[queue]
        assert (len(found), len(found.store.leases.messages)) == (2 if are_here else 3, 0)
        session.close()

    run_node(main)
