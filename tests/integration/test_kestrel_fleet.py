"""The judges of the fleet and of the fanout find planted faults; with LMQ_CAMPAIGN=1 short runs of both."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from .kestrel_book import OVERLAP_S, Book
from .kestrel_fanout import Fanout, fanout
from .kestrel_fleet import fleet

is_campaign = pytest.mark.skipif(not os.environ.get("LMQ_CAMPAIGN"), reason="long; set LMQ_CAMPAIGN=1")


class Clock:
    """A clock that the test advances."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        monkeypatch.setattr("tests.integration.kestrel_book.time.monotonic", self.tick)

    def tick(self) -> float:
        self.now_s += 0.001
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def book_of(*items: bytes) -> Book:
    return Book(put=set(items), stored=set(items))


def test_items_that_are_closed_once_are_accepted(clock: Clock) -> None:
    book = book_of(b"1", b"2")
    first = book.opened(b"1", clock.tick())
    book.aborted(first)
    book.ended(book.opened(b"1", clock.tick()))
    book.ended(book.opened(b"2", clock.tick()))
    book.judge_aborts()
    assert (book.violations, book.missing(), book.compared) == ([], set(), 1)


def test_an_item_that_is_closed_twice_is_found(clock: Clock) -> None:
    book = book_of(b"1")
    first, second = book.opened(b"1", clock.tick()), book.opened(b"1", clock.tick())
    book.ended(second)
    assert not book.violations
    book.ended(first)
    assert len(book.violations) == 2


def test_a_consumer_that_keeps_a_lost_item_is_found(clock: Clock) -> None:
    book = book_of(b"1")
    first = book.opened(b"1", clock.tick())
    book.ended(book.opened(b"1", clock.tick()))
    clock.now_s += OVERLAP_S + 1
    book.broke(first, closing=True)
    assert len(book.violations) == 1


def test_an_item_after_its_close_or_without_a_put_is_found(clock: Clock) -> None:
    book = book_of(b"1")
    book.ended(book.opened(b"1", clock.tick()))
    book.opened(b"1", clock.tick())
    book.opened(b"9", clock.tick())
    assert len(book.violations) == 2


def test_a_delivery_before_an_aborted_item_is_found(clock: Clock) -> None:
    book = book_of(b"1", b"2", b"3")
    book.aborted(book.opened(b"1", clock.tick()))
    book.ended(book.opened(b"2", clock.tick()))
    book.ended(book.opened(b"1", clock.tick()))
    book.aborted(book.opened(b"3", clock.tick()))
    book.judge_aborts()
    assert len(book.violations) == 2


def test_only_items_being_closed_when_a_connection_broke_are_unsure(clock: Clock) -> None:
    book = book_of(b"1", b"2", b"3")
    book.broke(book.opened(b"1", clock.tick()), closing=True)
    book.broke(book.opened(b"2", clock.tick()), closing=False)
    book.broke(None, closing=True)
    assert (book.unknown(), book.missing()) == ([b"1"], {b"2", b"3"})


@pytest.mark.parametrize(("stored", "closed"), [(2, 1), (1, 1), (4, 4)])
def test_items_that_left_in_another_way_are_found(stored: int, closed: int) -> None:
    book = book_of(b"1", b"2")
    book.put.add(b"3")
    book.judge_counters({"pushed_total": 3, "acked_total": 3})
    assert not book.violations
    book.judge_counters({"pushed_total": stored, "acked_total": closed})
    assert len(book.violations) == 1


@pytest.mark.parametrize(
    ("parent", "child"),
    [
        ([b"1", b"2"], [b"2", b"1"]),
        ([b"1", b"2"], [b"1"]),
        ([b"1", b"2"], [b"1", b"2", b"2"]),
        ([b"1"], [b"1"]),
        ([b"1", b"2", b"2"], [b"1", b"2", b"2"]),
    ],
)
def test_a_child_that_differs_and_a_parent_that_lacks_something_are_found(
    parent: list[bytes], child: list[bytes]
) -> None:
    record = Fanout(stored={b"1", b"2"}, queues={b"parent": [b"1", b"2"], b"parent+child": [b"1", b"2"]})
    assert record.violations() == []
    record.queues = {b"parent": parent, b"parent+child": child}
    assert len(record.violations()) == 1


@is_campaign
def test_a_short_fleet(tmp_path: Path) -> None:
    book = asyncio.run(fleet(tmp_path, seconds=30, consumers=30, seed=1))
    assert not book.violations
    assert len(book.stored) > 500
    assert book.compared > 10


@is_campaign
def test_a_small_fanout(tmp_path: Path) -> None:
    record = asyncio.run(fanout(tmp_path, puts=5_000, children=4, seed=1))
    assert not record.violations()
    assert len(record.stored) > 1_000
    assert record.kills
