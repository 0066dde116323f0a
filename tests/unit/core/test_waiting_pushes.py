"""Pushes that wait for room, over snapshots."""

from __future__ import annotations

from typing import Any

import pytest

from lmqcluster.core import Op, PushFlag
from lmqcluster.core.handlers.waiting_pushes import SERVED_MAX, Waits
from lmqcluster.core.owners.quotas import Kind, Quotas
from tests.property.driver import SECOND, Driver, copied, records
from tests.property.work import counted

Q = b"q"


def _row(body: bytes, key: bytes | None = None) -> list[Any]:
    return [body, None, b"", key, []]


def _full_queue() -> Driver:
    driver = Driver()
    driver.set(Q, max_items=1)
    driver.push(Q, b"first")
    return driver


@pytest.fixture
def few_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Quotas, "LIMITS", {**Quotas.LIMITS, Kind.KEYS: 5})


@pytest.mark.usefixtures("few_keys")
def test_a_push_waits_over_a_restore_though_its_owner_has_used_up_the_keys() -> None:
    driver = _full_queue()
    assert driver.do(Op.PUSH_ROWS, Q, [_row(b"waits", b"k")], b"", None, 0, False, 60 * SECOND) == Waits(1)
    for number in range(5):
        driver.push_item(b"other", b"x", key=b"%d" % number)
    restored = Driver(copied(driver.machine))
    for one in (driver, restored):
        one.tick()
    assert len(restored.machine.state.waiting_pushes) == len(driver.machine.state.waiting_pushes) == 1
    assert records(restored.machine) == records(driver.machine)


def _load_work(messages: int) -> int:
    driver = _full_queue()
    rows = [_row(b"x") for _ in range(messages)]
    driver.do(Op.PUSH_ROWS, Q, rows, b"", None, 0, False, 60 * SECOND)
    with counted() as work:
        restored = copied(driver.machine)
    assert records(restored) == records(driver.machine)
    return work.lines


def test_loading_a_large_push_that_waits_costs_in_proportion_to_it() -> None:
    assert _load_work(4_000) < 9 * _load_work(500)


def test_a_batch_stores_a_bounded_number_of_copies_of_waiting_pushes() -> None:
    driver = _full_queue()
    for number in range(50):
        driver.do(Op.BIND, Q, b"copy-%d" % number)
    for _ in range(60):
        driver.do(Op.PUSH_ROWS, Q, [_row(b"x")], b"", None, 0, False, 60 * SECOND)
    before = driver.machine.state.last_sequence
    driver.set(Q, max_items=1_000)
    assert 0 < driver.machine.state.last_sequence - before <= SERVED_MAX + 51
    driver.tick(4)
    assert len(driver.machine.state.waiting_pushes) == 0


def _queue_with_room_for_one_more() -> Driver:
    """Return a queue with room for one message, but not for the two of the push that waits for it."""
    driver = Driver()
    driver.set(Q, max_items=2)
    driver.push(Q, b"first")
    assert driver.do(Op.PUSH_ROWS, Q, [_row(b"a"), _row(b"b")], b"", None, 0, False, SECOND) == Waits(1)
    return driver


def test_a_push_does_not_overtake_waiting_ones() -> None:
    driver = _queue_with_room_for_one_more()
    assert driver.push(Q, b"late") == [PushFlag.FULL]
    assert driver.do(Op.PUSH_ROWS, Q, [_row(b"late")], b"", None, 0, False, 60 * SECOND) == Waits(2)
    assert driver.drain(Q) == [b"first"]
    driver.tick(2)
    assert driver.drain(Q) == [b"a", b"b"]


def test_the_next_push_is_tried_when_the_first_expires() -> None:
    driver = _queue_with_room_for_one_more()
    assert driver.do(Op.PUSH_ROWS, Q, [_row(b"fits")], b"", None, 0, False, 60 * SECOND) == Waits(2)
    driver.wait(1)
    driver.tick(2)
    assert len(driver.machine.state.waiting_pushes) == 0
    assert driver.drain(Q) == [b"first", b"fits"]
