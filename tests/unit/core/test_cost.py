"""Design law 1: O(1) or O(log n) per operation. Work is counted, not timed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lmqcluster.core import Op
from lmqcluster.core.queue.queue import PASSES_MAX, REPEATS_MAX
from lmqcluster.core.state.default_rules import SPREAD_STEPS
from lmqcluster.wire import limits
from tests.property.driver import Driver, bodies, counters, numbers
from tests.property.work import Work, counted

Q = b"q"
FEW, MANY = 500, 50_000
SETTLED = 100


def _leased(count: int) -> tuple[Driver, list[int]]:
    driver = Driver()
    for start in range(0, count, 1000):
        driver.push(Q, *[b"x"] * min(1000, count - start))
    return driver, [number for _ in range(0, count, 1000) for number in numbers(driver.pull(Q, 1000))]


Settle = Callable[..., list[bool] | None]


def _work_per_settlement(count: int, settle: Settle, order: Callable[[list[int]], list[int]]) -> Work:
    driver, taken = _leased(count)
    driver.wait(1)
    chosen = order(taken)[:SETTLED]
    with counted() as work:
        results = [settle(driver, Q, number) for number in chosen]
    assert results == [[True]] * SETTLED
    return work


ORDERS = {
    "oldest first": lambda taken: taken,
    "newest first": lambda taken: taken[::-1],
    "scattered": lambda taken: [taken[index * 7919 % len(taken)] for index in range(SETTLED)],
}


@pytest.mark.parametrize("settle", [Driver.ack, Driver.nack, Driver.extend, Driver.put_back])
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
def test_settling_costs_the_same_however_many_leases_there_are(
    settle: Settle, order: Callable[[list[int]], list[int]]
) -> None:
    """Spec 15.1: ack, nack, ext of the original cost time proportional to the messages in flight."""
    few, many = (_work_per_settlement(count, settle, order) for count in (FEW, MANY))
    assert many.lines <= few.lines * 1.1 + SETTLED
    assert sum(many.linear_calls.values()) <= sum(few.linear_calls.values())


def test_acking_50_000_leases_in_pull_order_does_the_same_work_for_each() -> None:
    """Spec 15.1: first, middle and last ack alike; the deque of deliveries is never searched."""
    driver, taken = _leased(MANY)
    lines = []
    for index, number in enumerate(taken):
        if index % 10_000 == 0 or index == MANY - 1:
            with counted() as work:
                driver.do(Op.ACK, Q, [number])
            lines.append(work.lines)
        else:
            driver.do(Op.ACK, Q, [number])
    assert driver.size(Q) == 0
    assert max(lines) - min(lines) <= 5


def _redelivery_work(count: int) -> float:
    driver, _ = _leased(count)
    driver.wait(30)
    with counted() as work:
        again = [number for _ in range(0, count, 1000) for number in numbers(driver.pull(Q, 1000))]
    assert len(again) == count
    return work.lines / count


def test_expired_leases_return_at_constant_work_each() -> None:
    """Spec 2.2: timed-out messages need no background job, and no search either."""
    assert _redelivery_work(40_000) <= _redelivery_work(10_000) * 1.1


def test_leases_with_growing_and_falling_deadlines_are_kept_in_order_cheaply() -> None:
    """Deadlines out of order cost O(log n), not a search."""
    driver = Driver()
    timeouts = [(index * 7919) % 1000 + 1 for index in range(2000)]
    driver.push(Q, *[b"%d" % timeout for timeout in timeouts])
    with counted() as work:
        for timeout in timeouts:
            driver.set(Q, timeout=timeout)
            driver.pull(Q)
    assert work.lines <= 300 * len(timeouts)
    driver.wait(2000)
    with counted() as work:
        order = [int(body) for _ in range(20) for body in bodies(driver.pull(Q, 100))]
    assert order == sorted(order)
    assert work.lines <= 150 * len(timeouts)


LEASES_ENDED_MAX = 1_000
"""Leases that end by themselves with one batch."""


def _exhausted(driver: Driver, queue: bytes, count: int) -> None:
    driver.set(queue, retry=0, timeout=1)
    for start in range(0, count, 1000):
        driver.push(queue, *[b""] * min(1000, count - start))
        driver.wait(0.001)
    assert len(driver.pull(queue, count)) == count


def test_skipping_very_many_exhausted_messages_is_spread_over_several_pulls() -> None:
    """Spec 2.2: passing over very many exhausted messages must not block the queue."""
    driver = Driver()
    _exhausted(driver, Q, 100_000)
    driver.wait(1)
    driver.push(Q, b"x")
    queue = driver.machine.state.queues[Q]
    dropped = queue.counters.dropped_total
    while (delivered := driver.pull(Q)) is None:
        before, dropped = dropped, queue.counters.dropped_total
        assert PASSES_MAX <= dropped - before <= PASSES_MAX + LEASES_ENDED_MAX
        head_us = queue.head_us()
        assert head_us is not None
        assert head_us <= driver.now_us, "the puller is to try again at once"
    assert bodies(delivered) == [b"x"]
    assert queue.counters.dropped_total == 100_000


def test_pull_first_passes_over_no_more_than_a_pull() -> None:
    """Spec 2.2, also if the exhausted messages have many due times, or are in many queues."""
    driver = Driver()
    _exhausted(driver, b"deep", 30_000)
    for index in range(300):
        _exhausted(driver, b"flat-%d" % index, 100)
    driver.wait(1)
    driver.push(b"last", b"x")
    dropped = 0
    for _ in range(20):
        delivered = driver.pull_first(b"")
        before, dropped = dropped, counters(driver.machine)["dropped_total"]
        assert dropped - before <= 2 * PASSES_MAX
        if delivered:
            break
    assert bodies(delivered) == [b"x"]
    assert dropped == 60_000


def test_deliveries_that_expire_at_once_are_bounded_per_command() -> None:
    """Spec 2.5 and design law 7: without a timeout one command could otherwise deliver one message forever."""
    driver = Driver()
    driver.set(Q, timeout=0, retry=1 << 60)
    driver.push(Q, b"x")
    assert len(driver.pull(Q, 1 << 40)) == len(driver.pull_first(b"", 1 << 40)) == REPEATS_MAX


def test_a_pull_of_everything_takes_everything() -> None:
    """A node sums the counts of simultaneous pulls, so a command may request more than any client may."""
    driver = Driver()
    for _ in range(12):
        driver.push(Q, *[b""] * 1000)
    assert len(driver.pull(Q, 1 << 40)) == 12_000 > limits.PULL_COUNT_MAX


def test_changing_default_rules_visits_a_bounded_number_of_queues_with_each_batch() -> None:
    driver = Driver()
    for index in range(2000):
        driver.push(b"q%d" % index)
    with counted() as work:
        driver.defaults((b"q", {"retry": 0}))
    assert work.lines < 100 * SPREAD_STEPS
    with counted() as work:
        driver.tick()
    assert work.lines < 100 * SPREAD_STEPS


def test_deleting_a_full_queue_is_one_step() -> None:
    driver, _ = _leased(20_000)
    with counted() as work:
        driver.delete(Q)
    assert work.lines < 200


def _rich_row(number: int) -> list[object]:
    """Return a unique message: with a priority, a label, a group and an expiry."""
    traits = [-1, 0, 3600 * 1_000_000 + number, number % 7919 - 4000, b"l%d" % number, b"g%d" % (number % 1009)]
    return [b"x", None, b"", None, traits]


def _rich_work(count: int) -> Work:
    driver = Driver()
    driver.set(Q, max_items=10 * MANY, retry_delay=1)
    for start in range(0, count, 500):
        driver.do(Op.PUSH_ROWS, Q, [_rich_row(number) for number in range(start, start + 500)])
    with counted() as work:
        for number in range(SETTLED):
            driver.do(Op.PUSH_ROWS, Q, [_rich_row(count + number)])
            driver.do(Op.NACK, Q, numbers(driver.pull(Q)), 0, -1)
            driver.ack(Q, *numbers(driver.pull(Q)))
            driver.do(Op.PURGE, Q, 10, b"l%d" % (count // 2 + number))
    return work


def _fair_work(count: int) -> Work:
    driver = Driver()
    driver.set(Q, group_mode="fair", max_in_flight=10 * MANY, group_max_in_flight=MANY, rate=1_000_000, group_rate=1000)
    for start in range(0, count, 500):
        driver.do(Op.PUSH_ROWS, Q, [_rich_row(number) for number in range(start, start + 500)])
    with counted() as work:
        for number in range(SETTLED):
            driver.do(Op.PUSH_ROWS, Q, [_rich_row(count + number)])
            driver.do(Op.NACK, Q, numbers(driver.pull(Q)), 0, -1)
            driver.ack(Q, *numbers(driver.pull(Q)))
    return work


def test_fair_groups_cost_the_same_however_many_wait() -> None:
    few, many = _fair_work(FEW), _fair_work(20_000)
    assert many.lines <= few.lines * 1.2
    # Of two numbers each.
    del few.linear_calls["max"], many.linear_calls["max"]
    assert many.linear_calls == few.linear_calls


def test_messages_with_traits_cost_the_same_however_many_wait() -> None:
    few, many = _rich_work(FEW), _rich_work(20_000)
    assert many.lines <= few.lines * 1.2
    # Of two numbers each.
    del few.linear_calls["max"], many.linear_calls["max"]
    assert many.linear_calls == few.linear_calls
