"""Pages of the list of messages against the whole queue, over random histories and while the queue changes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from lmqcluster.core import Message, Op, Queue
from lmqcluster.core.messages.message import content_bytes
from lmqcluster.core.queue.paged_tail import ChunkSizes
from lmqcluster.node.process.fair_slices import FairSlices
from lmqcluster.node.queues.pulls import body_fetcher as absent_bodies
from lmqcluster.node.queues.views import peek
from lmqcluster.node.queues.views.peek import PeekPage, PeekQuery, Peeks
from lmqcluster.node.queues.views.peek_ranges import RANGES_MAX, PeekRanges, RangeWish
from lmqcluster.wire.attributes import pack_attributes
from lmqcluster.wire.errors import LmqError
from tests.property.driver import Driver, numbers
from tests.unit.core.page_store import MemoryPages

Q = b"q"
SIZES = ChunkSizes(head_messages=4, head_messages_min=4, messages=3, bytes=200)
TAGS = pack_attributes({"kind": "a", "n": 5})
OTHER_TAGS = pack_attributes({"kind": "b", "other kind": "a"})
TAGGED = ("kind", "a")
RICH = [-1, 0, 0, 1, b"", b""]


class History:
    """A queue with short chunks, whose messages are pushed, pulled, settled, returned and paged out at random.

    Attributes:
        pages: the store of paged-out chunks.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.driver = Driver()
        self.pages = MemoryPages()
        pager = self.driver.machine.state.pager
        pager.sizes, pager.store, pager.resident_bytes_max = SIZES, self.pages, 0
        self._leased: list[int] = []
        self.run(40)

    @property
    def queue(self) -> Queue:
        return self.driver.machine.state.queues[Q]

    def run(self, steps: int) -> None:
        """Perform `steps` random actions."""
        for _ in range(steps):
            self._step()

    def _step(self) -> None:
        chance, driver = self.chance, self.driver
        kind = chance.random()
        if kind < 0.5:
            bodies = [chance.randbytes(chance.choice((0, 10, 150, 300))) for _ in range(chance.randrange(1, 5))]
            driver.do(
                Op.PUSH_ROWS, Q, [[body, None, TAGS if body[:1] < b"P" else OTHER_TAGS, None, []] for body in bodies]
            )
        elif kind < 0.55:
            traits = [chance.randrange(3), 0, 0, chance.randrange(-2, 3), b"l" * chance.randrange(2), b""]
            driver.do(Op.PUSH_ROWS, Q, [[b"rich", None, TAGS if traits[3] else b"", None, traits]])
        elif kind < 0.75:
            self._leased += numbers(driver.pull(Q, chance.randrange(1, 6)))
        elif self._leased:
            settle = chance.choice((driver.nack, driver.nack, driver.ack, driver.put_back))
            settle(Q, self._leased.pop(chance.randrange(len(self._leased))))
        driver.wait(chance.random())
        driver.machine.state.pager.page_out(chance.randrange(4))

    def sequences(self) -> set[int]:
        """Return the sequences of all messages in the queue."""
        return {message.sequence for message in self.messages()}

    def messages(self, *, leased: bool = True) -> list[Message]:
        """Return all messages in the queue, or those without a lease."""
        queue = self.queue
        rich = [] if queue.store.rich is None else [one for _, line in queue.store.rich.lines() for one in line]
        backlog = [] if queue.store.backlog is None else queue.store.backlog.messages()
        delayed = (message for _, _, message in queue.store.delayed)
        waiting = [*queue.store.ready, *delayed, *rich, *backlog]
        every = [*waiting, *queue.store.leases.messages.values()]
        assert len(every) == len(queue)
        return every if leased else waiting

    async def page(self, query: PeekQuery) -> PeekPage:
        return await Peeks(lambda: self.driver.machine.state, FairSlices()).page(Q, query, b"c")

    async def bounds(self, wish: RangeWish, turns: FairSlices | None = None) -> list[int]:
        return await PeekRanges(lambda: self.driver.machine.state, turns or FairSlices()).bounds(Q, wish, b"c")

    async def listed(
        self, change: Callable[[], None] = lambda: None, start: int | None = 0, **bounds: Any
    ) -> list[int]:
        """Return the sequences of all pages; `change` is called between them."""
        found: list[int] = []
        while start is not None:
            page = await self.page(PeekQuery(start, **{"count": 3, "bytes_max": 10_000, **bounds}))
            assert page.messages or page.following is None or not {"due_from_us", "attribute"}.isdisjoint(bounds)
            assert page.following is None or page.following > start
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
def test_messages_that_stay_in_a_changing_queue_are_listed_once(seed: int) -> None:
    history = History(seed)
    stayed = history.sequences()

    def change() -> None:
        history.run(2)
        stayed.intersection_update(history.sequences())

    found = asyncio.run(history.listed(change))
    assert found == sorted(set(found))
    assert stayed <= set(found)


