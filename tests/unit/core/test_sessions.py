"""Deduplication: batches by (node, incarnation, sequence), pushes by producer and by idempotency key."""

from __future__ import annotations

import pytest

from lmqcluster.core import Applied, Machine, Op, PushFlag
from lmqcluster.core.dedup.node_sequences import NodeSequences
from lmqcluster.core.state.state import REMEMBER_US
from lmqcluster.wire import limits
from tests.property.driver import SECOND, Driver, compile_pattern, copied, records

Q = b"q"
NO, NEW, YES = 0, 1, 2
AGAIN = PushFlag.REPLAYED
PUSH = [Op.PUSH, Q, None, [b"x"], None, 0]


def _apply(machine: Machine, incarnation: int, sequence: int, origin: bytes = b"n") -> Applied:
    return machine.apply(0, origin, incarnation, sequence, [PUSH])


# Batches: design section 1.2, a request accepted by a live node is applied exactly once.


def test_a_batch_is_applied_once() -> None:
    machine = Machine(compile_pattern)
    assert _apply(machine, 1, 1)[:3] == ("applied", [[NO]], [machine.state.queues[Q]])
    assert _apply(machine, 1, 1)[:3] == ("duplicate", [], [])
    assert len(machine.state.queues[Q]) == 1


def test_a_batch_waits_for_its_predecessor() -> None:
    machine = Machine(compile_pattern)
    assert _apply(machine, 1, 2)[:3] == ("gap", [], [])
    assert [_apply(machine, 1, sequence).status for sequence in (1, 3, 2, 3, 1)] == [
        "applied",
        "gap",
        "applied",
        "applied",
        "duplicate",
    ]
    assert len(machine.state.queues[Q]) == 3


def test_a_gap_of_a_new_incarnation_does_not_end_the_old_one() -> None:
    """Only an applied batch counts: a refused one left no trace."""
    machine = Machine(compile_pattern)
    assert _apply(machine, 1, 1).status == "applied"
    assert _apply(machine, 2, 5).status == "gap"
    assert _apply(machine, 1, 2).status == "applied"


def test_a_restarted_node_begins_at_1_and_ends_its_earlier_incarnation() -> None:
    machine = Machine(compile_pattern)
    _apply(machine, 1, 1)
    assert _apply(machine, 7, 1).status == "applied"
    assert _apply(machine, 1, 2).status == "duplicate"
    assert _apply(machine, 6, 1).status == "duplicate"
    assert _apply(machine, 7, 2).status == "applied"


def test_nodes_do_not_disturb_each_other() -> None:
    machine = Machine(compile_pattern)
    _apply(machine, 1, 1, b"a")
    assert _apply(machine, 1, 2, b"b").status == "gap"
    assert _apply(machine, 1, 1, b"b").status == "applied"


def test_the_last_sequence_of_a_node_is_known() -> None:
    """A node that caught up after a leader change learns from it which of its batches were applied."""
    sessions = NodeSequences()
    sessions.admit(b"n", 3, 1)
    sessions.admit(b"n", 3, 2)
    assert sessions.last_sequence(b"n", 3) == 2
    assert sessions.last_sequence(b"n", 2) == sessions.last_sequence(b"n", 4) == sessions.last_sequence(b"m", 3) == 0


def test_a_batch_with_faults_counts_as_applied() -> None:
    """Otherwise it would be resent forever; sound commands beside a faulty one take effect."""
    machine = Machine(compile_pattern)
    applied = machine.apply(0, b"n", 1, 1, [[99], PUSH, [], [Op.PULL]])
    assert applied.status == "applied"
    assert [type(result).__name__ for result in applied.results] == ["Fault", "list", "Fault", "Fault"]
    assert machine.apply(0, b"n", 1, 1, [PUSH]).status == "duplicate"
    assert len(machine.state.queues[Q]) == 1


def test_log_time_passes_with_every_batch() -> None:
    """This holds also for a batch that is not applied: all replicas see the same stamps."""
    machine = Machine(compile_pattern)
    machine.apply(5, b"n", 1, 9, [])
    assert machine.state.now_us == 5
    machine.apply(3, b"n", 1, 1, [])
    assert machine.state.now_us == 5


# Producers: each (producer, sequence) is stored at most once, whichever node it reaches.


def test_a_producer_resends_and_each_push_is_stored_once() -> None:
    driver = Driver()
    assert driver.produce(Q, b"p", 1, b"1", b"2") == [NO, NO]
    assert driver.produce(Q, b"p", 1, b"1", b"2", b"3") == [NO, NO, NO]
    assert driver.produce(Q, b"p", 2, b"2") == [NO]
    assert driver.drain(Q) == [b"1", b"2", b"3"]


def test_sequences_may_skip_but_not_go_back() -> None:
    """A push that was refused is retried under a new sequence."""
    driver = Driver()
    driver.produce(Q, b"p", 5, b"5")
    driver.produce(Q, b"p", 4, b"4")
    driver.produce(Q, b"p", 9, b"9")
    assert driver.drain(Q) == [b"5", b"9"]


def test_a_producer_counts_over_all_queues() -> None:
    """A connection numbers its pushes over all queues."""
    driver = Driver()
    driver.produce(b"a", b"p", 1, b"1")
    driver.produce(b"b", b"p", 2, b"2")
    driver.produce(b"b", b"p", 1, b"1")
    assert driver.drain(b"b") == [b"2"]


