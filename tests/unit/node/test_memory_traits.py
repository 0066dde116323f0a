"""The size of messages with traits and of bindings for the memory bound."""

from __future__ import annotations

import tracemalloc

from lmqcluster.core import Op
from lmqcluster.node.process.memory import stored_bytes
from tests.property.driver import Driver, copied


def _row(index: int) -> list[object]:
    label, group = b"label %d " % index + b"x" * 200, b"group %d " % index + b"x" * 200
    return [b"", None, b"", None, [-1, 0, 3_600_000_000, index % 5, label, group]]


def test_messages_count_with_their_real_size() -> None:
    """An attack: empty bodies with long labels and groups, all different."""
    driver = Driver()
    driver.push(b"q", b"")
    before = stored_bytes(driver.machine)
    tracemalloc.start()
    for start in range(0, 5_000, 500):
        driver.do(Op.PUSH_ROWS, b"q", [_row(start + index) for index in range(500)])
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    counted = stored_bytes(driver.machine) - before
    assert taken <= 1.5 * counted, (taken, counted)
    assert stored_bytes(copied(driver.machine)) == stored_bytes(driver.machine)
    driver.delete(b"q")
    assert stored_bytes(driver.machine) < before


def test_bindings_count() -> None:
    driver = Driver()
    for index in range(10):
        driver.do(Op.BIND, b"q", b"copy %d" % index)
    before = stored_bytes(driver.machine)
    driver.do(Op.BIND, b"q", b"copy 0", False)
    assert stored_bytes(driver.machine) < before
    assert stored_bytes(copied(driver.machine)) == stored_bytes(driver.machine)
