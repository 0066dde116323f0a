"""Pushes with options under producer numbers: each is stored once, entirely or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from lmqcluster.core import Fault, Op, PushFlag
from lmqcluster.core.owners.quotas import Kind
from tests.property.driver import Driver, copied, records

Q = b"q"
ME = b"producer"
KNOWN = PushFlag.REPLAYED
URGENT = [-1, 0, 0, -1, b"", b""]


@pytest.fixture
def driver() -> Driver:
    return Driver()


def push(driver: Driver, first: int, *contents: bytes, owner: bytes = b"", producer: bytes = ME) -> Any:
    rows = [[content, None, b"", None, URGENT] for content in contents]
    return driver.do(Op.PUSH_ROWS, Q, rows, owner, producer, first)


def plain(driver: Driver, first: int, *contents: bytes) -> Any:
    return driver.do(Op.PUSH, Q, None, list(contents), ME, first)


def flags(stored: list[tuple[int, int]]) -> list[int]:
    return [flag for flag, _sequence in stored]


def test_a_resent_push_is_stored_once_and_uses_no_key(driver: Driver) -> None:
    assert flags(push(driver, 1, b"a", b"b")) == [0, 0]
    assert push(driver, 1, b"a", b"b") == [(KNOWN, 0), (KNOWN, 0)]
    assert flags(push(driver, 3, b"c")) == [0]
    assert driver.drain(Q) == [b"a", b"b", b"c"]
    assert driver.machine.state.quotas.used(Kind.KEYS, b"") == 0


def test_numbers_are_those_of_plain_pushes_too(driver: Driver) -> None:
    assert plain(driver, 1, b"1") == [0]
    assert flags(push(driver, 2, b"2")) == [0]
    assert plain(driver, 3, b"3") == [0]
    assert plain(driver, 1, b"1") == [0]
    assert flags(push(driver, 2, b"2")) == [KNOWN]
    assert plain(driver, 3, b"3") == [0]
    assert driver.drain(Q) == [b"2", b"1", b"3"]


def test_a_push_refused_by_a_full_queue_is_tried_again_although_later_numbers_are_stored(driver: Driver) -> None:
    driver.do(Op.SET_PROPERTIES, Q, [[b"max_items", 2]])
    assert flags(push(driver, 1, b"a")) == [0]
    assert flags(push(driver, 2, b"b", b"c")) == [PushFlag.FULL, PushFlag.FULL]
    assert flags(push(driver, 4, b"d")) == [0]
    assert driver.drain(Q) == [b"a", b"d"]
    assert records(copied(driver.machine)) == records(driver.machine)
    assert flags(push(driver, 2, b"b", b"c")) == [0, 0]
    assert flags(push(driver, 2, b"b", b"c")) == [KNOWN, KNOWN]
    assert flags(push(driver, 4, b"d")) == [KNOWN]
    assert driver.drain(Q) == [b"b", b"c"]


def test_a_refusal_is_remembered_until_it_is_stored(driver: Driver) -> None:
    driver.do(Op.SET_PROPERTIES, Q, [[b"max_items", 1], [b"max_item_size", 5]])
    assert flags(push(driver, 1, b"too large")) == [PushFlag.OVERSIZED]
    assert flags(push(driver, 2, b"a")) == [0]
    assert flags(push(driver, 1, b"too large")) == [PushFlag.OVERSIZED]
    driver.do(Op.SET_PROPERTIES, Q, [[b"max_items", 5], [b"max_item_size", 50]])
    assert flags(push(driver, 1, b"too large")) == [0]
    assert driver.drain(Q) == [b"a", b"too large"]


def test_a_batch_of_which_a_part_is_known_stores_the_rest(driver: Driver) -> None:
    """Our client does not send such batches, but nothing is lost or duplicated if a client does."""
    assert flags(push(driver, 1, b"a", b"b")) == [0, 0]
    assert flags(push(driver, 2, b"b", b"c")) == [KNOWN, 0]
    assert driver.drain(Q) == [b"a", b"b", b"c"]


def test_producers_of_owners_are_apart(driver: Driver) -> None:
    assert flags(push(driver, 1, b"a", owner=b"one")) == [0]
    assert flags(push(driver, 1, b"b", owner=b"two")) == [0]
    assert flags(push(driver, 1, b"b", owner=b"two")) == [KNOWN]
    assert driver.drain(Q) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("key", "producer", "first"), [(b"k", ME, 1), (None, "text", 1), (None, ME, "1"), (None, ME, 1 << 63)]
)
def test_malformed_commands_store_nothing(driver: Driver, key: Any, producer: Any, first: Any) -> None:
    (result,) = driver.batch([Op.PUSH_ROWS, Q, [[b"a", None, b"", key, URGENT]], b"", producer, first])
    assert isinstance(result, Fault)
    assert result.reason.startswith("ValueError")
    assert Q not in driver.machine.state.queues
    assert len(driver.machine.state.producers) == 0


def test_a_refused_push_of_a_producer_that_gets_an_owner_is_stored_once(driver: Driver) -> None:
    """A client that sends its first token repeats pushes that a full queue refused, and pushes that are stored."""
    driver.do(Op.SET_PROPERTIES, Q, [[b"max_items", 1]])
    assert [flags(push(driver, first, body)) for first, body in ((1, b"a"), (2, b"b"))] == [[0], [PushFlag.FULL]]
    assert driver.drain(Q) == [b"a"]
    driver.do(Op.SET_PROPERTIES, Q, [[b"max_items", 5]])
    assert flags(push(driver, 3, b"c")) == [0]
    assert flags(push(driver, 3, b"c", owner=b"token")) == [KNOWN]
    assert records(copied(driver.machine)) == records(driver.machine)
    assert flags(push(driver, 2, b"b", owner=b"token")) == [0]
    assert flags(push(driver, 2, b"b", owner=b"token")) == [KNOWN]
    assert driver.drain(Q) == [b"c", b"b"]
