"""Single dead letters, named by their sequences."""

from __future__ import annotations

from typing import Any

import pytest

from lmqcluster.core import Fault, Op
from tests.property.driver import Driver

from .test_traits import DEAD, Q, push


@pytest.fixture
def driver() -> Driver:
    return Driver()


def letters(driver: Driver) -> None:
    """Put three dead letters and a pushed message into a queue."""
    driver.set(Q, retry=0, dead_letter_queue="dead")
    for body in (b"1", b"2", b"3"):
        push(driver, body, label=b"l" if body == b"2" else b"")
        driver.nack(Q, driver.pull_one(Q)[1])
    push(driver, b"by hand", queue=DEAD, label=b"l")


def moved(driver: Driver) -> list[int]:
    rich = driver.machine.state.queues[DEAD].store.rich
    assert rich is not None
    return [message.sequence for message in rich.moved(b"", 10)]


def test_single_dead_letters_are_redriven_by_sequence(driver: Driver) -> None:
    letters(driver)
    first, second, third = moved(driver)
    assert driver.do(Op.REDRIVE, DEAD, b"", b"l", 10, [first, third]) == 0
    assert driver.do(Op.REDRIVE, DEAD, b"", b"", 10, [third, third, 1 << 70, -1, 0]) == 1
    assert driver.do(Op.REDRIVE, DEAD, b"", b"", 10, []) == 0
    assert driver.drain(Q) == [b"3"]
    assert driver.do(Op.REDRIVE, DEAD, b"elsewhere", b"l", 10, [second]) == 1
    assert driver.drain(b"elsewhere") == [b"2"]
    assert moved(driver) == [first]
    # A list of sources ends the step at a message of another source.
    assert driver.do(Op.REDRIVE, DEAD, [b"another"], b"", 10, [first]) == 0
    assert driver.do(Op.REDRIVE, DEAD, [Q], b"", 10, [first]) == 1


def test_single_dead_letters_are_purged_by_sequence(driver: Driver) -> None:
    letters(driver)
    first, second, third = moved(driver)
    assert driver.do(Op.PURGE, DEAD, 10, b"", [second, second, 10**9]) == 1
    assert moved(driver) == [first, third]
    counters = driver.machine.state.queues[DEAD].counters
    assert (counters.purged_total, counters.withdrawn_total) == (1, 0)
    # A leased message stays.
    driver.pull_one(DEAD)
    assert driver.do(Op.PURGE, DEAD, 10, b"", [first]) == 0


@pytest.mark.parametrize("sequences", [[1, 2], ["1"], [True], [1.0], "ab", {1: 2}, 7])
def test_malformed_sequences_are_refused(driver: Driver, sequences: Any) -> None:
    letters(driver)
    before = moved(driver)
    for command in (
        [Op.REDRIVE, DEAD, b"", b"", 1, sequences],
        [Op.PURGE, DEAD, 1, b"", sequences],
        [Op.PURGE, DEAD, 1, b"", [1], True],
    ):
        assert isinstance(driver.batch(command)[0], Fault)
    assert moved(driver) == before
