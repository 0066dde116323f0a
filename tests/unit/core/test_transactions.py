"""Operations that a transaction refuses as a whole, although each could be applied alone."""

from __future__ import annotations

from typing import Any

from lmqcluster.core import Op
from lmqcluster.core.handlers.transactions import Conflict
from tests.property.driver import Driver

Q = b"q"


def _refused(driver: Driver, *operations: list[Any]) -> tuple[int, str]:
    result = driver.do(Op.TRANSACTION, list(operations))
    assert isinstance(result, Conflict), result
    return result.failed, result.code


def test_a_delivery_is_settled_once() -> None:
    driver = Driver()
    driver.push(Q, b"in")
    number = driver.pull_one(Q)[1]
    ack = [Op.ACK, Q, [number]]
    assert _refused(driver, ack, ack) == (1, "lease_lost")
    assert driver.ack(Q, number) == [True]


def test_a_key_names_one_body_within_a_transaction_too() -> None:
    driver = Driver()
    pushes = [[Op.PUSH_ROWS, Q, [[body, None, b"", b"k", []]]] for body in (b"first", b"second")]
    assert _refused(driver, *pushes) == (1, "key_reused")
    assert driver.size(Q) == 0
    (first, again) = driver.do(Op.TRANSACTION, [pushes[0], pushes[0]])
    assert first[1] == again[1]
    assert driver.drain(Q) == [b"first"]
