"""A label selects the messages that have exactly this label."""

from __future__ import annotations

import pytest

from lmqcluster.core import Fault, Op
from tests.property.driver import Driver

Q, DEAD = b"q", b"dead"
LABELS = [b"a", b"ab", b"ab\x00", b"abc", b"b"]
"""Labels that are prefixes of one another, and their neighbours in order."""


@pytest.fixture
def driver() -> Driver:
    """A machine with one message of each label, whose bodies are their labels."""
    driver = Driver()
    driver.set(Q, retry=0, dead_letter_queue="dead")
    for label in LABELS:
        driver.do(Op.PUSH_ROWS, Q, [[label, None, b"", None, [-1, 0, 0, 0, label, b""]]])
    return driver


@pytest.mark.parametrize("label", LABELS)
def test_only_messages_with_this_label_are_withdrawn(driver: Driver, label: bytes) -> None:
    assert driver.do(Op.PURGE, Q, 10, label) == 1
    assert driver.drain(Q) == [one for one in LABELS if one != label]


def test_messages_with_a_label_are_withdrawn_by_sequence(driver: Driver) -> None:
    for body in (b"1", b"2", b"3"):
        driver.do(Op.PUSH_ROWS, Q, [[body, None, b"", None, [-1, 0, 0, 0, b"x", b""]]])
    rich = driver.machine.state.queues[Q].store.rich
    assert rich is not None
    [first, second, third] = [one.sequence for one in rich.labelled(b"x", 10)]
    assert driver.do(Op.PURGE, Q, 10, b"x", [third, first, third, second + (1 << 70), -1]) == 2
    assert driver.do(Op.PURGE, Q, 10, b"a", [second]) == 0, "it has another label"
    assert driver.do(Op.PURGE, Q, 10, b"", [second]) == 0, "it is no dead letter"
    assert driver.drain(Q) == [*LABELS, b"2"]
    for label, wrong in ((b"x", [b""]), (b"x", [None]), (b"x", list(range(11)))):
        assert isinstance(driver.batch([Op.PURGE, Q, 10, label, wrong])[0], Fault)


@pytest.mark.parametrize("label", LABELS)
def test_only_messages_with_this_label_are_redriven(driver: Driver, label: bytes) -> None:
    driver.nack(Q, *[number for _, number, _, _ in driver.pull(Q, len(LABELS))])
    assert driver.size(DEAD) == len(LABELS)
    assert driver.do(Op.REDRIVE, DEAD, b"", label, 10) == 1
    assert driver.drain(Q) == [label]
    assert driver.drain(DEAD) == [one for one in LABELS if one != label]