def test_producers_do_not_disturb_each_other() -> None:
    driver = Driver()
    driver.produce(Q, b"p1", 1, b"1")
    driver.produce(Q, b"p2", 1, b"2")
    driver.push(Q, b"3")
    assert driver.drain(Q) == [b"1", b"2", b"3"]


def test_pushes_stored_before_are_answered_no_beside_the_flags_of_the_new_ones() -> None:
    """A sequence not above the last stored one is answered ok without being stored again."""
    driver = Driver()
    driver.set(Q, accum=1000)
    assert driver.produce(Q, b"p", 1, b"1", b"2") == [NEW, YES]
    assert driver.produce(Q, b"p", 1, b"1", b"2", b"3") == [NO, NO, YES]


def test_a_producer_is_remembered_while_it_is_used() -> None:
    """The window starts again with each push, also with one that was stored before."""
    driver = Driver()
    for _ in range(5):
        driver.produce(Q, b"p", 1, b"x")
        driver.wait(REMEMBER_US / SECOND - 1)
    assert driver.drain(Q) == [b"x"]


def test_a_refused_push_does_not_count_for_its_producer() -> None:
    driver = Driver()
    driver.batch([Op.PUSH, Q, None, [b"x", 7], b"p", 1], [Op.PUSH, b"", None, [b"x"], b"p", 1])
    driver.produce(Q, b"p", 1, b"1")
    assert driver.drain(Q) == [b"1"]


# Idempotency keys: design section 2.3, a retry of a push is safe for at least 5 minutes.


def test_the_core_remembers_as_long_as_the_limits_say() -> None:
    assert limits.IDEMPOTENCY_WINDOW_S * SECOND == REMEMBER_US
    assert limits.IDEMPOTENCY_WINDOW_S >= 300


def test_a_keyed_push_is_stored_once() -> None:
    driver = Driver()
    assert [driver.push_item(Q, b"x", key=b"k") for _ in range(3)] == [NO, AGAIN, AGAIN]
    assert driver.drain(Q) == [b"x"]


def test_a_repeated_key_gets_the_first_flag() -> None:
    """The current flag does not matter."""
    driver = Driver()
    driver.set(Q, accum=1000)
    assert driver.push_item(Q, b"1", key=b"a") == NEW
    assert driver.push_item(Q, b"2", key=b"b") == YES
    driver.set(Q, accum=0)
    assert [driver.push_item(Q, body, key=key) for body, key in ((b"1", b"a"), (b"2", b"b"))] == [
        NEW | AGAIN,
        YES | AGAIN,
    ]
    assert driver.size(Q) == 1


def test_a_key_repeated_within_one_command_is_stored_once() -> None:
    driver = Driver()
    row = [b"x", None, b"", b"k", []]
    assert driver.do(Op.PUSH_ROWS, Q, [row, row]) == [(NO, 1), (AGAIN, 1)]
    assert driver.drain(Q) == [b"x"]


def test_keys_belong_to_a_queue() -> None:
    driver = Driver()
    driver.push_item(b"a", b"1", key=b"k")
    driver.push_item(b"b", b"2", key=b"k")
    assert driver.drain(b"b") == [b"2"]


def test_an_empty_key_is_a_key() -> None:
    driver = Driver()
    for _ in range(2):
        driver.push_item(Q, b"x", key=b"")
    assert driver.drain(Q) == [b"x"]


@pytest.mark.parametrize(("waited_s", "stored"), [(REMEMBER_US / SECOND - 0.000001, 1), (REMEMBER_US / SECOND, 2)])
def test_a_key_is_remembered_for_its_window_from_the_first_push(waited_s: float, stored: int) -> None:
    driver = Driver()
    driver.push_item(Q, b"x", key=b"k")
    driver.wait(1)
    driver.push_item(Q, b"x", key=b"k")
    driver.wait(waited_s - 1)
    driver.push_item(Q, b"x", key=b"k")
    assert driver.size(Q) == stored


def test_a_key_outlives_its_message_and_its_queue() -> None:
    """A late retry of a push that was stored, consumed and even deleted stores nothing."""
    driver = Driver()
    driver.push_item(Q, b"x", key=b"k")
    driver.ack(Q, driver.pull_one(Q)[1])
    driver.push_item(Q, b"x", key=b"k")
    assert driver.size(Q) == 0
    driver.delete(Q)
    driver.push_item(Q, b"x", key=b"k")
    assert driver.size(Q) == 0


def test_push_each_takes_no_key() -> None:
    """A key names one push to one queue."""
    driver = Driver()
    driver.push(Q)
    for _ in range(2):
        driver.do(Op.PUSH_EACH, [Q], [b"x", None, b"", b"k"])
    assert driver.size(Q) == 2
    assert len(driver.machine.state.keys) == 0


def test_everything_is_remembered_across_a_snapshot() -> None:
    """Exactly-once must survive a restart of the replica."""
    driver = Driver()
    driver.produce(Q, b"p", 3, b"1")
    driver.push_item(Q, b"2", key=b"k")
    restored = Driver(copied(driver.machine))
    assert restored.machine.apply(0, b"node-1", 1, 2, [PUSH]).status == "duplicate"
    restored.produce(Q, b"p", 3, b"1")
    restored.push_item(Q, b"2", key=b"k")
    assert restored.drain(Q) == [b"1", b"2"]
    assert len(restored.machine.state.producers) == len(restored.machine.state.keys) == 1
    assert records(copied(restored.machine)) == records(restored.machine)
