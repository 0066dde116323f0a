"""Purge, move and suspend in the state machine; `tests/property/test_machine.py` compares them with the model too."""

from __future__ import annotations

from typing import Any

import pytest

from lmqcluster.core import Fault, Machine, Op
from lmqcluster.core.handlers.checks import STEP_MAX
from lmqcluster.core.log.commands import Ack
from lmqcluster.core.messages.message import PLAIN_TRAITS, Traits, traits_of
from lmqcluster.core.state.batch_lease import BatchState
from lmqcluster.wire.attributes import unpack_attributes
from tests.property.driver import SECOND, Driver, bodies, copied, counters, numbers
from tests.property.work import counted

Q, R = b"q", b"r"


def totals(machine: Machine, *names: str) -> list[int]:
    return [counters(machine)[name] for name in names]


# --- purge
# --------------------------------------------------------------------------------------------------------------


def test_a_purge_removes_unleased_messages_and_keeps_leases() -> None:
    driver = Driver()
    driver.push(Q, b"held", b"ready")
    (held,) = numbers(driver.pull(Q))
    driver.set(Q, accum=60_000)
    driver.push(Q, b"part 1", b"part 2")
    assert driver.do(Op.PURGE, Q, STEP_MAX) == 2, "the ready one and the open window"
    assert driver.machine.state.queues[Q].store.body_bytes == len(b"held")
    assert driver.ack(Q, held) == [True]
    assert totals(driver.machine, "purged_total", "acked_total", "dropped_total") == [2, 1, 0]
    driver.push(Q, b"part 3")
    driver.wait(60)
    assert bodies(driver.pull(Q)) == [[b"part 3"]], "a purged window is not joined"


def test_a_purge_removes_messages_in_delivery_order() -> None:
    driver = Driver()
    driver.set(Q, accum=5_000)
    driver.push(Q, b"window")
    driver.set(Q, accum=0)
    driver.wait(1)
    driver.push(Q, b"1", b"2")
    first, _ = numbers(driver.pull(Q, 2))
    driver.wait(1)
    driver.push(Q, b"3")
    driver.put_back(Q, first)
    waiting = [b"1", b"3", [b"window"]]
    for purged in (1, 2, 3):
        assert driver.do(Op.PURGE, Q, 1) == 1
        twin = Driver(copied(driver.machine))
        twin.now_us = driver.now_us + 10 * SECOND
        assert bodies(twin.pull(Q, 9)) == waiting[purged:]
    assert driver.do(Op.PURGE, Q, 1) == 0
    assert driver.size(Q) == 1, "the lease"


def test_a_purge_of_everything_takes_leased_delayed_and_held_messages_and_keys() -> None:
    driver = Driver()
    driver.set(Q, key_window=300)
    row = [b"held", None, b"", b"key", [-1, 0, 0, 0, b"", b"g"]]
    driver.do(Op.PUSH_ROWS, Q, [row, [b"behind", None, b"", None, row[4]]])
    driver.push(Q, b"plain", b"ready")
    driver.do(Op.PUSH_ROWS, Q, [[b"later", None, b"", None, [60 * SECOND, 0, 0, 0, b"", b""]]])
    held, plain = numbers(driver.pull(Q, 2))
    driver = Driver(copied(driver.machine))
    assert driver.do(Op.PURGE, Q, 0, b"", None, True) == 5
    assert driver.size(Q) == 0
    assert totals(driver.machine, "purged_total", "acked_total") == [5, 0]
    assert driver.machine.state.totals.trait_bytes == driver.machine.state.queues[Q].store.body_bytes == 0
    assert driver.ack(Q, held, plain) == [False, False]
    assert driver.machine.state.is_repeated(Ack(Q, [held]), held) is True, "its consumer need not do it again"
    assert driver.do(Op.PUSH_ROWS, Q, [row])[0][0] == 0, "its key and its group are free"
    assert bodies(driver.pull(Q)) == [b"held"]


