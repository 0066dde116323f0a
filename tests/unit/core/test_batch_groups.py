"""Batch leases take groups whole: in order, and no other message of a group is delivered in the meantime."""

from __future__ import annotations

from typing import Any

import pytest

from lmqcluster.core import Op
from lmqcluster.core.state import batch_leases
from lmqcluster.core.state.batch_lease import BatchState
from tests.property.driver import SECOND, UNDO, Driver, bodies, copied

Q, S = b"q", b"s"


def new_driver() -> Driver:
    return Driver()


def push(driver: Driver, *bodies: bytes, group: bytes = b"g", queue: bytes = Q, ttl_us: int = 0) -> None:
    """Push messages of a group."""
    driver.do(Op.PUSH_ROWS, queue, [[body, None, b"", None, [-1, 0, ttl_us, 0, b"", group]] for body in bodies])


def numbered(count: int, stem: bytes = b"") -> list[bytes]:
    return [b"%b%d" % (stem, number) for number in range(count)]


def reserve(driver: Driver, epoch: int, count: int = 1000, subscription: bytes = S, lease_us: int = 60 * SECOND) -> Any:
    """Reserve until the batch is complete."""
    while True:
        found = driver.do(Op.RESERVE, subscription, epoch, Q, True, count, lease_us)
        if found.sealed:
            return found


def held_by(driver: Driver, epoch: int, subscription: bytes = S) -> list[bytes]:
    """Contents of a batch, in order."""
    assert driver.machine.state.batches.state(subscription, epoch) == BatchState.LIVE
    return bodies(driver.machine.state.batches.read(subscription, epoch, 0, 1_000_000) or [])


def test_a_group_is_taken_whole_and_in_order() -> None:
    driver = new_driver()
    push(driver, *numbered(40))
    assert reserve(driver, 1).size == 40
    assert held_by(driver, 1) == numbered(40)


def test_each_group_is_taken_with_its_first_message() -> None:
    driver = new_driver()
    for number in range(3):
        for group in (b"g", b"h", b""):
            push(driver, b"%b%d" % (group, number), group=group)
    assert reserve(driver, 1).size == 9
    assert held_by(driver, 1) == [b"g0", b"g1", b"g2", b"h0", b"h1", b"h2", b"0", b"1", b"2"]


def test_a_batch_takes_as_much_of_a_group_as_it_has_room_for() -> None:
    driver = new_driver()
    push(driver, *numbered(10))
    assert reserve(driver, 1, 4).size == 4
    # No consumer gets the messages after it, not even the next batch of the same subscription.
    assert reserve(driver, 2, 4).state == BatchState.EMPTY
    assert reserve(driver, 1, 4, b"t").state == BatchState.EMPTY
    assert driver.pull(Q, 10) == []
    seen = held_by(driver, 1)
    for epoch in (1, 2, 3):
        assert driver.do(Op.SETTLE_BATCHES, S, epoch) == ([], False)
        if reserve(driver, epoch + 1, 4).size:
            seen += held_by(driver, epoch + 1)
    assert seen == numbered(10)
    assert driver.size(Q) == 0
    rich = driver.machine.state.queues[Q].store.rich
    assert rich is not None
    assert (rich.heads, len(rich.holding)) == ({}, 0)


def test_a_batch_of_several_steps_continues_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_leases, "STEP_MAX", 3)
    monkeypatch.setattr(batch_leases, "_BLOCK", 2)
    driver = new_driver()
    push(driver, *numbered(7, b"g"))
    push(driver, b"other", group=b"")
    for step in range(3):
        driver.do(Op.RESERVE, S, 1, Q, True, 9, 60 * SECOND)
        # Messages that arrive in between belong to the group too; a restored replica continues alike.
        push(driver, b"g%d" % (7 + step))
        driver = Driver(copied(driver.machine))
    assert held_by(driver, 1) == numbered(9, b"g")
    assert driver.do(Op.SETTLE_BATCHES, S, 1) == ([], False)
    assert bodies(driver.pull(Q, 10)) == [b"other", b"g9"]


def test_a_pattern_takes_groups_whole_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_leases, "STEP_MAX", 4)
    monkeypatch.setattr(batch_leases, "_BLOCK", 2)
    driver = new_driver()
    for number in range(5):
        push(driver, b"a%d" % number, queue=b"a")
        push(driver, b"b%d" % number, queue=b"b", group=b"")
    while not driver.do(Op.RESERVE, S, 1, [b"a", b"b"], True, 100, 60 * SECOND, 0, b"").sealed:
        # The node does this when no message of a queue is due.
        assert len(driver.machine.state.batches.subscriptions[S].batches[1].runs) <= 10
    found = held_by(driver, 1)
    assert sorted(found) == sorted(numbered(5, b"a") + numbered(5, b"b"))
    start = found.index(b"a0")
    assert found[start : start + 5] == numbered(5, b"a")


def test_an_abandoned_batch_leaves_the_group_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_leases, "STEP_MAX", 3)
    driver = new_driver()
    push(driver, *numbered(10))
    assert reserve(driver, 1, 8).size == 8
    while driver.do(Op.ABANDON_BATCHES, S):
        assert driver.pull(Q, 10) == [], "the rest of the group is leased"
        driver = Driver(copied(driver.machine))
    for number in range(10):
        (delivery,) = driver.pull(Q, 10)
        assert bodies([delivery]) == [b"%d" % number]
        assert driver.ack(Q, delivery[1]) == [True]


def test_a_batch_that_expires_leaves_the_group_in_order() -> None:
    driver = new_driver()
    push(driver, *numbered(10))
    assert reserve(driver, 1, 8).size == 8
    driver.wait(61)
    driver.tick()
    driver = Driver(copied(driver.machine))
    assert reserve(driver, 2).size == 10
    assert held_by(driver, 2) == numbered(10)


@pytest.mark.parametrize(("op", "more"), [(Op.ACK, ()), (Op.NACK, ()), (Op.NACK, UNDO)])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_messages_that_are_settled_alone_free_the_front_of_their_group(
    op: Op, more: Any, order: tuple[int, ...]
) -> None:
    driver = new_driver()
    push(driver, *numbered(5))
    assert reserve(driver, 1, 3).size == 3
    numbers = [one[1] for one in driver.machine.state.batches.read(S, 1, 0, 3) or []]
    for count, position in enumerate(order, 1):
        driver = Driver(copied(driver.machine))
        assert driver.do(op, Q, [numbers[position]], *more) == [True]
        seen = bodies(driver.pull(Q, 5))
        if op == Op.ACK:
            assert seen == ([b"3"] if count == 3 else []), "the first one left is leased"
        elif order[0] == 0:
            assert seen == ([b"0"] if count == 1 else []), "the first one alone, and then it is leased again"
        else:
            assert seen == ([b"0"] if count == 3 else []), "the first one comes back last"


def test_undeliverable_messages_are_skipped() -> None:
    driver = new_driver()
    push(driver, b"0")
    push(driver, b"1", ttl_us=SECOND)
    push(driver, b"2")
    driver.wait(2)
    assert reserve(driver, 1).size == 2
    assert held_by(driver, 1) == [b"0", b"2"]


def test_a_suspended_queue_delivers_no_more_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_leases, "STEP_MAX", 3)
    driver = new_driver()
    push(driver, *numbered(10))
    assert not driver.do(Op.RESERVE, S, 1, Q, True, 9, 60 * SECOND).sealed
    driver.do(Op.SUSPEND, Q, True)
    assert driver.do(Op.RESERVE, S, 1, Q, True, 9, 60 * SECOND)[1:3] == (3, True)
