"""The table of counters matches the attributes of a queue."""

from __future__ import annotations

from lmqcluster.core import Machine, Op
from lmqcluster.core.queue.counters import COUNTERS, QueueCounters
from lmqcluster.node.queues.patterns.patterns import compile_pattern
from tests.property.driver import Driver, copied


def test_each_counter_is_an_attribute_and_each_attribute_a_counter() -> None:
    assert list(QueueCounters.__annotations__) == list(COUNTERS)


def test_a_new_queue_has_counted_nothing_but_its_push() -> None:
    machine = Machine(compile_pattern)
    machine.apply(1, b"n", 1, 1, [[Op.PUSH, b"q", None, [b"1"], None, 0]])
    queue = machine.state.queues[b"q"]
    assert {name: getattr(queue.counters, name) for name in COUNTERS} == {
        **dict.fromkeys(COUNTERS, 0),
        "pushed_total": 1,
    }


def test_a_restored_machine_has_counted_the_same_deleted_queues() -> None:
    driver = Driver()
    driver.push(b"deleted", b"x")
    driver.delete(b"deleted")
    driver.set(b"aged", max_queue_age=10)
    driver.wait(11)
    driver.push(b"left", b"x")
    for machine in (driver.machine, copied(driver.machine)):
        assert (machine.state.deleted_total, machine.state.aged_total) == (2, 1)
    assert not driver.delete(b"deleted")
    assert driver.machine.state.deleted_total == 2


def test_machines_that_have_counted_other_deleted_queues_differ() -> None:
    machine = Driver().machine
    other = copied(machine)
    other.state.deleted_total += 1
    digests = [Driver(one).do(Op.DIGEST, b"12345678") for one in (machine, other)]
    assert digests[0] != digests[1]
