"""Batch leases in the state machine: limits and corner cases; `tests/property/test_machine.py` compares the rest with
the model.
"""

from __future__ import annotations

from typing import Any

import pytest

from lmqcluster.core import Fault, Op
from lmqcluster.core.owners.quotas import Kind, Quotas
from lmqcluster.core.state import batch_leases
from lmqcluster.core.state.batch_lease import BatchState
from lmqcluster.core.state.batch_leases import BatchLeases
from tests.property.driver import SECOND, UNDO, Driver, bodies, copied, records

Q, S = b"q", b"s"


def reserve(driver: Driver, epoch: int, count: int = 10, lease_us: int = 60 * SECOND, subscription: bytes = S) -> Any:
    return driver.do(Op.RESERVE, subscription, epoch, Q, True, count, lease_us)


def test_a_batch_that_is_renewed_for_less_time_ends_in_time() -> None:
    """A pull of a pattern and a waiting pull must not miss it."""
    driver = Driver()
    driver.push(Q, b"m")
    reserve(driver, 1)
    assert driver.pull_first(Q) == []
    assert driver.do(Op.RENEW, S, SECOND) == (1, 0)
    assert driver.ready == [Q]
    driver.wait(2)
    assert bodies(driver.pull_first(Q)) == [b"m"]


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
    monkeypatch.setattr(Quotas, "LIMITS", {**Quotas.LIMITS, Kind.SUBSCRIPTIONS: 2})
    monkeypatch.setattr(BatchLeases, "BATCHES_MAX", 2)
    driver = Driver()
    driver.push(Q, *(b"%d" % n for n in range(9)))
    assert [reserve(driver, epoch, 1).state for epoch in (1, 2)] == [BatchState.LIVE] * 2
    [refused] = driver.batch([Op.RESERVE, S, 3, Q, True, 1, SECOND])
    assert isinstance(refused, Fault)
    assert "2 batches that are not settled" in refused.reason
    reserve(driver, 1, 1, subscription=b"t")
    [refused] = driver.batch([Op.RESERVE, b"u", 1, Q, True, 1, SECOND])
    assert isinstance(refused, Fault)
    assert refused.code == "quota_exceeded"
    assert bodies(driver.pull(Q, 10)) == [b"%d" % n for n in range(3, 9)]


def test_a_message_settled_alone_makes_the_batch_unreadable() -> None:
    """It must not be silently shorter."""
    driver = Driver()
    driver.push(Q, b"1", b"2", b"3")
    assert reserve(driver, 1).size == 3
    found = driver.machine.state.batches.read(S, 1, 0, 10)
    assert found is not None
    assert driver.ack(Q, found[1][1]) == [True]
    for machine in (driver.machine, copied(driver.machine)):
        assert machine.state.batches.read(S, 1, 0, 1) is not None
        assert machine.state.batches.read(S, 1, 0, 2) is None
    assert driver.do(Op.SETTLE_BATCHES, S, 1) == ([], False), "none of it can be delivered again"


@pytest.mark.parametrize("recreated", [False, True])
def test_a_batch_of_a_deleted_queue_is_settled_and_not_redelivered(recreated: bool) -> None:
    driver = Driver()
    driver.push(Q, b"1", b"2")
    assert reserve(driver, 1).size == 2
    driver.delete(Q)
    if recreated:
        driver.push(Q, b"3")
    assert driver.machine.state.batches.read(S, 1, 0, 2) is None
    assert driver.do(Op.SETTLE_BATCHES, S, 1) == ([], False)


@pytest.mark.parametrize("more", [(), UNDO])
def test_a_message_returned_alone_may_be_redelivered(more: Any) -> None:
    driver = Driver()
    driver.push(Q, b"1", b"2", b"3")
    reserve(driver, 1)
    found = driver.machine.state.batches.read(S, 1, 0, 10) or []
    assert driver.do(Op.NACK, Q, [found[1][1]], *more) == [True]
    assert driver.do(Op.SETTLE_BATCHES, S, 1) == ([1], False)


# Sessions, and leases without a charge.


def _reserve_2(driver: Driver, epoch: int = 1, session: int = 0, lease_us: int = 60 * SECOND) -> Any:
    return driver.batch([Op.RESERVE, b"s", epoch, b"q", True, 10, lease_us, session, b""])[0]


