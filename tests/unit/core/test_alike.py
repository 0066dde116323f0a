"""A batch of similar bodies takes the fast path through the core, with the same result as the general path."""

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
    """Return the results of a machine for some batches of these rows, and its state afterwards."""
    driver = Driver()
    driver.do(Op.CREATE, Q, b"", options, True)
    answers = [driver.batch([Op.PUSH_ROWS, Q, rows, b"", None, 0, True])[0] for _ in range(batches)]
    # The queue is emptied in between, and filled again.
    driver.do(Op.POLL, Q, 10_000, 5 * SECOND, False, False)
    driver.wait(1)
    answers += [driver.batch([Op.PUSH_ROWS, Q, rows, b"", None, 0, True])[0] for _ in range(batches)]
    return answers, records(driver.machine)


@pytest.mark.parametrize(
    "traits",
    [PLAIN, [0, *PLAIN[1:]], [7 * SECOND, *PLAIN[1:]], [0, 0, 60 * SECOND, 0, b"", b""], [0, 0, 0, 3, b"l", b"g"]],
    ids=["plain", "at once", "hidden", "ending", "traits"],
)
@pytest.mark.parametrize("options", [[], [["max_items", 500]], [["max_items", 30]]], ids=["", "bounded", "full"])
def test_the_fast_path_has_the_same_result(traits: list[Any], options: list[Any]) -> None:
    first = [BODIES[0], None, b"", None, traits]
    # Rows that repeat the options explicitly do not take the fast path.
    alike = _left([first, *BODIES[1:]], 25, options)
    long = _left([[body, None, b"", None, traits] for body in BODIES], 25, options)
    assert alike == long


def test_an_emptied_queue_is_filled_in_order() -> None:
    driver = Driver()
    driver.do(Op.CREATE, Q, b"", [], True)
    many = [b"%d" % number for number in range(3_000)]
    driver.do(Op.PUSH_ROWS, Q, many, b"", None, 0, True)
    assert bodies(driver.do(Op.POLL, Q, 10_000, SECOND, False, False)) == many


@pytest.mark.parametrize("rows", [[[b"x", None, b"", 7, PLAIN], b"y"], [b"x", 7], [b"x", None], [[b"x"], b"y"]])
def test_malformed_rows_store_nothing(rows: list[Any]) -> None:
    driver = Driver()
    driver.do(Op.CREATE, Q, b"", [], True)
    assert isinstance(driver.batch([Op.PUSH_ROWS, Q, rows, b"", None, 0, True])[0], Fault)
    assert len(driver.machine.state.queues[Q]) == 0