def test_a_purge_of_everything_begins_with_leases_and_is_bounded() -> None:
    driver = Driver()
    driver.push(Q, *[b"x"] * (STEP_MAX + 10))
    driver.pull(Q, STEP_MAX + 5)
    assert driver.do(Op.PURGE, Q, 3, b"", None, True) == 3
    assert driver.do(Op.PURGE, Q, 0, b"", None, True) == STEP_MAX + 5, "all that wait, and a step of the leased ones"
    assert driver.do(Op.PURGE, Q, STEP_MAX, b"", None, True) == 2
    assert isinstance(driver.batch([Op.PURGE, Q, 1, b"label", None, True])[0], Fault)
    assert isinstance(driver.batch([Op.PURGE, Q, 1, b"", None, 1])[0], Fault)


def test_a_lease_that_has_ended_holds_nothing() -> None:
    driver = Driver()
    driver.push(Q, b"late")
    (late,) = numbers(driver.pull(Q))
    driver.wait(30)
    assert driver.do(Op.PURGE, Q, STEP_MAX) == 1
    assert driver.ack(Q, late) == [False]
    assert driver.machine.state.is_repeated(Ack(Q, [late]), late) is False, "it was not acknowledged"
    assert totals(driver.machine, "purged_total", "redelivered_total") == [1, 1]


