"""Pulls of a session that a client repeats because their responses were lost or late."""

from __future__ import annotations

from typing import Any

import pytest

from lmqcluster.core import Op
from tests.property.driver import Driver, bodies, copied, numbers

Q = b"q"
OTHER = b"other"
NEVER_RECEIVED = 0


@pytest.fixture
def driver() -> Driver:
    """A machine with a session, number 1, and five messages."""
    driver = Driver()
    driver.do(Op.OPEN_SESSION, 60_000_000)
    driver.push(Q, *[b"%d" % number for number in range(5)])
    return driver


def pull(driver: Driver, count: int, known: int, lease_us: int = 0, queue: bytes = Q) -> Any:
    return driver.do(Op.PULL_IN_SESSION, queue, count, lease_us, 1, 1, known)


def test_a_repeated_pull_returns_the_messages_of_the_session(driver: Driver) -> None:
    first = pull(driver, 2, NEVER_RECEIVED)
    assert bodies(first) == [b"0", b"1"]
    again = pull(driver, 2, NEVER_RECEIVED)
    assert (bodies(again), numbers(again)) == (bodies(first), numbers(first))
    assert [one[2] for one in again] == [one[2] for one in first], "a repetition uses up no delivery"
    assert bodies(pull(driver, 2, numbers(first)[1])) == [b"2", b"3"]


def test_a_pull_that_arrives_after_its_repetition_returns_nothing_to_the_queue(driver: Driver) -> None:
    received = numbers(pull(driver, 2, NEVER_RECEIVED))
    # The client abandoned this one before it sent the first.
    pull(driver, 2, NEVER_RECEIVED)
    assert driver.do(Op.ACK, Q, received) == [True, True]
    assert driver.drain(Q) == [b"2", b"3", b"4"]


def test_messages_of_a_late_pull_are_in_the_next_one(driver: Driver) -> None:
    received = numbers(pull(driver, 2, NEVER_RECEIVED))
    assert driver.do(Op.ACK, Q, received) == [True, True]
    assert bodies(pull(driver, 2, NEVER_RECEIVED)) == [b"2", b"3"]
    assert bodies(pull(driver, 9, received[1])) == [b"2", b"3"]


def test_a_repeated_pull_returns_at_most_the_requested_count(driver: Driver) -> None:
    pull(driver, 4, NEVER_RECEIVED)
    first = pull(driver, 3, NEVER_RECEIVED)
    assert bodies(first) == [b"0", b"1", b"2"]
    assert bodies(pull(driver, 3, numbers(first)[-1])) == [b"3"]
    assert pull(driver, 0, NEVER_RECEIVED) == []


def test_a_repetition_extends_leases_and_never_shortens_them(driver: Driver) -> None:
    held = numbers(pull(driver, 1, NEVER_RECEIVED, lease_us=10_000_000))
    driver.wait(9)
    assert numbers(pull(driver, 1, NEVER_RECEIVED, lease_us=10_000_000)) == held
    assert numbers(pull(driver, 1, NEVER_RECEIVED, lease_us=1)) == held
    driver.wait(9)
    assert driver.do(Op.ACK, Q, held) == [True]


def test_a_delivery_whose_lease_has_ended_is_not_returned(driver: Driver) -> None:
    held = numbers(pull(driver, 1, NEVER_RECEIVED, lease_us=1_000_000))
    driver.wait(2)
    again = pull(driver, 5, NEVER_RECEIVED)
    assert sorted(bodies(again)) == [b"0", b"1", b"2", b"3", b"4"]
    assert not set(held) & set(numbers(again))


def test_a_repetition_is_about_one_queue(driver: Driver) -> None:
    driver.push(OTHER, b"other")
    pull(driver, 1, NEVER_RECEIVED, queue=OTHER)
    assert bodies(pull(driver, 1, NEVER_RECEIVED)) == [b"0"]
    assert bodies(pull(driver, 1, NEVER_RECEIVED, queue=OTHER)) == [b"other"]


def test_a_restored_replica_returns_the_same(driver: Driver) -> None:
    pull(driver, 3, NEVER_RECEIVED, lease_us=10_000_000)
    expected = numbers(pull(driver, 2, NEVER_RECEIVED))
    driver.machine = copied(driver.machine)
    assert numbers(pull(driver, 2, NEVER_RECEIVED)) == expected
