"""An attack on batch leases of groups: very long groups, very many of them, and ordinary pulls in between."""

from __future__ import annotations

import sys

import pytest

from lmqcluster.core import Op
from lmqcluster.core.state.batch_leases import STEP_MAX
from tests.property.driver import SECOND, Driver
from tests.property.work import counted

Q, S = b"q", b"s"
FEW, MANY = 4_000, 20_000
BATCH = 1_000


def filled(count: int, groups: int) -> Driver:
    """Return a queue of `count` messages in `groups` groups."""
    driver = Driver()
    row = [-1, 0, 0, 0, b""]
    for start in range(0, count, 1_000):
        rows = [[b"x", None, b"", None, [*row, b"%d" % (n % groups)]] for n in range(start, start + 1_000)]
        driver.do(Op.PUSH_ROWS, Q, rows)
    return driver


def lines_per_message(driver: Driver, end: Op) -> float:
    """Return the lines of Python per message that a batch, its end, and concurrent pulls cost."""
    with counted() as work:
        for epoch in range(1, 3):
            found = driver.do(Op.RESERVE, S, epoch, Q, True, BATCH, 60 * SECOND)
            assert found.size == BATCH
            for _, number, _, _ in driver.pull(Q, 10):
                driver.ack(Q, number)
            if end == Op.SETTLE_BATCHES:
                driver.do(end, S, epoch)
            else:
                driver.do(end, S)
    return work.lines / 2 / BATCH


@pytest.mark.parametrize("end", [Op.SETTLE_BATCHES, Op.ABANDON_BATCHES])
@pytest.mark.parametrize("size", [1_000_000, 2])
def test_a_message_costs_the_same_however_long_its_group_is_and_however_many_there_are(size: int, end: Op) -> None:
    few, many = (lines_per_message(filled(count, max(1, count // size)), end) for count in (FEW, MANY))
    assert many <= few * 1.2


def test_one_command_takes_a_bounded_part_of_a_group() -> None:
    """A group of any length delays the log no more than other messages do."""
    driver = filled(25_000, 1)
    steps = [driver.do(Op.RESERVE, S, 1, Q, True, 100_000, SECOND)]
    while not steps[-1].sealed:
        steps.append(driver.do(Op.RESERVE, S, 1, Q, True, 100_000, SECOND))
    sizes = [found.size for found in steps]
    assert sizes == [STEP_MAX, 2 * STEP_MAX, 25_000]
    driver.wait(2)
    ended = []
    leases = driver.machine.state.queues[Q].store.leases
    while before := len(leases):
        driver.tick()
        ended.append(before - len(leases))
    assert sum(ended) == 25_000
    assert 0 < min(ended) <= max(ended) <= STEP_MAX


def main() -> None:
    """``python -m tests.unit.core.test_batch_group_cost [MESSAGES] [GROUPS]``: reserve everything in batches of
    100,000, with times.
    """
    import time

    count, groups = (int(text) for text in (*sys.argv[1:], "1000000", "1")[:2])
    driver = filled(count, groups)
    epoch, slowest, taken, began_s = 0, 0.0, 0, time.process_time()
    while driver.size(Q):
        epoch, sealed = epoch + 1, False
        while not sealed:
            step_s = time.process_time()
            found = driver.do(Op.RESERVE, S, epoch, Q, True, 100_000, 60 * SECOND)
            slowest, sealed = max(slowest, time.process_time() - step_s), found.sealed
        taken += found.size
        if not found.size:
            break
        driver.do(Op.SETTLE_BATCHES, S, epoch)
    spent_s = time.process_time() - began_s
    print(f"{taken} of {count} messages of {groups} groups in {epoch} batches, {spent_s / taken * 1e6:.1f} us each, "
          f"slowest reservation {slowest * 1000:.0f} ms")  # fmt: skip


if __name__ == "__main__":
    main()
