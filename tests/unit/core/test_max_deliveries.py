"""Property `max_deliveries`: a message that was delivered that often goes to the dead letters when it would be again."""

from __future__ import annotations

from typing import Any

import pytest

from lmqcluster.core import Fault, Op
from lmqcluster.core.log.results import TagState
from lmqcluster.core.queue.message_index import tag_of
from lmqcluster.core.queue.queue import PASSES_MAX
from tests.property.driver import SECOND, UNDO, Driver, bodies, copied, numbers

Q, DEAD = b"q", b"dead"


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.set(Q, retry=1000, max_deliveries=2, dead_letter_queue="dead")
    driver.set(DEAD, timeout=30)
    return driver


def deliver(driver: Driver, times: int, *more: Any) -> None:
    """Pull one message and give it back, several times."""
    for _ in range(times):
        driver.do(Op.NACK, Q, numbers(driver.pull(Q, 1)), *more)


def test_the_message_moves_when_it_would_be_delivered_again_and_the_pull_goes_on(driver: Driver) -> None:
    driver.push(Q, b"x")
    deliver(driver, 2)
    assert (driver.size(Q), driver.size(DEAD)) == (1, 0)
    driver.push(Q, b"y")
    driver.machine = copied(driver.machine)
    assert bodies(driver.pull(Q, 1)) == [b"y"]
    assert DEAD in driver.ready
    (delivery,) = driver.pull(DEAD)
    assert bodies([delivery]) == [b"x"]
    assert (delivery[3].traits.origin.reason, delivery[3].traits.origin.deliveries) == (b"exhausted", 2)
    assert driver.machine.state.queues[Q].counters.dead_lettered_total == 1


def test_without_a_target_the_message_is_dropped_and_counted(driver: Driver) -> None:
    driver.set(Q, dead_letter_queue=None)
    driver.push(Q, b"x")
    deliver(driver, 2)
    assert driver.pull(Q) == []
    assert (driver.size(Q), driver.machine.state.queues[Q].counters.dropped_total) == (0, 1)


def test_without_the_target_queue_the_message_is_delivered_on(driver: Driver) -> None:
    driver.push(Q, b"x")
    driver.delete(DEAD)
    deliver(driver, 5)
    driver.set(DEAD, timeout=30)
    assert driver.pull(Q) == []
    assert driver.size(DEAD) == 1


def test_a_change_holds_for_messages_that_wait(driver: Driver) -> None:
    driver.push(Q, b"x")
    driver.set(Q, max_deliveries=10)
    deliver(driver, 4)
    driver.set(Q, max_deliveries=4)
    assert driver.pull(Q) == []
    assert driver.size(DEAD) == 1


def test_deliveries_that_are_undone_do_not_count(driver: Driver) -> None:
    driver.push(Q, b"x")
    deliver(driver, 5, *UNDO)
    deliver(driver, 2)
    assert driver.pull(Q) == []


def test_only_deliveries_in_this_queue_count(driver: Driver) -> None:
    driver.set(DEAD, retry=1000, max_deliveries=1)
    driver.push(Q, b"x")
    deliver(driver, 2)
    assert driver.pull(Q) == []
    assert bodies(driver.pull(DEAD)) == [b"x"]


def test_a_queue_can_be_its_own_target(driver: Driver) -> None:
    driver.set(Q, dead_letter_queue="q")
    driver.push(Q, b"x")
    deliver(driver, 7)
    assert driver.size(Q) == 1


@pytest.mark.parametrize("group", [b"", b"g"])
def test_a_poll_moves_the_message_too(driver: Driver, group: bytes) -> None:
    rows = [[body, None, b"", None, [-1, 0, 0, 0, b"", group]] for body in (b"x", b"y")]
    driver.set(Q, group_max_in_flight=10)
    driver.do(Op.PUSH_ROWS, Q, rows)
    for _ in range(2):
        assert len(driver.do(Op.POLL, Q, 10, 0, False, True)) == 2
    assert driver.do(Op.POLL, Q, 10, 0, False, True) == []
    assert bodies(driver.pull(DEAD)) == [b"x"]


def test_a_late_consumer_can_delete_after_the_last_delivery(driver: Driver) -> None:
    driver.push(Q, b"x")
    for _ in range(2):
        ((_, number, _, message),) = driver.do(Op.POLL, Q, 1, SECOND, False, True)
        driver.wait(5)
    assert driver.do(Op.DELETE_POLLED, Q, [(message.sequence, tag_of(number))]) == [TagState.VALID]
    assert (driver.size(Q), driver.size(DEAD)) == (0, 0)


def test_messages_behind_one_that_moves_follow_in_their_group(driver: Driver) -> None:
    rows = [[body, None, b"", None, [-1, 0, 0, 0, b"", b"g"]] for body in (b"0", b"1")]
    driver.do(Op.PUSH_ROWS, Q, rows)
    deliver(driver, 2)
    assert bodies(driver.pull(Q)) == [b"1"]


def test_one_pull_moves_a_bounded_number(driver: Driver) -> None:
    count = 2 * PASSES_MAX + 5_000
    driver.set(Q, max_deliveries=1)
    for _ in range(0, count, 1_000):
        driver.push(Q, *[b""] * 1_000)
    driver.nack(Q, *numbers(driver.pull(Q, count)))
    sizes = []
    while (delivered := driver.pull(Q)) is None:
        sizes.append(driver.size(DEAD))
    assert delivered == []
    assert sizes == [PASSES_MAX, 2 * PASSES_MAX]
    assert driver.size(DEAD) == count


@pytest.mark.parametrize("value", [0, -1, 1_000_001, 1.5, True, b"1"])
def test_other_values_are_refused(driver: Driver, value: Any) -> None:
    (result,) = driver.batch([Op.SET_PROPERTIES, Q, [[b"max_deliveries", value]]])
    assert isinstance(result, Fault)
