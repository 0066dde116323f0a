"""A batch of bodies that are pushed alike takes a shorter way through the core, and leaves what the long way leaves."""

from __future__ import annotations

from typing import Any

import pytest

from lmqcluster.core import Fault, Op
from tests.property.driver import Driver, bodies, records

Q = b"q"
BODIES = [b"%d" % number for number in range(50)]
PLAIN = [-1, 0, 0, 0, b"", b""]
SECOND = 1_000_000


def _left(rows: list[Any], batches: int, options: list[Any]) -> tuple[list[Any], list[Any]]:
    """What a machine says to some batches of these rows, and its state afterwards."""
    driver = Driver(version=3)
    driver.do(Op.CREATE_INDEXED, Q, options)
    answers = [driver.batch([Op.PUSH_EXISTING, Q, rows])[0] for _ in range(batches)]
    # The line is emptied in between, and filled again.
    driver.do(Op.POLL, Q, 10_000, 5 * SECOND, False, False)
    driver.wait(1)
    answers += [driver.batch([Op.PUSH_EXISTING, Q, rows])[0] for _ in range(batches)]
    return answers, records(driver.machine)


@pytest.mark.parametrize(
    "traits",
    [PLAIN, [0, *PLAIN[1:]], [7 * SECOND, *PLAIN[1:]], [0, 0, 60 * SECOND, 0, b"", b""], [0, 0, 0, 3, b"l", b"g"]],
    ids=["plain", "at once", "hidden", "ending", "traits"],
)
@pytest.mark.parametrize("options", [[], [["max_items", 500]], [["max_items", 30]]], ids=["", "bounded", "full"])
def test_alike_or_not_is_all_the_same(traits: list[Any], options: list[Any]) -> None:
    first = [BODIES[0], None, [], None, traits]
    # Rows that say the same at length are not looked at together.
    alike = _left([first, *BODIES[1:]], 25, options)
    long = _left([[body, None, [], None, traits] for body in BODIES], 25, options)
    assert alike == long


def test_a_line_that_was_empty_is_filled_in_order() -> None:
    driver = Driver(version=3)
    driver.do(Op.CREATE_INDEXED, Q, [])
    many = [b"%d" % number for number in range(3_000)]
    driver.do(Op.PUSH_EXISTING, Q, many)
    assert bodies(driver.do(Op.POLL, Q, 10_000, SECOND, False, False)) == many


@pytest.mark.parametrize("rows", [[[b"x", None, [], 7, PLAIN], b"y"], [b"x", 7], [b"x", None], [[b"x"], b"y"]])
def test_malformed_rows_store_nothing(rows: list[Any]) -> None:
    driver = Driver(version=3)
    driver.do(Op.CREATE_INDEXED, Q, [])
    assert isinstance(driver.batch([Op.PUSH_EXISTING, Q, rows])[0], Fault)
    assert len(driver.machine.queues[Q]) == 0