def test_a_batch_lease_that_ends_costs_no_delivery() -> None:
    """With retry 0 a driver that died between reserving and committing used to lose 1,000 acknowledged messages."""
    driver = Driver()
    driver.set(b"q", retry=0)
    driver.push(b"q", b"1", b"2")
    for epoch in range(1, 6):
        assert _reserve_2(driver, epoch)[:2] == (BatchState.LIVE, 2)
        driver.wait(60)
        driver.tick()
        assert driver.machine.state.batches.state(b"s", epoch) == BatchState.EXPIRED
    queue = driver.machine.state.queues[b"q"]
    assert (queue.counters.dropped_total, bodies(driver.pull(b"q", 10))) == (0, [b"1", b"2"])


def test_an_abandoned_batch_is_charged_nothing_and_gains_nothing() -> None:
    driver = Driver()
    driver.push(b"q", b"1")
    _reserve_2(driver)
    assert [remaining for _, _, remaining, _ in driver.machine.state.batches.read(b"s", 1, 0, 1) or []] == [2]
    assert driver.do(Op.ABANDON_BATCHES, b"s", 0) is False
    assert b"s" not in driver.machine.state.batches.subscriptions
    assert driver.pull_one(b"q")[2] == 2


def test_the_last_claim_owns_the_subscription() -> None:
    driver = Driver()
    driver.push(b"q", b"1", b"2")
    first = driver.do(Op.CLAIM, b"s", b"")
    assert _reserve_2(driver, 1, first)[:2] == (BatchState.LIVE, 2)
    second = driver.do(Op.CLAIM, b"s", b"")
    assert second > first
    for session in (first, 0, second + 1):
        commands = [
            [Op.RESERVE, b"s", 2, b"q", True, 10, SECOND, session, b""],
            [Op.RENEW, b"s", SECOND, session],
            [Op.SETTLE_BATCHES, b"s", 1, session, b""],
            [Op.ABANDON_BATCHES, b"s", session],
        ]
        before = records(driver.machine)
        assert [getattr(result, "code", result) for result in driver.batch(*commands)] == ["fenced"] * 4
        assert [row for row in records(driver.machine) if row[0] != "sessions"] == [
            row for row in before if row[0] != "sessions"
        ]
    # The new owner still has the batches.
    assert _reserve_2(driver, 1, second)[:2] == (BatchState.LIVE, 2)
    assert driver.do(Op.SETTLE_BATCHES, b"s", 1, second, b"") == ([], False)
    assert len(driver.machine.state.queues[b"q"]) == 0


def test_a_session_does_not_outlive_its_subscription() -> None:
    driver = Driver()
    session = driver.do(Op.CLAIM, b"s", b"")
    assert driver.do(Op.ABANDON_BATCHES, b"s", 0, b"", True) is False
    assert driver.do(Op.ABANDON_BATCHES, b"s", 0, b"", True) is None
    assert _reserve_2(driver, 1, session).code == "fenced"
    assert driver.do(Op.CLAIM, b"s", b"") > session
    assert Driver(copied(driver.machine)).do(Op.CLAIM, b"s", b"") == session + 3


def test_deleting_returns_everything_in_bounded_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmqcluster.core.state.batch_leases.STEP_MAX", 3)
    driver = Driver()
    driver.push(b"q", *[b"x"] * 7)
    session = driver.do(Op.CLAIM, b"s", b"")
    for _ in range(3):
        _reserve_2(driver, 1, session)
    assert [driver.do(Op.ABANDON_BATCHES, b"s", 0, b"", True) for _ in range(4)] == [True, True, False, None]
    assert len(driver.drain(b"q")) == 7


def test_a_renewal_touches_a_bounded_number_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_leases, "_RENEW_STEP", 4)
    driver = Driver()
    driver.push(Q, *[b"m"] * 12)
    for epoch in range(1, 5):
        driver.do(Op.RESERVE, S, epoch, Q, True, 3, SECOND, 0, b"")
    assert driver.do(Op.RENEW, S, 60 * SECOND) == (2, 3)
    assert driver.do(Op.RENEW, S, 60 * SECOND, 0, 3) == (2, 0)
    driver.wait(2)
    assert [driver.machine.state.batches.state(S, epoch) for epoch in range(1, 5)] == [BatchState.LIVE] * 4
