"""The expiry of messages, and the fate of messages whose leases end by time alone."""

from __future__ import annotations

import pytest

from lmqcluster.core import Op
from tests.property.driver import SECOND, Driver

Q, DEAD = b"q", b"dead"


@pytest.fixture
def driver() -> Driver:
    return Driver()


def _push(driver: Driver, body: bytes, *, ttl_us: int = 0, priority: int = 0) -> None:
    driver.do(Op.PUSH_ROWS, Q, [[body, None, b"", None, [-1, 0, ttl_us, priority, b"", b""]]])


def test_a_message_expires_at_its_time_exactly(driver: Driver) -> None:
    _push(driver, b"x", ttl_us=SECOND)
    rich = driver.machine.state.queues[Q].store.rich
    assert rich is not None
    assert rich.first_expired(driver.now_us + SECOND - 1) is None
    assert rich.first_expired(driver.now_us + SECOND) is not None


@pytest.mark.parametrize(("ttl_us", "max_age"), [(SECOND, 3), (3 * SECOND, 1)])
def test_the_shorter_of_a_message_s_time_and_the_queue_s_age_counts(
    driver: Driver, ttl_us: int, max_age: float
) -> None:
    driver.set(Q, max_age=max_age)
    _push(driver, b"x", ttl_us=ttl_us)
    driver.wait(0.999999)
    driver.tick()
    assert driver.size(Q) == 1
    driver.wait(0.000001)
    driver.tick()
    assert driver.size(Q) == 0


@pytest.mark.parametrize("priority", [0, 1])
def test_a_message_whose_last_lease_ends_by_itself_becomes_a_dead_letter(driver: Driver, priority: int) -> None:
    driver.set(Q, retry=0, timeout=1, dead_letter_queue="dead")
    _push(driver, b"x", priority=priority)
    assert len(driver.pull(Q)) == 1
    driver.wait(1)
    driver.tick()
    assert driver.drain(DEAD) == [b"x"]
    assert driver.machine.state.queues[Q].counters.dead_lettered_total == 1
