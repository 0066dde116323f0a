"""Snapshots: the whole state as plain records, and back. Damage is reported, never taken for an empty state (law 6)."""

from __future__ import annotations

from typing import Any

import pytest

from lmqcluster.core import Machine, Op, State
from tests.property.driver import Driver, bodies, compile_pattern, copied, counters, numbers, records

Q = b"q"


@pytest.fixture
def driver() -> Driver:
    """A machine with all kinds of state."""
    driver = Driver()
    driver.do(Op.SET_SALT, b"0123456789")
    driver.defaults((b"z", {"retry": 9, "timeout": 0.5}), (b"", {}))
    driver.set(Q, hooks=[["pre_http_push", [["m", ["x-a"]]]]])
    driver.push_item(Q, b"1", b"text/plain", [(b"x-a", b"v")], b"key")
    driver.produce(Q, b"producer", 1, b"2", b"3", b"4", b"5")
    first, second, third = numbers(driver.pull(Q, 3))
    driver.wait(5)
    driver.extend(Q, first)
    driver.nack(Q, second)
    driver.put_back(Q, third)
    driver.set(Q, accum=1000)
    driver.push_item(Q, b"6", headers=[(b"x-a", b"w")])
    driver.push(b"gone", b"x")
    driver.delete(b"gone")
    driver.push(b"empty")
    return driver


def test_a_restored_machine_gives_the_same_snapshot(driver: Driver) -> None:
    assert records(copied(driver.machine)) == records(driver.machine)


def test_a_restored_machine_gives_the_same_answers(driver: Driver) -> None:
    answers = []
    for machine in (copied(driver.machine), driver.machine):
        twin = Driver(machine)
        twin.now_us, twin.sequence = driver.now_us, driver.sequence
        twin.wait(1)
        answer: list[Any] = [bodies(twin.pull(Q, 2)), twin.push(Q, b"7"), twin.push_item(Q, b"1", key=b"key")]
        twin.wait(60)
        answer += [
            [(bodies([one]), one[1:3]) for one in twin.pull_first(b"", 20)],
            counters(machine),
            machine.state.salt,
        ]
        answer += [
            twin.push(b"z", b"x"),
            twin.pull_one(b"z")[1:3],
            machine.state.properties(b"z"),
            machine.state.properties(Q),
        ]
        answer += [(queue.store.body_bytes, queue.head_us()) for _, queue in sorted(machine.state.queues.items())]
        answers.append(answer)
    assert answers[0] == answers[1]


def test_records_are_plain_and_of_bounded_size(driver: Driver) -> None:
    """So that a snapshot can be written and read as a stream, whatever the size of a queue."""
    driver.set(Q, accum=0)
    for _ in range(3):
        driver.push(Q, *[b"x"] * 600)
    driver.pull(Q, 700)
    written = list(driver.machine.snapshot())
    for record in written:
        _assert_plain(record)
        assert all(len(part) <= 500 for part in record if isinstance(part, list))
    assert records(copied(driver.machine)) == records(driver.machine)
    restored = Driver(copied(driver.machine))
    restored.now_us = driver.now_us
    assert len(restored.pull(Q, 5000)) == len(driver.pull(Q, 5000))


def _assert_plain(value: Any) -> None:
    if isinstance(value, (list, tuple)):
        for item in value:
            _assert_plain(item)
    else:
        assert value is None or isinstance(value, (int, float, bytes, str))


def test_very_many_of_everything_are_restored() -> None:
    """More rows than one record holds, of every kind."""
    driver = Driver()
    for index in range(1100):
        driver.produce(Q, b"%d" % index, 1, b"x")
        driver.push_item(Q, b"y", key=b"%d" % index)
    driver.pull(Q, 1100)
    driver.put_back(Q, *range(1, 600))
    driver.machine.apply(0, b"other", 5, 1, [])
    restored = copied(driver.machine)
    assert records(restored) == records(driver.machine)
    assert (len(restored.state.producers), len(restored.state.keys)) == (1100, 1100)


def test_the_empty_machine_has_a_snapshot() -> None:
    machine = copied(Machine(compile_pattern))
    assert machine.state.queues == {}
    assert records(machine) == records(Machine(compile_pattern))


