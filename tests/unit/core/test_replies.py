"""LMQ specification 2.4: when an ack, a nack or an extension succeeds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lmqcluster.core import Op
from tests.property.driver import Driver, bodies, numbers

Q = b"q"
Settle = Callable[..., list[bool] | None]
SETTLE = pytest.mark.parametrize("settle", [Driver.ack, Driver.nack, Driver.extend, Driver.put_back])


@pytest.fixture
def driver() -> Driver:
    """A queue with one message, delivered under number 1."""
    driver = Driver()
    driver.push(Q, b"x")
    assert numbers(driver.pull(Q)) == [1]
    return driver


@SETTLE
def test_a_live_lease_can_be_settled(driver: Driver, settle: Settle) -> None:
    """Spec 2.4: the id is that of an entry in state `processing` whose due time has not passed."""
    driver.wait(29.999999)
    assert settle(driver, Q, 1) == [True]


@SETTLE
def test_a_lease_that_timed_out_cannot(driver: Driver, settle: Settle) -> None:
    """Spec 2.4: timed out, whether or not it was delivered again."""
    driver.wait(30)
    assert settle(driver, Q, 1) == [False]
    driver.pull(Q)
    assert settle(driver, Q, 1) == [False]


@SETTLE
@pytest.mark.parametrize("given", [0, -1, 2, 1 << 60])
def test_an_id_that_never_existed_cannot(driver: Driver, settle: Settle, given: int) -> None:
    """Spec 2.4: never existed; number 0 stands for a malformed id."""
    assert settle(driver, Q, given) == [False]


@SETTLE
def test_a_settled_lease_cannot_be_settled_again(driver: Driver, settle: Settle) -> None:
    """Spec 2.4: already acked, nacked or put back."""
    driver.push(Q, b"y", b"z")
    two, three = numbers(driver.pull(Q, 2))
    assert (driver.ack(Q, 1), driver.nack(Q, two), driver.put_back(Q, three)) == ([True], [True], [True])
    assert settle(driver, Q, 1, two, three) == [False, False, False]


@SETTLE
def test_only_in_exactly_the_named_queue(driver: Driver, settle: Settle) -> None:
    """Spec 2.4: wrong queue and unknown queue; the latter is reported as such and not created."""
    driver.push(b"other", b"y")
    assert settle(driver, b"other", 1) == [False]
    assert settle(driver, b"unknown", 1) is None
    assert b"unknown" not in driver.machine.state.queues
    assert settle(driver, Q, 1) == [True]


@SETTLE
def test_a_message_delivered_again_answers_to_its_new_id_alone(driver: Driver, settle: Settle) -> None:
    """Spec 2.4: redelivered under a new id."""
    driver.nack(Q, 1)
    two = driver.pull_one(Q)[1]
    assert settle(driver, Q, 1, two) == [False, True]


def test_exactly_one_of_several_acks_succeeds(driver: Driver) -> None:
    """Spec 2.4: of several concurrent acks of one id exactly one succeeds, also within one batch."""
    assert driver.batch([Op.ACK, Q, [1, 1]], [Op.ACK, Q, [1]]) == [[True, False], [False]]


def test_an_acked_message_is_never_redelivered(driver: Driver) -> None:
    """Spec 2.1: ack removes the entry."""
    assert driver.ack(Q, 1) == [True]
    assert driver.size(Q) == 0
    driver.wait(3600)
    assert driver.pull(Q) == []


def test_an_extension_lasts_a_full_timeout_from_now(driver: Driver) -> None:
    """Spec 2.1: due time is now + `timeout`; the id stays the same."""
    driver.wait(20)
    driver.extend(Q, 1)
    driver.wait(29)
    assert driver.pull(Q) == []
    assert driver.extend(Q, 1) == [True]
    driver.wait(30)
    assert driver.extend(Q, 1) == [False]
    assert bodies(driver.pull(Q)) == [b"x"]


def test_an_extension_uses_the_current_timeout(driver: Driver) -> None:
    """Spec 3.2: `timeout` is for deliveries and extensions made afterwards; it may also shorten a lease."""
    driver.set(Q, timeout=2)
    driver.extend(Q, 1)
    driver.wait(2)
    assert bodies(driver.pull(Q)) == [b"x"]


def test_an_extension_to_nothing_succeeds_and_ends_the_lease(driver: Driver) -> None:
    """Spec 2.4 and 2.5: the lease was live when it was extended; with timeout 0 it no longer is."""
    driver.set(Q, timeout=0)
    assert driver.extend(Q, 1) == [True]
    assert driver.extend(Q, 1) == [False]
    assert bodies(driver.pull(Q)) == [b"x"]


def test_extended_leases_end_in_the_order_of_their_new_deadlines() -> None:
    """Spec 2.2: the smallest due time first."""
    driver = Driver()
    driver.push(Q, b"1", b"2", b"3")
    first, second, third = numbers(driver.pull(Q, 3))
    driver.wait(10)
    driver.extend(Q, first)
    driver.set(Q, timeout=5)
    driver.extend(Q, third)
    driver.wait(60)
    assert driver.drain(Q) == [b"3", b"2", b"1"]
    assert driver.ack(Q, second) == [False]


def test_a_window_still_open_has_no_id_to_reply_to() -> None:
    """Spec 2.4: still accumulating."""
    driver = Driver()
    driver.set(Q, accum=1000)
    driver.push(Q, b"x")
    sequence = driver.machine.state.queues[Q].store.delayed[0][1]
    assert driver.ack(Q, sequence) == [False]
    assert driver.size(Q) == 1
