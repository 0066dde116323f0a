"""Deliveries in the form for protocols: the identity of polled messages."""

from __future__ import annotations

from lmqcluster.core import Op
from lmqcluster.core.messages.message import Identity
from lmqcluster.node.queues.pulls.deliveries import Delivery, rendered
from lmqcluster.wire.ids import ReceiptFormat
from tests.property.driver import Driver

Q, DEAD = b"q", b"dead"


def shown(driver: Driver, op: Op, queue: bytes, *arguments: object) -> Delivery:
    """Return the one delivery of a pull or a poll."""
    found = driver.do(op, queue, 1, *arguments)
    (delivery,) = rendered(ReceiptFormat(b"0123456789"), found, lambda log_us: log_us)
    return delivery


def test_a_polled_message_shows_its_first_push_and_delivery() -> None:
    driver = Driver()
    for name, target in ((DEAD, None), (Q, "dead")):
        own = [[b"retry", 1000], [b"max_deliveries", 1], [b"dead_letter_queue", target]]
        driver.do(Op.CREATE, name, b"", own, True)
    driver.push(Q, b"x")
    pushed_us = driver.now_us
    driver.wait(5)
    first = shown(driver, Op.POLL, Q, 0, False, True)
    first_us = driver.now_us
    assert first.identity == Identity(first.sequence, pushed_us, 1, first_us)
    driver.wait(5)
    assert driver.do(Op.POLL, Q, 1, 0, False, True) == []
    again = shown(driver, Op.POLL, DEAD, 0, False, True)
    assert again.identity == Identity(first.sequence, pushed_us, 2, first_us)
    assert (again.delivery, again.sequence != first.sequence) == (1, True)
    assert again.traits.origin is not None
    assert again.traits.origin.queue == Q


def test_a_message_of_another_queue_has_no_identity() -> None:
    driver = Driver()
    driver.push(Q, b"x")
    assert shown(driver, Op.PULL, Q).identity is None
