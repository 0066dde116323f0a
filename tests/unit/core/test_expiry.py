"""Objects that expire by log time end without a request, in bounded steps, and alike on every replica."""

from __future__ import annotations

import pytest

from lmqcluster.core import Machine, Op
from lmqcluster.core.owners.quotas import Kind
from lmqcluster.core.queue.expiry import NEVER
from lmqcluster.core.state.state import REMEMBER_US
from tests.property.driver import SECOND, Driver, bodies, compile_pattern, copied, counters, numbers, records
from tests.property.work import counted

Q = b"q"
WINDOW_S = REMEMBER_US / SECOND


@pytest.fixture
def driver() -> Driver:
    return Driver()


def test_an_expired_lease_returns_its_message_by_itself(driver: Driver) -> None:
    driver.push(Q, b"1", b"2", b"3")
    (first, *_) = numbers(driver.pull(Q, 2))
    driver.wait(30)
    driver.tick()
    queue = driver.machine.state.queues[Q]
    assert (
        len(queue.store.leases),
        len(queue.store.ready) + len(queue.store.delayed),
        queue.counters.redelivered_total,
    ) == (0, 3, 2)
    assert driver.ready == [Q]
    assert driver.ack(Q, first) == [False]
    # They are due since their leases expired, which is later than the message that was never pulled.
    assert driver.drain(Q) == [b"3", b"1", b"2"]


def test_an_exhausted_message_is_dropped_and_counted_when_its_last_lease_ends(driver: Driver) -> None:
    driver.set(Q, retry=0)
    driver.push(Q, b"12345")
    driver.pull(Q)
    driver.wait(30)
    driver.tick()
    queue = driver.machine.state.queues[Q]
    assert (len(queue), queue.store.body_bytes, queue.counters.dropped_total, queue.counters.redelivered_total) == (
        0,
        0,
        1,
        0,
    )


def test_an_exhausted_message_that_is_nacked_is_dropped_at_once(driver: Driver) -> None:
    driver.set(Q, retry=0)
    driver.push(Q, b"1", b"2")
    held = numbers(driver.pull(Q, 2))
    driver.set(Q, retry=2)
    driver.push(Q, b"3")
    assert driver.nack(Q, *held, 99) == [True, True, False]
    queue = driver.machine.state.queues[Q]
    assert (queue.counters.dropped_total, queue.counters.nacked_total, driver.drain(Q)) == (2, 2, [b"3"])


def test_messages_of_a_suspended_queue_return_too(driver: Driver) -> None:
    driver.push(Q, b"1")
    driver.pull(Q)
    driver.do(Op.SUSPEND, Q, True)
    driver.wait(30)
    driver.tick()
    assert len(driver.machine.state.queues[Q].store.leases) == 0


def test_extending_below_the_known_deadline_is_noticed(driver: Driver) -> None:
    driver.set(Q, timeout=1000)
    driver.push(Q, b"1")
    held = numbers(driver.pull(Q))
    driver.set(Q, timeout=1)
    driver.extend(Q, *held)
    driver.wait(1)
    driver.tick()
    assert len(driver.machine.state.queues[Q].store.leases) == 0


def test_many_leases_end_in_bounded_steps(driver: Driver) -> None:
    """No batch expires more than a thousand, however many are due at once, over any number of queues."""
    for index in range(30):
        driver.push(b"q%d" % index, *[b"x"] * 200)
        driver.pull(b"q%d" % index, 200)
    driver.wait(30)
    ended = []
    before = 0
    while driver.machine.state.expiry.next_us <= driver.now_us:
        driver.tick()
        total = counters(driver.machine)["redelivered_total"]
        ended.append(total - before)
        before = total
    assert sum(ended) == 6000
    assert max(ended) == 1000
    assert len(ended) <= 7


def test_a_million_keys_that_end_at_once_make_no_batch_long(driver: Driver) -> None:
    """Finding 1 of the review: tables that were full of keys refused the pushes that would have emptied them."""
    for number in range(20):
        items = [[b"", None, b"", b"%d" % (number * 5_000 + index), []] for index in range(5_000)]
        driver.do(Op.PUSH_ROWS, Q, items)
    assert len(driver.machine.state.keys) == 100_000
    driver.wait(WINDOW_S)
    with counted() as work:
        driver.tick()
    assert len(driver.machine.state.keys) == 98_000
    assert work.lines < 40_000
    driver.tick(49)
    assert len(driver.machine.state.keys) == driver.machine.state.quotas.used(Kind.KEYS, b"") == 0


def test_keys_and_producers_end_without_being_used(driver: Driver) -> None:
    driver.push_item(Q, b"x", key=b"key")
    driver.produce(Q, b"producer", 1, b"z")
    driver.do(Op.ACK, Q, numbers(driver.pull(Q, 2)))
    machine = driver.machine
    assert (len(machine.state.keys), len(machine.state.producers)) == (1, 1)
    driver.wait(WINDOW_S)
    driver.tick(2)
    assert (len(machine.state.keys), len(machine.state.producers)) == (0, 0)
    assert machine.state.expiry.next_us == NEVER


def test_nothing_is_done_while_nothing_is_due(driver: Driver) -> None:
    driver.push(Q, *[b"x"] * 100)
    driver.pull(Q, 100)
    driver.push_item(Q, b"x", key=b"key")
    driver.wait(29)
    with counted() as work:
        driver.tick()
    assert work.lines < 30


def test_replicas_that_begin_with_a_snapshot_end_the_same_with_each_batch() -> None:
    """This holds also if more is due than one batch may expire, and old bounds exist beside new ones."""
    driver = Driver()
    for index in range(40):
        name = b"q%02d" % index
        driver.set(name, timeout=5 + index % 3)
        driver.push(name, *[b"x"] * 90)
        held = numbers(driver.pull(name, 90))
        driver.extend(name, *held[: index % 7])
        driver.ack(name, *held[index % 5 :: 3])
        driver.wait(0.1)
    driver.wait(20)
    replicas = [driver.machine]
    for step in range(12):
        replicas.append(copied(driver.machine))
        driver.sequence += 1
        for replica in replicas:
            replica.apply(driver.now_us, driver.origin, 1, driver.sequence, [[Op.PULL, b"q%02d" % step, 3]])
        assert all(records(replica) == records(driver.machine) for replica in replicas)
    assert sum(len(queue.store.leases) for queue in driver.machine.state.queues.values()) == 36


def test_a_snapshot_view_shows_the_state_at_its_opening(driver: Driver) -> None:
    driver.set(Q, retry=1)
    driver.push(Q, b"1", b"2", b"3")
    driver.pull(Q, 2)
    before = records(driver.machine)
    with driver.machine.freeze_view() as view:
        driver.wait(30)
        driver.tick()
        driver.pull(Q, 3)
        driver.wait(30)
        driver.tick()
        assert len(records(Machine.restore(compile_pattern, view.records()))) == len(before)
    assert driver.machine.state.queues[Q].counters.dropped_total == 2


def test_a_queue_with_a_retry_below_zero_delivers_once() -> None:
    """Protocols refuse it."""
    driver = Driver()
    driver.set(Q, retry=-7)
    driver.push(Q, b"kept")
    assert bodies(driver.pull(Q)) == [b"kept"]
