"""The table of counters and the attributes of a queue are the same."""

from __future__ import annotations

from lmqcluster.core import Machine, Op
from lmqcluster.core.queue_counters import COUNTERS, QueueCounters
from lmqcluster.node.queues.patterns import compile_pattern


def test_each_counter_is_an_attribute_and_each_attribute_a_counter() -> None:
    assert list(QueueCounters.__annotations__) == list(COUNTERS)


def test_a_new_queue_has_counted_nothing_but_its_push() -> None:
    machine = Machine(compile_pattern)
    machine.apply(1, b"n", 1, 1, [[Op.PUSH, b"q", None, [b"1"], None, 0]])
    queue = machine.queues[b"q"]
    assert {name: getattr(queue, name) for name in COUNTERS} == {**dict.fromkeys(COUNTERS, 0), "pushed_total": 1}
