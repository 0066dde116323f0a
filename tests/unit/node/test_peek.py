"""Pages of the list of messages against all that is in the queue, over random histories and while the queue changes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from lmqcluster.core import Op, Queue
from lmqcluster.core.backlog import ChunkSizes
from lmqcluster.core.message import content_bytes
from lmqcluster.node.queues import absent_bodies, peek
from lmqcluster.node.queues.peek import PeekPage, PeekQuery, Peeks
from lmqcluster.node.turns import Turns
from lmqcluster.wire.errors import LmqError
from tests.property.driver import Driver, numbers
from tests.unit.core.page_store import MemoryPages

Q = b"q"
SIZES = ChunkSizes(head_messages=4, head_messages_min=4, messages=3, bytes=200)
PUSH_ROW = [None, [], None]


class History:
    """A queue with short chunks, whose messages are pushed, pulled, settled, given back and paged out at random.

    Attributes:
        pages: where chunks go that leave memory.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.driver = Driver(version=3)
        self.pages = MemoryPages()
        backlogs = self.driver.machine.backlogs
        backlogs.sizes, backlogs.store, backlogs.resident_bytes_max = SIZES, self.pages, 0
        self._leased: list[int] = []
        self.go_on(40)

    @property
    def queue(self) -> Queue:
        return self.driver.machine.queues[Q]

    def go_on(self, steps: int) -> None:
        """Do so many things."""
        for _ in range(steps):
            self._step()

    def _step(self) -> None:
        chance, driver = self.chance, self.driver
        kind = chance.random()
        if kind < 0.5:
            driver.push(Q, *(chance.randbytes(chance.choice((0, 10, 150, 300))) for _ in range(chance.randrange(1, 5))))
        elif kind < 0.55:
            traits = [chance.randrange(3), 0, 0, chance.randrange(-2, 3), b"l" * chance.randrange(2), b""]
            driver.do(Op.PUSH_TRAITS, Q, [[b"rich", *PUSH_ROW, traits]])
        elif kind < 0.75:
            self._leased += numbers(driver.pull(Q, chance.randrange(1, 6)))
        elif self._leased:
            settle = chance.choice((driver.nack, driver.nack, driver.ack, driver.put_back))
            settle(Q, self._leased.pop(chance.randrange(len(self._leased))))
        driver.wait(chance.random())
        driver.machine.backlogs.page_out(chance.randrange(4))

    def sequences(self) -> set[int]:
        """All that is in the queue."""
        queue = self.queue
        rich = [] if queue.rich is None else [one for _, line in queue.rich.lines() for one in line]
        backlog = [] if queue.backlog is None else queue.backlog.messages()
        delayed = (message for _, _, message in queue.delayed)
        every = [*queue.ready, *delayed, *queue.leases.messages.values(), *rich, *backlog]
        assert len(every) == len(queue)
        return {message.sequence for message in every}

    async def page(self, query: PeekQuery) -> PeekPage:
        return await Peeks(lambda: self.driver.machine, Turns()).page(Q, query, b"c")

    async def listed(self, change: Callable[[], None] = lambda: None, **bounds: int | None) -> list[int]:
        """The sequences of all pages; `change` is called between them."""
        found: list[int] = []
        start: int | None = 0
        while start is not None:
            page = await self.page(PeekQuery(start, **{"count": 3, "bytes_max": 10_000, **bounds}))  # type: ignore[arg-type]
            assert page.messages or page.following is None
            found += [one.sequence for one in page.messages]
            start = page.following
            change()
        return found


@pytest.mark.parametrize("seed", range(40))
def test_pages_put_together_are_all_messages_in_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    history = History(seed)
    wanted = sorted(history.sequences())
    for count, bytes_max, body, read in ((1, 99, None, 400), (7, 300, 20, 0), (50, 700, None, 1 << 20), (3, 0, 0, 500)):
        monkeypatch.setattr(peek, "READ_BYTES_MAX", read)
        assert asyncio.run(history.listed(count=count, bytes_max=bytes_max, body_bytes_max=body)) == wanted


@pytest.mark.parametrize("seed", range(40))
def test_what_stays_in_a_queue_that_changes_is_listed_once(seed: int) -> None:
    history = History(seed)
    stayed = history.sequences()

    def change() -> None:
        history.go_on(2)
        stayed.intersection_update(history.sequences())

    found = asyncio.run(history.listed(change))
    assert found == sorted(set(found))
    assert stayed <= set(found)


def test_bodies_of_pages_are_shortened_and_say_their_size() -> None:
    history = History(7)
    page = asyncio.run(history.page(PeekQuery(0, 1_000, 1 << 20, body_bytes_max=20)))
    whole = asyncio.run(history.page(PeekQuery(0, 1_000, 1 << 20)))
    sizes = [content_bytes(one.message.content) for one in whole.messages]
    assert [one.size for one in page.messages] == sizes
    kept = [content_bytes(one.message.content) for one in page.messages]
    assert any(short == 21 < size for short, size in zip(kept, sizes, strict=True))
    assert sizes == [content_bytes(one.message.content) for one in whole.messages]


def test_a_chunk_that_leaves_while_its_page_is_read_is_found_where_it_went() -> None:
    history = History(3)
    wanted = history.sequences()
    fetched: list[bytes] = []

    def fetch(page: bytes, done: Callable[[bool], None]) -> None:
        fetched.append(page)
        if len(fetched) == 1:
            # All of it is leased before the page comes, which nobody needs then.
            history.driver.pull(Q, 10_000)
        done(len(fetched) > 1)

    history.pages.fetch = fetch  # type: ignore[method-assign]
    assert asyncio.run(history.listed(count=1_000)) == sorted(wanted)
    assert fetched


def test_a_page_that_cannot_be_read_is_an_error_and_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    history = History(3)
    history.pages.fetch = lambda page, done: done(False)  # type: ignore[method-assign]
    monkeypatch.setattr(absent_bodies, "PATIENCE_S", 0.0)
    with pytest.raises(LmqError, match="body cannot be read"):
        asyncio.run(history.listed(count=1_000))


def test_looking_gives_way_after_each_chunk_and_each_slice() -> None:
    history = History(5)
    history.driver.push(Q, *[b""] * 30_000)
    assert history.queue.backlog is not None
    chunks = len(history.queue.backlog.chunks)
    turns = Turns()

    async def look() -> PeekPage:
        return await Peeks(lambda: history.driver.machine, turns).page(Q, PeekQuery(0, 40_000, 1 << 30), b"c")

    assert {one.sequence for one in asyncio.run(look()).messages} == history.sequences()
    assert turns.given_total > chunks > 5_000