def test_equal_logs_give_equal_snapshots_despite_reads_in_between(driver: Driver) -> None:
    """Law 1: reading a replica leaves no trace in it."""
    before = records(driver.machine)
    for name in (Q, b"never"):
        driver.machine.state.properties(name)
    counters(driver.machine)
    for queue in driver.machine.state.queues.values():
        queue.head_us()
    assert records(driver.machine) == before


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda rows: [], "cut off"),
        (lambda rows: rows[:-1], "cut off"),
        (lambda rows: [*rows[:3], *rows[4:]], "should have"),
        (lambda rows: rows[1:], "header"),
        (lambda rows: [rows[0], *rows], "header"),
        (lambda rows: [*rows, rows[-1]], "behind its end"),
        (lambda rows: [rows[0], [b"nonsense", 1], *rows[1:]], "unknown record"),
        (lambda rows: [[rows[0][0], 2, *rows[0][2:]], *rows[1:]], "format 2"),
        (lambda rows: [[*rows[0][:2], State.VERSION_MAX + 1, *rows[0][3:]], *rows[1:]], "too old"),
        (lambda rows: [rows[0], [b"ready", []], *rows[1:]], "before any queue"),
    ],
)
def test_a_damaged_snapshot_is_refused(driver: Driver, damage: Any, complaint: str) -> None:
    """Law 6: a corrupt snapshot is never silently replaced by an empty or a partial state."""
    with pytest.raises(ValueError, match=complaint):
        Machine.restore(compile_pattern, damage(records(driver.machine)))


def test_leases_are_restored_in_their_order_whatever_their_numbers(driver: Driver) -> None:
    """A message may be leased again under the number that it had."""
    driver.push(b"other", b"1", b"2", b"3")
    driver.pull(b"other", 3)
    leases = driver.machine.state.queues[b"other"].store.leases
    number, message = next(iter(leases.messages.items()))
    del leases.messages[number]
    leases.add(message.due_us, number, [message])
    again = copied(driver.machine)
    assert list(again.state.queues[b"other"].store.leases.messages) == list(leases.messages)
    assert records(again) == records(driver.machine)


def test_only_the_first_founding_counts() -> None:
    """All nodes may try to found the cluster; one salt wins on every replica."""
    driver = Driver()
    driver.do(Op.SET_SALT, b"0123456789")
    driver.do(Op.SET_SALT, b"9876543210")
    assert driver.machine.state.salt == b"0123456789"
    assert copied(driver.machine).state.salt == b"0123456789"
    (fault,) = driver.batch([Op.SET_SALT, b"short"])
    assert "10 bytes" in fault.reason


def test_totals_include_deleted_queues() -> None:
    """The counter never falls: the metrics of a node depend on it."""
    driver = Driver()
    driver.push(Q, b"1", b"2", b"3")
    first, second, _ = numbers(driver.pull(Q, 3))
    driver.ack(Q, first)
    driver.nack(Q, second)
    driver.wait(30)
    driver.pull(Q, 2)
    expected = {
        "pushed_total": 3,
        "pulled_total": 5,
        "acked_total": 1,
        "nacked_total": 1,
        "redelivered_total": 1,
        "dropped_total": 0,
        "purged_total": 0,
        "moved_out_total": 0,
        "moved_in_total": 0,
        "expired_total": 0,
        "dead_lettered_total": 0,
        "refused_total": 0,
        "discarded_total": 0,
        "withdrawn_total": 0,
        "deduplicated_total": 0,
    }
    assert counters(driver.machine) == expected
    driver.delete(Q)
    assert counters(driver.machine) == counters(copied(driver.machine)) == expected


def test_an_exhausted_message_that_times_out_is_dropped_and_not_counted_as_redelivered() -> None:
    driver = Driver()
    driver.set(Q, retry=0)
    driver.push(Q, b"x")
    driver.pull(Q)
    driver.wait(30)
    driver.pull(Q)
    totals = counters(driver.machine)
    assert (totals["redelivered_total"], totals["dropped_total"]) == (0, 1)
