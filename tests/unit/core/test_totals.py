"""Sums over all queues and the order of their names: exact, and kept without visiting the queues."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lmqcluster.core import Machine, Op
from lmqcluster.core.messages.message import content_bytes, content_count
from lmqcluster.core.messages.totals import property_bytes
from lmqcluster.core.state.sorted_names import SortedNames
from tests.property.driver import Driver, copied, numbers

A, B = b"a", b"b"


def _counted(machine: Machine) -> tuple[int, int, int]:
    """Return the numbers of messages, bytes of bodies and of properties, by visiting everything."""
    contents = [
        message.content
        for queue in machine.state.queues.values()
        for message in [
            *queue.store.ready,
            *(one for _, _, one in queue.store.delayed),
            *queue.store.leases.messages.values(),
        ]
    ]
    own = sum(property_bytes(queue.own) for queue in machine.state.queues.values())
    return sum(map(content_count, contents)), sum(map(content_bytes, contents)), own


def _kept(machine: Machine) -> tuple[int, int, int]:
    totals = machine.state.totals
    return totals.messages, totals.body_bytes, totals.property_bytes


def test_sums_follow_everything_that_happens_to_messages() -> None:
    driver = Driver()
    steps = [
        lambda: driver.push(A, b"12", b"345"),
        lambda: driver.set(B, accum=5_000, retry=0, hooks=[["pre_http_push", [["mod", ["x-one", "x-two"]]]]]),
        lambda: [driver.push(B, b"%d" % number) for number in range(5)],
        lambda: driver.nack(A, *numbers(driver.pull(A))),
        lambda: driver.ack(A, *numbers(driver.pull(A))),
        lambda: driver.wait(6),
        lambda: driver.pull(B),
        lambda: driver.push(B, b"in a window"),
        lambda: driver.wait(60),
        lambda: driver.pull(B, 9),
        lambda: driver.ack(B, *numbers(driver.pull(B))),
        lambda: driver.push(A, *[b"many"] * 30),
        lambda: driver.do(Op.MOVE, A, b"c", 7),
        lambda: driver.do(Op.PURGE, A, 5),
        lambda: driver.clear(B),
        lambda: driver.set(A, retry=-1),
        lambda: driver.push(A, b"never delivered"),
        lambda: driver.pull(A, 100),
        lambda: driver.wait(31),
        lambda: driver.pull(A, 100),
        lambda: driver.delete(A),
    ]
    for step in steps:
        step()
        assert _kept(driver.machine) == _counted(driver.machine)
        assert _kept(copied(driver.machine)) == _kept(driver.machine)
    for name in list(driver.machine.state.queues):
        driver.delete(name)
    assert _kept(driver.machine) == (0, 0, 0)


@given(st.lists(st.integers(0, 3000), max_size=200), st.integers(0, 3000))
def test_names_stay_sorted_under_all_changes(changes: list[int], bulk: int) -> None:
    names, expected = SortedNames(), set()
    for number in range(bulk):
        name = b"%d" % (number * 7919 % 3001)
        if name not in expected:
            names.add(name)
            expected.add(name)
    for number in changes:
        name = b"%d" % number
        if name in expected:
            names.remove(name)
            expected.remove(name)
        else:
            names.add(name)
            expected.add(name)
    assert list(names) == sorted(expected)
    frozen = names.frozen()
    names.add(b"later")
    assert [name for block in frozen for name in block] == sorted(expected)
    assert all(0 < len(block) <= 1024 for block in frozen)
