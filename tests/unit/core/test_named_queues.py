"""Commands that name several queues; a node finds those for a pattern."""

from __future__ import annotations

import pytest

from lmqcluster.core import Fault, Op
from lmqcluster.core.state.batch_lease import BatchState
from lmqcluster.core.state.named_queues import NAMES_MAX
from tests.property.driver import Driver, bodies

A, B, C, NONE = b"a", b"b", b"c", b"none"
LEASE_US = 60_000_000


def _filled() -> Driver:
    """Return b, a, b, c in the order in which their messages are due."""
    driver = Driver()
    for queue, body in ((B, b"1"), (A, b"2"), (B, b"3"), (C, b"4")):
        driver.push(queue, body)
        driver.wait(1)
    return driver


def test_pull_first_takes_the_message_due_longest_from_the_named_queues() -> None:
    driver = _filled()
    assert bodies(driver.do(Op.PULL_FIRST, [A, NONE, B], 3)) == [b"1", b"2", b"3"]
    assert NONE not in driver.machine.state.queues
    assert driver.do(Op.PULL_FIRST, [A, B], 1) == []
    assert bodies(driver.do(Op.PULL_FIRST, [C, A], 5)) == [b"4"]


def test_pull_first_skips_suspended_queues_and_messages_that_are_not_due() -> None:
    driver = _filled()
    driver.do(Op.SUSPEND, B, True)
    driver.set(C, accum=5_000)
    driver.push(C, b"later")
    assert bodies(driver.do(Op.PULL_FIRST, [A, B, C], 9)) == [b"2", b"4"]
    assert driver.do(Op.PULL_FIRST, [], 1) == []


def test_push_each_reaches_those_of_the_named_queues_that_exist_once() -> None:
    driver = _filled()
    driver.set(A, accum=1_000)
    assert driver.do(Op.PUSH_EACH, [C, A, NONE, C], [b"x", None, b"", None]) == [(C, 0), (A, 1)]
    assert NONE not in driver.machine.state.queues
    assert driver.drain(C) == [b"4", b"x"]


def test_reserve_from_several_queues_fills_a_batch_by_several_commands() -> None:
    driver = _filled()
    part = driver.do(Op.RESERVE, b"s", 1, [A], False, 10, LEASE_US)
    assert (part.state, part.size, part.sealed) == (BatchState.LIVE, 1, False)
    whole = driver.do(Op.RESERVE, b"s", 1, [B, C], True, 10, LEASE_US)
    assert (whole.state, whole.size, whole.sealed) == (BatchState.LIVE, 4, True)
    found = driver.machine.state.batches.read(b"s", 1, 0, 10)
    assert found is not None
    assert bodies(found) == [b"2", b"1", b"3", b"4"]
    assert driver.do(Op.RESERVE, b"s", 1, [A], True, 10, LEASE_US) == whole


def test_reserve_from_nothing_is_empty() -> None:
    driver = _filled()
    empty = driver.do(Op.RESERVE, b"s", 1, [NONE], True, 10, LEASE_US)
    assert (empty.state, empty.sealed) == (BatchState.EMPTY, True)
    more = driver.do(Op.RESERVE, b"s", 1, [NONE], False, 10, LEASE_US)
    assert (more.state, more.sealed) == (BatchState.EMPTY, False)


@pytest.mark.parametrize("op", [Op.PULL_FIRST, Op.PUSH_EACH, Op.RESERVE])
@pytest.mark.parametrize("names", [b"q", [1], [b"q"] * (NAMES_MAX + 1), None])
def test_an_invalid_list_of_names_is_a_fault(op: Op, names: object) -> None:
    driver = _filled()
    rest = {
        Op.PULL_FIRST: [names, 1],
        Op.PUSH_EACH: [names, [b"x", None, b"", None]],
        Op.RESERVE: [b"s", 1, names, True, 1, LEASE_US],
    }[op]
    if op == Op.RESERVE and isinstance(names, bytes):
        assert driver.do(op, *rest).state == BatchState.EMPTY, "it names one queue"
        return
    assert isinstance(driver.batch([op, *rest])[0], Fault)
    assert not driver.machine.state.batches.subscriptions