@pytest.mark.parametrize("seed", range(12))
def test_a_list_ends_at_the_requested_sequence(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peek, "READ_BYTES_MAX", 0)
    history = History(seed)
    every = sorted(history.sequences())
    for end in (1, every[len(every) // 3], every[-1], every[-1] + 1):
        wanted = [sequence for sequence in every if sequence < end]
        assert asyncio.run(history.listed(count=2, end=end)) == wanted


@pytest.mark.parametrize("seed", range(12))
def test_a_list_can_be_limited_to_a_range_of_due_times(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    history = History(seed)
    times = sorted(message.ready_us for message in history.messages())
    for read in (0, 1 << 20):
        monkeypatch.setattr(peek, "READ_BYTES_MAX", read)
        for since, until in (
            (times[0], times[-1]),
            (times[len(times) // 3], times[len(times) // 2]),
            (times[-1], 1 << 62),
        ):
            wanted = sorted(one.sequence for one in history.messages() if since <= one.ready_us < until)
            assert asyncio.run(history.listed(count=5, due_from_us=since, due_to_us=until)) == wanted


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("wish", [RangeWish(1, 1), RangeWish(2_000, 1), RangeWish(1 << 40, 1), RangeWish(1 << 40, 6)])
def test_ranges_put_together_are_all_messages(seed: int, wish: RangeWish) -> None:
    async def listed() -> list[int]:
        bounds = await history.bounds(wish)
        assert bounds == sorted(set(bounds))
        ranges = pairwise(bounds)
        return [one for start, end in ranges for one in await history.listed(start=start, end=end)]

    history = History(seed)
    assert asyncio.run(listed()) == sorted(history.sequences())


@pytest.mark.parametrize("seed", range(12))
def test_messages_that_stay_in_a_changing_queue_are_in_one_range(seed: int) -> None:
    history = History(seed)
    stayed = history.sequences()

    def change() -> None:
        history.run(2)
        stayed.intersection_update(history.sequences())

    async def listed() -> list[int]:
        bounds = await history.bounds(RangeWish(2_000, 5))
        last = bounds[-1]
        ranges = list(pairwise(bounds))
        history.chance.shuffle(ranges)
        found = [one for start, end in ranges for one in await history.listed(change, start, end=end)]
        assert max(found) < last <= history.driver.machine.state.last_sequence, "later messages are in none"
        return sorted(found)

    found = asyncio.run(listed())
    assert found == sorted(set(found))
    assert stayed <= set(found)


def test_ranges_are_of_nearly_equal_size_and_cost_little() -> None:
    history = History(5)
    history.driver.push(Q, *[b""] * 60_000)
    assert history.queue.store.backlog is not None
    assert len(history.queue.store.backlog.chunks) > 10_000
    turns = FairSlices()
    bounds = asyncio.run(history.bounds(RangeWish(1 << 40, 50), turns))
    sizes = [end - start for start, end in pairwise(bounds)]
    assert len(sizes) == 50
    assert max(sizes) < 1.2 * 60_000 / 50
    assert turns.given_total < 60
    assert len(asyncio.run(history.bounds(RangeWish(1, 1)))) == RANGES_MAX + 1


def test_a_queue_with_one_large_message_among_small_ones_is_divided_by_bytes() -> None:
    history = History(5)
    first = history.driver.machine.state.last_sequence + 1
    history.driver.push(Q, bytes(5_000_000), *[b""] * 1_000)
    bounds = asyncio.run(history.bounds(RangeWish(1_000_000, 1)))
    assert first + 1 in bounds
    assert len(bounds) < 10


def test_bodies_of_pages_are_shortened_and_have_their_size() -> None:
    history = History(7)
    page = asyncio.run(history.page(PeekQuery(0, 1_000, 1 << 20, body_bytes_max=20)))
    whole = asyncio.run(history.page(PeekQuery(0, 1_000, 1 << 20)))
    sizes = [content_bytes(one.message.content) for one in whole.messages]
    assert [one.size for one in page.messages] == sizes
    kept = [content_bytes(one.message.content) for one in page.messages]
    assert any(short == 21 < size for short, size in zip(kept, sizes, strict=True))
    assert sizes == [content_bytes(one.message.content) for one in whole.messages]


@pytest.mark.parametrize("seed", range(12))
def test_a_list_can_be_limited_to_an_attribute(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    history = History(seed)
    wanted = sorted(one.sequence for one in history.messages() if peek.has_attribute(one, TAGGED))
    assert 0 < len(wanted) < len(history.sequences())
    for compared, read, body in ((4, 0, None), (7, 1 << 20, 5), (10_000, 1 << 20, 0)):
        monkeypatch.setattr(peek, "COMPARED_MAX", compared)
        monkeypatch.setattr(peek, "READ_BYTES_MAX", read)
        for count, bytes_max in ((1, 10_000), (5, 300), (1_000, 0)):
            bounds: dict[str, Any] = {
                "count": count,
                "bytes_max": bytes_max,
                "body_bytes_max": body,
                "attribute": TAGGED,
            }
            assert asyncio.run(history.listed(**bounds)) == wanted


def test_a_page_compares_a_bounded_number_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0

    def has_attribute(message: Message, attribute: tuple[str, str]) -> bool:
        nonlocal compared
        compared += 1
        return False

    history = History(5)
    history.driver.do(Op.PUSH_ROWS, Q, [[b"", None, TAGS, None, RICH] for _ in range(5_000)])
    history.driver.do(Op.PUSH_ROWS, Q, [[b"", None, TAGS, None, []] for _ in range(5_000)])
    monkeypatch.setattr(peek, "COMPARED_MAX", 1_000)
    monkeypatch.setattr(peek, "has_attribute", has_attribute)
    page = asyncio.run(history.page(PeekQuery(0, 10, 10_000, attribute=TAGGED)))
    assert not page.messages
    assert page.following is not None
    assert 0 < compared <= 1_000
    assert not asyncio.run(history.listed(attribute=TAGGED))


@pytest.mark.parametrize("seed", range(20))
def test_a_peek_changes_no_message(seed: int) -> None:
    history = History(seed)
    before = {one.sequence: one.content for one in history.messages()}
    for count, bytes_max in ((1, 1 << 20), (50, 7), (50, 12), (3, 300)):
        asyncio.run(history.listed(count=count, bytes_max=bytes_max, body_bytes_max=5))
    assert {one.sequence: one.content for one in history.messages()} == before


def test_a_chunk_that_returns_to_memory_while_its_page_is_read_keeps_its_bodies() -> None:
    history = History(7)
    backlog = history.queue.store.backlog
    assert backlog is not None
    chunks = {chunk.page: chunk for chunk in backlog.chunks}

    def fetch(page: bytes, done: Callable[[bool], None]) -> None:
        chunks[page].messages = history.driver.machine.state.pager.messages_in(chunks[page])
        done(True)

    before = {one.sequence: one.content for one in history.messages()}
    history.pages.fetch = fetch  # type: ignore[method-assign]
    page = asyncio.run(history.page(PeekQuery(0, 1_000, 1 << 20, body_bytes_max=20)))
    assert 21 in {content_bytes(one.message.content) for one in page.messages}
    assert {one.sequence: one.content for one in history.messages()} == before


def test_a_chunk_that_moves_while_its_page_is_read_is_found() -> None:
    history = History(3)
    wanted = history.sequences()
    fetched: list[bytes] = []

    def fetch(page: bytes, done: Callable[[bool], None]) -> None:
        fetched.append(page)
        if len(fetched) == 1:
            # All of it is leased before the page arrives, which is then not needed.
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


def test_a_peek_yields_after_each_chunk_and_each_slice() -> None:
    history = History(5)
    history.driver.push(Q, *[b""] * 30_000)
    assert history.queue.store.backlog is not None
    chunks = len(history.queue.store.backlog.chunks)
    turns = FairSlices()

    async def look() -> PeekPage:
        return await Peeks(lambda: history.driver.machine.state, turns).page(Q, PeekQuery(0, 40_000, 1 << 30), b"c")

    assert {one.sequence for one in asyncio.run(look()).messages} == history.sequences()
    assert turns.given_total > chunks > 5_000
