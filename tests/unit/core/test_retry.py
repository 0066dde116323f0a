"""LMQ specification 2.3 and 2.5: how often a message is delivered."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.property.driver import Driver, bodies, numbers

Q = b"q"


def _nack(driver: Driver, number: int) -> None:
    driver.nack(Q, number)


def _let_time_out(driver: Driver, number: int) -> None:
    driver.wait(30)


@pytest.mark.parametrize("fail", [_nack, _let_time_out])
def test_with_retry_2_the_count_shows_2_1_0_and_then_the_message_is_gone(fail: Callable[[Driver, int], None]) -> None:
    """Spec 2.3: a timeout and a nack each cost one delivery."""
    driver = Driver()
    driver.push(Q, b"x")
    shown = []
    while delivered := driver.pull(Q):
        shown.append(delivered[0][2])
        fail(driver, delivered[0][1])
    assert shown == [2, 1, 0]


def test_with_retry_0_there_is_one_delivery() -> None:
    """Spec 2.3 and 14: never redelivered, and still it expires."""
    driver = Driver()
    driver.set(Q, retry=0)
    driver.push(Q, b"x")
    _, number, retry, _ = driver.pull_one(Q)
    assert retry == 0
    driver.wait(30)
    assert driver.ack(Q, number) == [False]
    assert driver.pull(Q) == []


def test_the_nack_of_the_last_delivery_is_accepted_and_the_message_vanishes() -> None:
    """Spec 2.3."""
    driver = Driver()
    driver.set(Q, retry=0)
    driver.push(Q, b"x")
    assert driver.nack(Q, driver.pull_one(Q)[1]) == [True]
    assert driver.pull(Q) == []


def test_the_last_delivery_can_be_acked_and_extended() -> None:
    """Spec 2.3: an extension costs nothing, not even on the last delivery."""
    driver = Driver()
    driver.set(Q, retry=0)
    driver.push(Q, b"x")
    number = driver.pull_one(Q)[1]
    for _ in range(5):
        driver.wait(29)
        assert driver.extend(Q, number) == [True]
    assert driver.ack(Q, number) == [True]


def test_a_put_back_delivery_costs_nothing() -> None:
    """Spec 2.3: a pull whose client disconnected while waiting costs nothing, however often it happens."""
    driver = Driver()
    driver.set(Q, retry=0)
    driver.push(Q, b"x")
    for _ in range(5):
        _, number, retry, _ = driver.pull_one(Q)
        assert retry == 0
        assert driver.put_back(Q, number) == [True]
    assert driver.drain(Q) == [b"x"]


def test_the_count_is_fixed_by_the_push() -> None:
    """Spec 2.3: changing `retry` later does not affect messages already in the queue."""
    driver = Driver()
    driver.push(Q, b"before")
    driver.set(Q, retry=7)
    driver.push(Q, b"after")
    assert [retry for _, _, retry, _ in driver.pull(Q, 2)] == [2, 7]


def test_exhausted_messages_are_not_skipped_before_they_are_due() -> None:
    """Spec 2.2: only the entry with the smallest due time is examined."""
    driver = Driver()
    driver.set(Q, retry=0)
    driver.push(Q, b"1")
    driver.pull(Q)
    driver.push(Q, b"2")
    assert bodies(driver.pull(Q)) == [b"2"]
    assert driver.size(Q) == 2


def test_timeout_0_lets_a_message_be_pulled_in_a_row() -> None:
    """Spec 2.5: it can be pulled `retry` + 1 times in a row, and no reply to any of those ids ever succeeds."""
    driver = Driver()
    driver.set(Q, timeout=0)
    driver.push(Q, b"x")
    taken = [driver.pull_one(Q) for _ in range(3)]
    assert [retry for _, _, retry, _ in taken] == [2, 1, 0]
    assert driver.pull(Q) == []
    for settle in (driver.ack, driver.nack, driver.extend, driver.put_back):
        assert settle(Q, *numbers(taken)) == [False] * 3


def test_one_pull_of_many_with_timeout_0_is_like_many_pulls_of_one() -> None:
    """Spec 2.5, for the batch pull."""
    driver = Driver()
    driver.set(Q, timeout=0)
    driver.push(Q, b"x")
    taken = driver.pull(Q, 10)
    assert [(number, retry) for _, number, retry, _ in taken] == [(1, 2), (2, 1), (3, 0)]


def test_with_a_negative_timeout_a_delivery_ends_before_it_began() -> None:
    """Spec 3: negative numbers are accepted everywhere; 2.2: order is by the deadline, so the message is
    first again.
    """
    driver = Driver()
    driver.set(Q, timeout=-5)
    driver.push(Q, b"1", b"2")
    assert bodies(driver.pull_one(Q) for _ in range(4)) == [b"1", b"1", b"1", b"2"]
    assert driver.ack(Q, 1, 2, 3, 4) == [False] * 4