def test_purging_costs_the_same_for_each_message_however_many_there_are() -> None:
    def lines(count: int) -> int:
        driver = Driver()
        for _ in range(count // 1000):
            driver.push(Q, *[b"x"] * 1000)
        with counted() as work:
            assert driver.do(Op.PURGE, Q, 1000) == 1000
        return work.lines

    assert lines(50_000) <= lines(1000) * 1.1


# --- move
# ---------------------------------------------------------------------------------------------------------------


def test_a_moved_message_is_a_fresh_one_of_the_other_queue() -> None:
    driver = Driver()
    driver.set(Q, retry=1, hooks=[["pre_http_push", [["m", ["x-a"]]]]])
    driver.set(R, retry=5, accum=1_000)
    driver.push(R, b"waits")
    driver.push_item(Q, b"1", b"text/plain", [(b"x-a", b"v")])
    driver.pull(Q)
    driver.wait(31)
    driver.push(Q, b"2", b"3")
    assert driver.do(Op.MOVE, Q, R, 2) == 2
    assert driver.ready == [R]
    found = driver.pull(R, 9)
    assert bodies(found) == [[b"waits"], b"1", b"2"]
    one = found[1][3]
    assert (one.meta[0], unpack_attributes(one.meta[1])) == (b"text/plain", {"x-a": "v"})
    assert one.remaining == 5, "it has the deliveries of its new queue"
    assert (one.ready_us, one.sequence) == (driver.now_us, 5), "it waits from now on, under a new number"
    assert driver.machine.state.last_sequence == 6
    assert driver.drain(Q) == [b"3"]
    assert totals(driver.machine, "moved_out_total", "moved_in_total", "pushed_total") == [2, 2, 4]
    assert driver.machine.state.queues[R].store.body_bytes == len(b"waits12") + len(one.meta[1])


@pytest.mark.parametrize("how", [[Op.MOVE, Q, R, 9], [Op.START_MOVE_TASK, Q, R]], ids=["at once", "by a task"])
def test_a_moved_message_keeps_its_priority_label_and_group(how: list[Any]) -> None:
    driver = Driver()
    options = [[-1, 0, 9_000_000, 0, b"red", b"g"], [-1, 0, 0, 1, b"", b""], [-1, 0, 0, 0, b"", b"g"], []]
    rows = [[b"%d" % place, None, b"", None, one] for place, one in enumerate(options)]
    driver.do(Op.PUSH_ROWS, Q, rows)
    driver.set(R)
    driver.do(*how)
    driver.wait(1)
    driver.tick()
    assert bodies(driver.pull(R, 9)) == [b"0", b"3", b"1"], "one of a group at a time, those with a priority last"
    driver.ack(R, 1)
    (_, _, _, message) = driver.pull_one(R)
    assert traits_of(message) == Traits(group=b"g")
    found = [traits_of(one) for one in driver.machine.state.queues[R].store.leases.messages.values()]
    assert found == [PLAIN_TRAITS, Traits(priority=1), Traits(group=b"g")]


def test_a_move_uses_the_current_default_properties() -> None:
    driver = Driver()
    driver.push(R, b"0")
    driver.push(Q, b"1")
    driver.defaults((b"r", {"retry": 9}))
    driver.do(Op.MOVE, Q, R, 1)
    assert [remaining for _, _, remaining, _ in driver.pull(R, 2)] == [2, 9]


def test_a_compound_message_moves_as_a_whole_when_its_window_has_ended() -> None:
    driver = Driver()
    driver.set(Q, accum=1_000)
    driver.set(R, accum=1_000)
    driver.push(Q, b"1", b"2")
    assert driver.do(Op.MOVE, Q, R, STEP_MAX) == 0, "it is not to be had yet"
    driver.wait(1)
    assert driver.do(Op.MOVE, Q, R, STEP_MAX) == 1
    assert bodies(driver.pull(R)) == [[b"1", b"2"]]


def test_a_queue_is_not_moved_to_itself_and_no_queue_to_nowhere() -> None:
    driver = Driver()
    driver.push(Q, b"1")
    for command in ([Op.MOVE, Q, Q, 1], [Op.MOVE, Q, b"", 1], [Op.MOVE, Q, R, 0], [Op.PURGE, Q, STEP_MAX + 1]):
        assert isinstance(driver.batch(command)[0], Fault)
    assert driver.batch([Op.MOVE, R, b"s", 1], [Op.PURGE, R, 1], [Op.SUSPEND, R, True]) == [None] * 3
    assert sorted(driver.machine.state.queues) == [Q], "a name that was mistyped makes no queue"
    assert driver.drain(Q) == [b"1"]


# --- suspend
# ------------------------------------------------------------------------------------------------------------


def test_a_suspended_queue_delivers_nothing_and_stores_everything() -> None:
    driver = Driver()
    driver.push(Q, b"1", b"2", b"3", b"4")
    one, two, three = numbers(driver.pull(Q, 3))
    assert driver.do(Op.SUSPEND, Q, True) is True
    assert driver.pull(Q, 5) == []
    assert driver.pull_first(b"") == []
    assert driver.do(Op.RESERVE, b"s", 1, Q, True, 5, SECOND).state == BatchState.EMPTY
    assert driver.do(Op.RESERVE, b"s", 1, [Q], True, 5, SECOND).state == BatchState.EMPTY
    driver.push(Q, b"5")
    assert (driver.ack(Q, one), driver.nack(Q, two), driver.extend(Q, three)) == ([True], [True], [True])
    driver.wait(30)
    assert driver.ack(Q, three) == [False], "leases end all the same"
    assert driver.machine.state.queues[Q].head_us() is None, "there is no due time to wait for"
    for machine in (copied(driver.machine), driver.machine):
        twin = Driver(machine)
        twin.now_us = driver.now_us
        assert twin.pull(Q) == [], "a restart does not resume"
        assert twin.do(Op.SUSPEND, Q, False) is True
        assert twin.ready == [Q], "waiting pulls are woken"
        assert bodies(twin.pull_first(b"q", 9)) == [b"4", b"5", b"2", b"3"]


def test_a_pattern_skips_a_suspended_queue() -> None:
    driver = Driver()
    driver.push(Q, b"early")
    driver.wait(1)
    driver.push(R, b"late")
    driver.do(Op.SUSPEND, Q, True)
    assert bodies(driver.pull_first(b"", 9)) == [b"late"]
    driver.push(Q, b"more")
    assert driver.pull_first(b"", 9) == []
    driver.do(Op.SUSPEND, Q, False)
    assert bodies(driver.pull_first(b"", 9)) == [b"early", b"more"]


def test_a_suspended_queue_can_be_purged_and_moved_from() -> None:
    driver = Driver()
    driver.push(Q, b"1", b"2")
    driver.do(Op.SUSPEND, Q, True)
    assert driver.do(Op.MOVE, Q, R, 1) == 1
    assert driver.do(Op.PURGE, Q, 5) == 1
    assert driver.drain(R) == [b"1"]


def test_a_recreated_queue_is_not_suspended() -> None:
    driver = Driver()
    driver.push(Q)
    driver.do(Op.SUSPEND, Q, True)
    driver.delete(Q)
    driver.push(Q, b"1")
    assert driver.drain(Q) == [b"1"]


@pytest.mark.parametrize("flag", [1, None, b"true"])
def test_suspend_requires_a_boolean(flag: object) -> None:
    driver = Driver()
    driver.push(Q)
    assert isinstance(driver.batch([Op.SUSPEND, Q, flag])[0], Fault)
    assert not driver.machine.state.queues[Q].suspended
