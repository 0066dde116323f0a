"""The identity of a message stays when the cluster moves it from queue to queue."""

from __future__ import annotations

from typing import Any

import pytest

from lmqcluster.core import Op
from lmqcluster.core.messages.message import Identity, identity_of
from tests.property.driver import SECOND, UNDO, Driver, copied, over_the_wire, records

A, B, C = b"a", b"b", b"c"


@pytest.fixture
def driver() -> Driver:
    """Return polled queues, each of which is the dead-letter queue of the one before."""
    driver = Driver()
    for name, target in ((C, None), (B, "c"), (A, "b")):
        own = [[b"retry", 1000], [b"max_deliveries", 2], [b"dead_letter_queue", target]]
        driver.do(Op.CREATE, name, b"", own, True)
    return driver


def poll(driver: Driver, queue: bytes, hide_us: int = 0) -> Any:
    """Return the message that a poll delivers, None if there is none."""
    found = driver.do(Op.POLL, queue, 1, hide_us, False, True)
    return found[0][3] if found else None


def die(driver: Driver, queue: bytes) -> None:
    """Poll the message of a queue until it moves, one second after the other."""
    while poll(driver, queue) is not None:
        driver.wait(1)


def test_it_stays_over_a_chain_of_dead_letter_queues(driver: Driver) -> None:
    driver.push(A, b"x")
    pushed_us = driver.now_us
    driver.wait(5)
    first_us = driver.now_us
    sequence = poll(driver, A).sequence
    die(driver, A)
    driver.machine = copied(driver.machine)
    message = poll(driver, B)
    assert identity_of(message) == Identity(sequence, pushed_us, 3, first_us)
    assert (message.sequence, message.traits.origin.queue) == (sequence + 1, A)
    driver.wait(1)
    die(driver, B)
    message = poll(driver, C)
    assert identity_of(message) == Identity(sequence, pushed_us, 5, first_us)
    assert (message.sequence, message.traits.origin.queue, message.traits.origin.deliveries) == (sequence + 2, B, 2)


def test_a_queue_without_an_index_records_no_first_delivery(driver: Driver) -> None:
    driver.set(b"plain", retry=0, dead_letter_queue="a")
    driver.push(b"plain", b"x")
    ((_, number, _, plain),) = driver.pull(b"plain")
    assert identity_of(plain).first_us == 0
    driver.wait(5)
    driver.nack(b"plain", number)
    driver.wait(5)
    message = poll(driver, A)
    assert identity_of(message) == Identity(plain.sequence, plain.pushed_us, 2, driver.now_us)


def test_a_delivery_that_is_undone_was_not_the_first(driver: Driver) -> None:
    driver.push(A, b"x")
    ((_, number, _, _),) = driver.do(Op.POLL, A, 1, 30 * SECOND, False, True)
    driver.do(Op.NACK, A, [number], *UNDO)
    driver.wait(5)
    assert identity_of(poll(driver, A))[2:] == (1, driver.now_us)


def test_a_message_that_is_sent_back_is_a_new_one(driver: Driver) -> None:
    driver.push(A, b"x")
    die(driver, A)
    driver.wait(5)
    assert driver.do(Op.REDRIVE, B, b"", b"", 10) == 1
    message = poll(driver, A)
    assert identity_of(message) == Identity(message.sequence, driver.now_us, 1, driver.now_us)
    assert message.traits.origin is None


def test_a_view_does_not_see_a_later_first_delivery(driver: Driver) -> None:
    driver.do(Op.PUSH_ROWS, A, [[b"x", None, b"", None, [-1, 0, 0, 0, b"label", b""]]])
    expected = records(driver.machine)
    view = driver.machine.freeze_view()
    poll(driver, A, 30 * SECOND)
    assert [over_the_wire(record) for record in view.records()] == expected
    view.close()
