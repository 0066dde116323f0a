"""A label selects the messages that have exactly this label."""

from __future__ import annotations

import pytest

from lmqcluster.core import Op
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


@pytest.mark.parametrize("label", LABELS)
def test_only_messages_with_this_label_are_redriven(driver: Driver, label: bytes) -> None:
    driver.nack(Q, *[number for _, number, _, _ in driver.pull(Q, len(LABELS))])
    assert driver.size(DEAD) == len(LABELS)
    assert driver.do(Op.REDRIVE, DEAD, b"", label, 10) == 1
    assert driver.drain(Q) == [label]
    assert driver.drain(DEAD) == [one for one in LABELS if one != label]
