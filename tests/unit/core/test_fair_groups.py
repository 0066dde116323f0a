"""Fair groups, limits of deliveries, and several messages of an ordered group in one pull."""

from __future__ import annotations

from typing import Any

import pytest

from lmqcluster.core import Op
from lmqcluster.core.queue.fair_groups import GROUP_BYTES
from lmqcluster.core.queue.rates import Rate
from tests.property.driver import SECOND, Driver, bodies, copied, numbers, records

Q = b"q"


@pytest.fixture
def driver() -> Driver:
    return Driver()


def push(driver: Driver, *groups: bytes, delay_us: int = -1) -> None:
    """Push a message to each of these groups, with the name of its group as body."""
    rows = [[group, None, b"", None, [delay_us, 0, 0, 0, b"", group]] for group in groups]
    driver.do(Op.PUSH_ROWS, Q, rows)


# --- limits -----------------------------------------------------------------------------------------------------------


def test_a_free_slot_is_reported(driver: Driver) -> None:
    driver.set(Q, max_in_flight=1)
    driver.push(Q, b"1", b"2")
    held = driver.pull(Q, 10)
    assert bodies(held) == [b"1"]
    queue = driver.machine.state.queues[Q]
    assert queue.head_us() == driver.now_us + 30 * SECOND, "the end of the lease"
    assert driver.pull(Q, 10) == []
    driver.ack(Q, *numbers(held))
    assert driver.ready == [Q]
    assert queue.head_us() is not None
    assert bodies(driver.pull(Q, 10)) == [b"2"]


def test_a_lease_that_ends_frees_its_slot(driver: Driver) -> None:
    driver.set(Q, max_in_flight=1, timeout=1)
    driver.push(Q, b"1", b"2")
    driver.pull(Q)
    driver.wait(1)
    assert bodies(driver.pull(Q, 10)) == [b"2"]


def test_a_lower_limit_holds_for_messages_that_wait(driver: Driver) -> None:
    driver.push(Q, *[b"x"] * 9)
    held = driver.pull(Q, 4)
    driver.set(Q, max_in_flight=2)
    assert driver.pull(Q, 9) == []
    driver.ack(Q, *numbers(held[:3]))
    assert len(driver.pull(Q, 9)) == 1


def test_a_token_is_reported_at_its_time(driver: Driver) -> None:
    driver.set(Q, rate=4, rate_burst=2)
    driver.push(Q, *[b"x"] * 9)
    assert len(driver.pull(Q, 9)) == 2
    queue = driver.machine.state.queues[Q]
    assert queue.head_us() == driver.now_us + SECOND // 4
    driver.now_us += SECOND // 4 - 1
    assert driver.pull(Q, 9) == []
    driver.now_us += 1
    assert len(driver.pull(Q, 9)) == 1


@pytest.mark.parametrize(
    ("before", "after"), [({"max_in_flight": 1}, {"max_in_flight": 2}), ({"rate": 0.001}, {"rate": 5})]
)
def test_waiting_pulls_learn_of_a_higher_limit(driver: Driver, before: Any, after: Any) -> None:
    driver.set(Q, **before)
    driver.push(Q, b"1", b"2")
    assert bodies(driver.pull(Q, 9)) == [b"1"]
    driver.tick()
    driver.set(Q, **after)
    assert driver.ready == [Q]
    driver.wait(1)
    head_us = driver.machine.state.queues[Q].head_us()
    assert head_us is not None
    assert head_us <= driver.now_us


@pytest.mark.parametrize("rate", [None, 1000])
def test_resting_groups_learn_of_a_higher_rate(driver: Driver, rate: int | None) -> None:
    driver.set(Q, group_mode="fair", group_rate=0.001)
    push(driver, b"a", b"a", b"b", b"b")
    assert len(driver.pull(Q, 9)) == 2
    driver.set(Q, group_rate=rate, group_rate_burst=None if rate is None else 2)
    driver.machine = copied(driver.machine)
    driver.wait(0.01)
    driver.tick()
    assert driver.ready == [Q]
    assert len(driver.pull(Q, 9)) == 2
    assert records(driver.machine) == records(copied(driver.machine))


def test_a_snapshot_keeps_the_bucket_of_an_inherited_rate(driver: Driver) -> None:
    """The parent comes after the child in a snapshot, so the child has no rate at first."""
    driver.do(Op.BIND, b"z", Q)
    driver.set(b"z", rate=0.001, group_rate=0.001, group_mode="fair")
    push(driver, b"a", b"a")
    assert len(driver.pull(Q, 9)) == 1
    driver.machine = copied(driver.machine)
    assert records(driver.machine) == records(copied(driver.machine))
    assert driver.pull(Q, 9) == []
    driver.set(b"z", rate=None)
    assert driver.pull(Q, 9) == [], "the group has no token"


