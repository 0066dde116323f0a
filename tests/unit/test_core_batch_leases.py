"""Batch leases in the state machine: limits and corners; `tests/property/test_machine.py` holds the rest against the model."""

from __future__ import annotations

from typing import Any

import pytest

from lmqcluster.core import Fault, Op
from lmqcluster.core.batch_leases import BatchLeases, BatchState
from tests.property.driver import SECOND, Driver, bodies, copied

Q, S = b"q", b"s"


def reserve(driver: Driver, epoch: int, count: int = 10, lease_us: int = 60 * SECOND, subscription: bytes = S) -> Any:
    return driver.do(Op.RESERVE, subscription, epoch, Q, False, count, lease_us)


def test_a_batch_that_is_renewed_for_less_time_ends_in_time() -> None:
    """A pull of a pattern and a pull that waits must not sleep through it."""
    driver = Driver()
    driver.push(Q, b"m")
    assert driver.pull_any(b"nothing") == []
    assert driver.machine.patterns.view(Q).earliest() is not None
    reserve(driver, 1)
    assert driver.pull_any(Q) == []
    assert driver.do(Op.RENEW, S, SECOND) == 1
    assert driver.ready == [Q]
    driver.wait(2)
    assert bodies(driver.pull_any(Q)) == [b"m"]


def test_an_unused_subscription_is_forgotten() -> None:
    driver = Driver()
    driver.push(Q, b"m")
    reserve(driver, 5)
    assert driver.do(Op.SETTLE_BATCHES, S, 5) == ([], False)
    assert reserve(driver, 5).state == BatchState.SETTLED
    driver.wait(BatchLeases.REMEMBER_US / SECOND)
    driver.push(Q, b"n")
    assert reserve(driver, 5).state == BatchState.LIVE


def test_there_are_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchLeases, "SUBSCRIPTIONS_MAX", 2)
    monkeypatch.setattr(BatchLeases, "BATCHES_MAX", 2)
    driver = Driver()
    driver.push(Q, *(b"%d" % n for n in range(9)))
    assert [reserve(driver, epoch, 1).state for epoch in (1, 2)] == [BatchState.LIVE] * 2
    [refused] = driver.batch([Op.RESERVE, S, 3, Q, False, 1, SECOND])
    assert isinstance(refused, Fault)
    assert "2 batches that are not settled" in refused.reason
    reserve(driver, 1, 1, subscription=b"t")
    [refused] = driver.batch([Op.RESERVE, b"u", 1, Q, False, 1, SECOND])
    assert isinstance(refused, Fault)
    assert "2 subscriptions" in refused.reason
    assert bodies(driver.pull(Q, 10)) == [b"%d" % n for n in range(3, 9)]


def test_what_was_settled_by_itself_makes_the_batch_unreadable() -> None:
    """It must not be silently shorter."""
    driver = Driver()
    driver.push(Q, b"1", b"2", b"3")
    assert reserve(driver, 1).size == 3
    found = driver.machine.batches.read(S, 1, 0, 10)
    assert found is not None
    assert driver.ack(Q, found[1][1]) == [True]
    for machine in (driver.machine, copied(driver.machine)):
        assert machine.batches.read(S, 1, 0, 1) is not None
        assert machine.batches.read(S, 1, 0, 2) is None
    assert driver.do(Op.SETTLE_BATCHES, S, 1) == ([1], False), "not all of it was still leased"
