"""Failures that random testing found, each kept as a regression test."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from lmqcluster.core import Fault, Machine, Op
from lmqcluster.core.state.state import REMEMBER_US
from tests.property.driver import UNDO

from .driver import SECOND, Driver, bodies, compile_pattern, copied, numbers, records


def test_properties_of_an_empty_queue_show_its_own_values() -> None:
    """Spec 3.1: the queue's own value wins, whether or not the queue holds a message."""
    driver = Driver()
    driver.set(b"q", retry=7)
    assert driver.machine.state.properties(b"q")["retry"] == 7


def test_a_producer_is_forgotten_at_the_end_of_the_window_without_other_producers() -> None:
    """A producer idle for the whole window is forgotten, also if no other producer pushed in that time."""
    driver = Driver()
    driver.produce(b"q", b"p", 5, b"first")
    driver.wait(REMEMBER_US / SECOND)
    assert driver.produce(b"q", b"p", 1, b"second") == [0]
    assert driver.drain(b"q") == [b"first", b"second"]


def test_a_producer_is_remembered_until_just_before_the_end_of_the_window() -> None:
    driver = Driver()
    driver.produce(b"q", b"p", 5, b"first")
    driver.wait(REMEMBER_US / SECOND - 0.000001)
    driver.produce(b"q", b"p", 5, b"first")
    assert driver.drain(b"q") == [b"first"]


def test_snapshot_keeps_the_sessions_of_very_many_nodes() -> None:
    """Sessions fill more than one record of a snapshot; each of them must be restored."""
    machine = Machine(compile_pattern)
    for node in range(1200):
        machine.apply(0, b"node-%d" % node, 1, 1, [])
    restored = copied(machine)
    assert records(restored) == records(machine)
    assert restored.apply(0, b"node-3", 1, 1, [[Op.PUSH, b"q", None, [b"again"], None, 0]]).status == "duplicate"


@pytest.mark.parametrize("name", [10**10, 3, None, [b"x"]])
def test_header_names_other_than_strings_are_refused(name: Any) -> None:
    """`bytes(10**10)` is ten gigabytes of zeros: on some replicas a MemoryError, on others not."""
    driver = Driver()
    assert isinstance(driver.batch([Op.PUSH_ROWS, b"q", [[b"x", None, b"", None, [], [[name, b"v"]]]]])[0], Fault)
    assert driver.batch([Op.PULL, b"q", 1]) == [[]]


@pytest.mark.parametrize("op", [Op.ACK, Op.NACK, Op.EXTEND])
@pytest.mark.parametrize("more", [(), UNDO])
def test_a_list_of_receipts_with_garbage_in_it_settles_nothing(op: Op, more: Any) -> None:
    """A command fails as a whole: a half-applied one would leave counters, sizes and wake-ups wrong."""
    driver = Driver()
    driver.push(b"q", b"one", b"two")
    first, second = numbers(driver.pull(b"q", 2))
    before = records(driver.machine)
    (fault,) = driver.batch([op, b"q", [first, [], second], *(more if op == Op.NACK else ())])
    assert isinstance(fault, Fault)
    assert records(driver.machine)[2:] == before[2:], "all but the header and the sessions"
    assert driver.machine.state.queues[b"q"].store.body_bytes == 6
    assert driver.ack(b"q", first, second) == [True, True]


def test_a_pull_of_a_huge_count_from_a_queue_without_timeout_ends() -> None:
    """Spec 2.5 lets one message be pulled `retry` + 1 times in a row; one command must not do so forever."""
    driver = Driver()
    driver.set(b"q", timeout=0, retry=1 << 61)
    driver.push(b"q", b"x")
    assert len(driver.pull(b"q", 1 << 62)) <= 10_000
    assert len(driver.pull_first(b"q", 1 << 62)) <= 10_000


@pytest.mark.parametrize("count", [b"many", None, [], 1.5, -1])
def test_a_pull_with_an_invalid_count_takes_nothing(count: Any) -> None:
    driver = Driver()
    driver.push(b"q", b"x")
    for op, source in ((Op.PULL, b"q"), (Op.PULL_FIRST, [b"q"])):
        (result,) = driver.batch([op, source, count])
        assert isinstance(result, Fault) or result == []
    assert driver.drain(b"q") == [b"x"]


@pytest.mark.parametrize(
    "command",
    [
        [Op.PUSH, b"q", 5, [b"x"], None, 0],
        [Op.PUSH, b"q", [[[]]], [b"x"], None, 0],
        [Op.PUSH, b"q", None, {b"x": 1}, None, 0],
        [Op.PUSH, b"q", None, [b"x"], 5, 1],
        [Op.PUSH, b"q", None, [b"x"], b"p", b"1"],
        [Op.PUSH, b"q", None, [b"x"], b"p", 1.5],
        [Op.PUSH, b"q", None, [b"x", b"y"], b"p", (1 << 64) - 1],
        [Op.SET_PROPERTIES, b"q", [[b"retry", (1 << 64) - 1]]],
        [Op.SET_PROPERTIES, b"q", [[b"hooks", [[[[[]]], []]]]]],
        [Op.SET_PROPERTIES, b"q", [[b"hooks", [[b"pre_http_push", [[b"m", [None]]]]]]]],
    ],
    ids=repr,
)
def test_values_of_the_wrong_kind_are_refused(command: list[Any]) -> None:
    """None of these may be stored: a protocol could not show it, or a snapshot could not hold it."""
    driver = Driver()
    assert isinstance(driver.batch(command)[0], Fault)
    assert driver.batch([Op.PULL, b"q", 1]) == [[]]
    assert not list(driver.machine.state.producers.rows())
    assert msgpack.packb(list(driver.machine.snapshot()))


def test_pull_first_finds_messages_that_a_damaged_nack_gave_back() -> None:
    """A nack that fails half-way must not hide messages from it on one replica and show them on a restored one."""
    driver = Driver()
    driver.push(b"q", b"x")
    assert driver.pull_first(b"none") == []
    (taken,) = numbers(driver.pull_first(b"q"))
    driver.batch([Op.NACK, b"q", [taken, {}]])
    restored = Driver(copied(driver.machine))
    restored.now_us = driver.now_us
    assert bodies(restored.pull_first(b"q")) == bodies(driver.pull_first(b"q"))