def test_settled_pulls_and_batches_count(driver: Driver) -> None:
    driver.set(Q, rate=1, rate_burst=3)
    driver.push(Q, *[b"x"] * 9)
    assert len(driver.do(Op.PULL, Q, 2, 0, True)) == 2
    taken = driver.do(Op.RESERVE, b"s", 1, Q, True, 5, 60 * SECOND)
    assert taken is not None
    assert driver.machine.state.queues[Q].store.leases.messages.__len__() == 1


@pytest.mark.parametrize(("rate", "seconds"), [(Rate(333_333_333, 5), 100), (Rate(10_000_000, 100), 10)])
def test_a_bucket_never_gives_more_than_its_rate(rate: Rate, seconds: int) -> None:
    full_ns = taken = 0
    for now_us in range(0, seconds * SECOND, 7_001):
        count = rate.available(full_ns, now_us)
        taken, full_ns = taken + count, rate.after(full_ns, now_us, count) if count else full_ns
        assert rate.next_us(full_ns) > now_us
        assert rate.available(full_ns, rate.next_us(full_ns)) >= 1
        assert rate.available(full_ns, rate.next_us(full_ns) - 1) == 0
    assert seconds * 1e9 / rate.interval_ns - 1 <= taken <= seconds * 1e9 / rate.interval_ns + rate.burst


# --- fair groups ------------------------------------------------------------------------------------------------------


def test_a_quiet_tenant_is_next(driver: Driver) -> None:
    driver.set(Q, group_mode="fair")
    push(driver, *[b"busy"] * 100)
    driver.pull(Q, 10)
    push(driver, b"quiet")
    assert bodies(driver.pull(Q, 2)) == [b"quiet", b"busy"]


def test_new_names_do_not_come_before_those_that_wait(driver: Driver) -> None:
    """A tenant that uses a fresh group for each message must not starve the others."""
    driver.set(Q, group_mode="fair")
    push(driver, b"patient")
    for number in range(3):
        push(driver, b"fresh %d" % number)
    assert bodies(driver.do(Op.PULL, Q, 1, 0, True)) == [b"patient"]


def test_a_mode_holds_for_messages_that_enter_after_it(driver: Driver) -> None:
    push(driver, b"g", b"g")
    driver.set(Q, group_mode="fair")
    push(driver, b"g", b"g")
    assert len(driver.pull(Q, 9)) == 3, "the first in order, and those that came after the change"
    driver.machine = copied(driver.machine)
    assert records(driver.machine) == records(copied(driver.machine))


def test_a_mode_can_be_taken_back(driver: Driver) -> None:
    driver.set(Q, group_mode="fair")
    push(driver, b"g", b"g", b"g")
    held = driver.pull(Q, 2)
    driver.set(Q, group_mode="ordered")
    driver.do(Op.NACK, Q, numbers(held))
    assert len(driver.pull(Q, 9)) == 2, "one that was in line as fair, and the first of the ordered ones"
    assert records(driver.machine) == records(copied(driver.machine))


def test_a_purge_takes_messages_that_limits_hold_back(driver: Driver) -> None:
    driver.set(Q, group_mode="fair", group_max_in_flight=1, group_rate=0.001)
    push(driver, b"a", b"a", b"b", b"c")
    driver.pull(Q, 1)
    assert driver.do(Op.PURGE, Q, 0) == 3
    assert driver.machine.state.queues[Q].store.waiting() == 0
    assert records(driver.machine) == records(copied(driver.machine))


def test_names_of_groups_without_messages_are_counted_and_forgotten(driver: Driver) -> None:
    """A client that pushes and pulls ever new groups fills memory only as long as their buckets fill."""
    driver.set(Q, group_mode="fair", group_rate=1, group_rate_burst=1)
    for start in range(0, 3_000, 500):
        push(driver, *[b"%d" % number for number in range(start, start + 500)])
        driver.ack(Q, *numbers(driver.pull(Q, 500)))
    totals = driver.machine.state.totals
    assert totals.trait_bytes == 3_000 * GROUP_BYTES
    driver.wait(2)
    driver.tick(4)
    fair: Any = driver.machine.state.queues[Q].store.enriched().fair
    assert (totals.trait_bytes, len(fair.groups)) == (0, 0)
    driver.do(Op.DELETE, Q)
    assert totals.trait_bytes == 0


def test_a_deleted_queue_frees_its_groups(driver: Driver) -> None:
    driver.set(Q, group_mode="fair", group_rate=0.001)
    push(driver, b"a", b"a", b"b")
    driver.pull(Q, 2)
    driver.do(Op.DELETE, Q)
    assert driver.machine.state.totals.trait_bytes == 0
