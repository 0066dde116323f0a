"""Design law 7, bounded everything: state beside the messages stays in proportion to them."""

from __future__ import annotations

import pytest

from lmqcluster.core.dedup.node_sequences import NodeSequences
from lmqcluster.core.owners.quotas import Kind, Quotas
from lmqcluster.core.queue.lease_table import LeaseTable
from lmqcluster.core.state.state import REMEMBER_US
from tests.property.driver import SECOND, Driver, numbers

Q = b"q"
ROUNDS = 5000


def _order_entries(driver: Driver) -> int:
    leases = driver.machine.state.queues[Q].store.leases
    return len(leases._runs) + len(leases._late)


def _bound(driver: Driver) -> int:
    return 2 * len(driver.machine.state.queues[Q].store.leases) + 66


def test_a_long_lived_first_lease_does_not_keep_the_order_of_all_later_ones() -> None:
    """One slow consumer must not make the queue remember every delivery since."""
    driver = Driver()
    driver.push(Q, b"slow")
    driver.pull(Q)
    for _ in range(ROUNDS):
        driver.push(Q, b"x")
        driver.ack(Q, driver.pull_one(Q)[1])
        assert _order_entries(driver) <= _bound(driver)


def test_a_long_lived_lease_with_a_late_deadline_does_not_either() -> None:
    """The same with leases that end before the long one, which stay in the heap."""
    driver = Driver()
    driver.set(Q, timeout=10**6)
    driver.push(Q, b"slow")
    driver.pull(Q)
    driver.set(Q, timeout=30)
    for _ in range(ROUNDS):
        driver.wait(0.001)
        driver.push(Q, b"x")
        driver.ack(Q, driver.pull_one(Q)[1])
        assert _order_entries(driver) <= _bound(driver)
    driver.wait(10**6)
    assert driver.drain(Q) == [b"slow"]


@pytest.mark.parametrize("timeouts", [(30,), (30, 10), (10, 20, 30, 5)])
def test_a_lease_extended_repeatedly_leaves_no_trail(timeouts: tuple[float, ...]) -> None:
    driver = Driver()
    driver.push(Q, b"a", b"b")
    first, _ = numbers(driver.pull(Q, 2))
    for index in range(ROUNDS):
        driver.wait(0.001)
        driver.set(Q, timeout=timeouts[index % len(timeouts)])
        assert driver.extend(Q, first) == [True]
        assert _order_entries(driver) <= _bound(driver)
    driver.wait(60)
    assert sorted(driver.drain(Q)) == [b"a", b"b"]


def test_a_queue_drained_of_its_leases_forgets_their_order() -> None:
    """A burst of deliveries must not occupy memory until the queue is used again."""
    driver = Driver()
    driver.push(Q, *[b"x"] * 1000)
    taken = [driver.pull_one(Q)[1] for _ in range(1000)]
    for number in taken:
        driver.ack(Q, number)
    assert _order_entries(driver) <= _bound(driver)


def test_sweeping_keeps_every_live_lease() -> None:
    """After sweeping, the remaining leases expire in the order of their deadlines."""
    table = LeaseTable()
    driver = Driver()
    driver.push(Q, *[b"%d" % index for index in range(300)])
    message = [one[3] for one in driver.pull(Q, 300)]
    for index, one in enumerate(message):
        one.due_us = (index * 7919) % 300
        table.add(one.due_us, index + 1, [one])
    for index in range(0, 300, 3):
        del table.messages[index + 1]
    for index in range(1, 300, 3):
        table.reschedule(index + 1, 1000 - index)
    left = [table.pop_head()[1] for _ in range(200)]
    assert [one.due_us for one in left] == sorted(one.due_us for one in left)
    assert len(table) == 0
    assert table.head_us() is None


def test_idempotency_keys_are_forgotten_after_their_window() -> None:
    driver = Driver()
    for index in range(1000):
        driver.push_item(Q, b"x", key=b"%d" % index)
    assert len(driver.machine.state.keys) == 1000
    driver.wait(REMEMBER_US / SECOND)
    driver.push_item(Q, b"x", key=b"last")
    assert len(driver.machine.state.keys) == 1
    assert len(list(driver.machine.state.keys.rows())) == 1


def test_producers_are_forgotten_after_their_window() -> None:
    driver = Driver()
    for index in range(1000):
        driver.produce(Q, b"%d" % index, 1, b"x")
    driver.wait(REMEMBER_US / SECOND)
    driver.produce(Q, b"last", 1, b"x")
    assert len(driver.machine.state.producers) == 1


def test_the_producers_used_longest_ago_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Quotas, "LIMITS", {**Quotas.LIMITS, Kind.PRODUCERS: 3})
    driver = Driver()
    for producer in (b"a", b"b", b"c", b"a", b"d"):
        driver.produce(Q, producer, 1, b"x")
    assert [record[1] for record in driver.machine.state.producers.rows()] == [b"c", b"a", b"d"]


def test_the_nodes_seen_longest_ago_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NodeSequences, "ORIGINS_MAX", 3)
    driver = Driver()
    for origin, sequence in ((b"a", 1), (b"b", 1), (b"c", 1), (b"a", 2), (b"d", 1)):
        driver.machine.apply(0, origin, 1, sequence, [])
    assert [record[0] for record in driver.machine.state.node_sequences.records()] == [b"c", b"a", b"d"]


def test_bytes_of_bodies_are_accounted_exactly() -> None:
    """Design law 7: the node's memory bound rests on this number."""
    driver = Driver()
    driver.push(Q, b"123", b"45")
    driver.set(Q, accum=1000)
    driver.push(Q, b"6789")
    queue = driver.machine.state.queues[Q]
    assert queue.store.body_bytes == 9
    first, second = numbers(driver.pull(Q, 2))
    driver.nack(Q, first)
    driver.ack(Q, second)
    assert queue.store.body_bytes == 7
    driver.wait(1)
    driver.ack(Q, *numbers(driver.pull(Q, 2)))
    assert queue.store.body_bytes == 0
    driver.set(Q, retry=0, accum=0)
    driver.push(Q, b"once!")
    assert queue.store.body_bytes == 5
    driver.nack(Q, driver.pull_one(Q)[1])
    assert queue.store.body_bytes == 0
