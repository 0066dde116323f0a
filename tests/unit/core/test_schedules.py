"""Schedules: each due time is pushed once, or missed and counted; nothing grows without bound."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from lmqcluster.core import Fault, Op
from lmqcluster.core.log.commands import ScheduleAction, ScheduleResult
from lmqcluster.core.owners.quotas import Kind, Quotas
from lmqcluster.core.schedules import table
from lmqcluster.core.schedules.definition import BODY_BYTES_MAX
from lmqcluster.core.schedules.schedule import KEPT_MAX, TIMES_MAX
from tests.property.driver import SECOND, Driver, copied, records

Q = b"q"
S = b"s"
AHEAD_US = 1_700_000_000 * SECOND
TOKEN = b"\x00" * 8


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.do(Op.SET_SCHEDULE_CLOCK, AHEAD_US, False)
    return driver


def interval(seconds: float = 1, **more: Any) -> list[Any]:
    return [round(seconds * SECOND), b"", b"", *bounds(**more)]


def cron(**more: Any) -> list[Any]:
    return [0, b"* * * * *", b"UTC", *bounds(**more)]


def bounds(start: int = 0, end: int = 0, jitter: int = 0, once: bool = False) -> list[Any]:
    return [start, end, jitter, int(once)]


def command(timing: list[Any], times: list[int] | None = None, **more: Any) -> list[Any]:
    given = {"name": S, "queue": Q, "body": b"tick", "done": False, "was": b"", "owner": b"", **more}
    definition = [given["queue"], [None, b"", []], timing]
    fields = (given["name"], definition, given["body"], times or [], given["done"], given["was"], given["owner"])
    return [Op.SET_SCHEDULE, *fields]


def unix_us(driver: Driver) -> int:
    return driver.now_us + AHEAD_US


def due_times(driver: Driver, queue: bytes = Q) -> list[int]:
    """Return the due times of the messages of a queue, in seconds since the schedule clock began, and remove them."""
    if queue not in driver.machine.state.queues:
        return []
    found = driver.do(Op.PULL, queue, 10_000, 0, True)
    return [
        round(msgpack.unpackb(message.meta[1])["scheduled_at"]) - AHEAD_US // SECOND - 1_000 for *_, message in found
    ]


def schedule(driver: Driver, name: bytes = S) -> Any:
    return driver.machine.state.schedules.find(name)


def supply(driver: Driver, after_us: int, times: list[int], skipped: int = 0, done: bool = False) -> int:
    return driver.do(Op.SUPPLY_TIMES, [[S, schedule(driver).serial, after_us, times, skipped, done]])


# --- due times --------------------------------------------------------------------------------------------------------


def test_an_interval_is_anchored_at_its_start_and_does_not_drift(driver: Driver) -> None:
    assert driver.do(*command(interval(3, start=unix_us(driver) - 1 * SECOND))) == ScheduleResult.CREATED
    for _ in range(100):
        driver.wait(0.37)
        driver.tick()
    assert due_times(driver) == list(range(2, 37, 3))


def test_without_a_start_the_first_due_time_is_one_interval_later(driver: Driver) -> None:
    driver.do(*command(interval(5)))
    driver.wait(4.9)
    driver.tick()
    assert due_times(driver) == []
    driver.wait(0.1)
    driver.tick()
    assert due_times(driver) == [5]


def test_no_due_time_is_later_than_the_end(driver: Driver) -> None:
    driver.do(*command(interval(2, end=unix_us(driver) + 6 * SECOND)))
    driver.wait(20)
    driver.tick()
    assert due_times(driver) == [2, 4, 6]
    assert schedule(driver).done
    assert driver.machine.state.schedules.due_us() is None


def test_supplied_times_are_taken_once(driver: Driver) -> None:
    """Two leaders, or one that repeats a command, supply the same due times."""
    now_us = unix_us(driver)
    times = [now_us + second * SECOND for second in (1, 2)]
    driver.do(*command(cron(), times))
    more = [now_us + 3 * SECOND, now_us + 4 * SECOND]
    assert [supply(driver, times[-1], more), supply(driver, times[-1], more)] == [1, 0]
    driver.wait(10)
    driver.tick()
    assert due_times(driver) == [1, 2, 3, 4]


def test_times_supplied_for_an_earlier_definition_are_not_taken(driver: Driver) -> None:
    first = unix_us(driver) + SECOND
    driver.do(*command(cron(), [first]))
    serial = schedule(driver).serial
    driver.do(*command(cron(jitter=1), [first], was=Q))
    assert driver.do(Op.SUPPLY_TIMES, [[S, serial, first, [first + SECOND], 0, False]]) == 0


def test_the_message_has_its_attributes_and_options(driver: Driver) -> None:
    definition = [Q, [b"text/plain", b"\x81\xa1a\x01", [-1, 0, 0, 7, b"label", b"group"]], interval(1)]
    driver.do(Op.SET_SCHEDULE, S, definition, b"body", [], False, b"")
    driver.wait(1)
    _, _, _, message = driver.pull_one(Q)
    content_type, attributes = message.meta
    assert (content_type, message.content) == (b"text/plain", b"body")
    due_s = (unix_us(driver)) / SECOND
    assert msgpack.unpackb(attributes) == {"a": 1, "schedule": "s", "scheduled_at": due_s}
    assert (message.traits.priority, message.traits.label, message.traits.group) == (7, b"label", b"group")


def test_jitter_is_bounded_and_differs_between_schedules(driver: Driver) -> None:
    names = [b"s%d" % number for number in range(50)]
    for name in names:
        driver.do(*command(interval(10, jitter=5 * SECOND), name=name))
    driver.wait(9.99)
    driver.tick()
    assert due_times(driver) == []
    counts = []
    for _ in range(6):
        counts.append(len(due_times(driver)))
        driver.wait(1)
        driver.tick()
    assert sum(counts) + len(due_times(driver)) == len(names)
    assert max(counts) < len(names) / 2


# --- missed times -----------------------------------------------------------------------------------------------------


def test_a_late_batch_pushes_every_due_time_of_the_last_minute(driver: Driver) -> None:
    driver.do(*command(interval(1)))
    driver.wait(50)
    driver.tick()
    assert due_times(driver) == list(range(1, 51))
    assert schedule(driver).missed == 0


def test_skip_drops_what_is_later_than_a_minute_and_counts_it(driver: Driver) -> None:
    driver.do(*command(interval(1)))
    driver.wait(3_600)
    driver.tick()
    assert due_times(driver) == list(range(3_540, 3_601))
    assert schedule(driver).missed == 3_539


def test_once_pushes_the_last_one_missed_for_all(driver: Driver) -> None:
    driver.do(*command(interval(600, once=True)))
    driver.wait(6_100)
    driver.tick()
    assert due_times(driver) == [6_000]
    assert (schedule(driver).missed, schedule(driver).pushed) == (9, 1)


def test_once_pushes_one_message_even_if_the_missed_times_are_supplied_later(driver: Driver) -> None:
    now_us = unix_us(driver)
    driver.do(*command(cron(once=True), [now_us + SECOND, now_us + 2 * SECOND]))
    driver.wait(500)
    driver.tick()
    assert due_times(driver) == []
    supply(driver, now_us + 2 * SECOND, [now_us + 400 * SECOND, now_us + 600 * SECOND], skipped=7)
    driver.tick()
    assert due_times(driver) == [400]
    assert schedule(driver).missed == 9
    driver.wait(100)
    driver.tick()
    assert due_times(driver) == [600]


@pytest.mark.parametrize(("once", "expected"), [(False, []), (True, [30])])
def test_what_passes_during_a_pause_is_missed(driver: Driver, once: bool, expected: list[int]) -> None:
    driver.do(*command(interval(1, once=once)))
    driver.do(Op.CHANGE_SCHEDULE, S, ScheduleAction.PAUSE, Q)
    driver.wait(30)
    driver.tick()
    assert due_times(driver) == []
    assert driver.machine.state.schedules.due_us() is None
    driver.do(Op.CHANGE_SCHEDULE, S, ScheduleAction.RESUME, Q)
    driver.tick()
    assert due_times(driver) == expected
    driver.wait(1)
    driver.tick()
    assert due_times(driver) == [31]
    assert schedule(driver).missed == 30 - len(expected)


def test_a_clock_that_goes_back_repeats_no_due_time(driver: Driver) -> None:
    driver.do(*command(interval(1)))
    driver.wait(10)
    driver.tick()
    assert due_times(driver) == list(range(1, 11))
    driver.do(Op.SET_SCHEDULE_CLOCK, AHEAD_US - 3_600 * SECOND, False)
    driver.wait(3_599)
    driver.tick()
    assert due_times(driver) == []
    driver.wait(2)
    driver.tick()
    assert due_times(driver) == [11]


def test_a_clock_that_goes_forward_misses_what_it_skips(driver: Driver) -> None:
    driver.do(*command(interval(600, once=True)))
    driver.do(Op.SET_SCHEDULE_CLOCK, AHEAD_US + 7_300 * SECOND, False)
    driver.tick()
    assert due_times(driver) == [7_200]


# --- commands ---------------------------------------------------------------------------------------------------------


def test_the_same_definition_changes_nothing(driver: Driver) -> None:
    """So that every process of a library may set its schedules when it starts."""
    driver.do(*command(interval(10)))
    driver.wait(7)
    assert driver.do(*command(interval(10), was=Q)) == ScheduleResult.UNCHANGED
    driver.wait(3)
    driver.tick()
    assert due_times(driver) == [10]


def test_another_definition_begins_now_and_keeps_the_counters(driver: Driver) -> None:
    driver.do(*command(interval(1)))
    driver.wait(2)
    driver.tick()
    assert driver.do(*command(interval(5), was=Q)) == ScheduleResult.REPLACED
    driver.wait(5)
    driver.tick()
    assert due_times(driver) == [1, 2, 7]
    assert schedule(driver).pushed == 3


def test_a_sender_that_saw_another_queue_is_refused(driver: Driver) -> None:
    """Its permission was checked for that queue."""
    driver.do(*command(interval(1)))
    for given in (
        command(interval(2)),
        command(interval(2), was=b"other"),
        [Op.CHANGE_SCHEDULE, S, ScheduleAction.REMOVE, b"other"],
    ):
        (fault,) = driver.batch(given)
        assert fault.code == "conflict"
    (fault,) = driver.batch([Op.CHANGE_SCHEDULE, b"none", ScheduleAction.RUN, b""])
    assert fault.code == "schedule_not_found"


def test_run_now_pushes_at_once_and_moves_no_due_time(driver: Driver) -> None:
    driver.do(*command(interval(10)))
    driver.wait(3)
    driver.do(Op.CHANGE_SCHEDULE, S, ScheduleAction.RUN, Q)
    driver.wait(7)
    driver.tick()
    assert due_times(driver) == [3, 10]


def test_a_full_queue_refuses_and_the_schedule_goes_on(driver: Driver) -> None:
    driver.set(Q, max_items=2)
    driver.do(*command(interval(1)))
    driver.wait(5)
    driver.tick()
    assert (schedule(driver).pushed, schedule(driver).refused) == (2, 3)
    assert due_times(driver) == [1, 2]


def test_held_schedules_refuse(driver: Driver) -> None:
    driver.do(*command(interval(1)))
    driver.do(Op.SET_SCHEDULE_CLOCK, AHEAD_US, True)
    driver.wait(2)
    driver.tick()
    driver.do(Op.SET_SCHEDULE_CLOCK, AHEAD_US, False)
    driver.wait(1)
    driver.tick()
    assert (schedule(driver).refused, due_times(driver)) == (2, [3])


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_quotas_bound_number_and_bytes_of_an_owner(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {**Quotas.LIMITS, Kind.SCHEDULES: 2, Kind.SCHEDULE_BYTES: 2 * table.ROW_BYTES + 100}
    monkeypatch.setattr(Quotas, "LIMITS", limits)
    driver.do(*command(interval(1), name=b"1", owner=b"o"))
    (fault,) = driver.batch(command(interval(1), name=b"2", owner=b"o", body=bytes(100)))
    assert fault.code == "quota_exceeded"
    driver.do(*command(interval(1), name=b"2", owner=b"o"))
    (fault,) = driver.batch(command(interval(1), name=b"3", owner=b"o"))
    assert fault.code == "quota_exceeded"
    driver.do(*command(interval(1), name=b"3", owner=b"p"))
    driver.do(*command(interval(2), name=b"2", owner=b"o", was=Q))
    driver.do(Op.CHANGE_SCHEDULE, b"1", ScheduleAction.REMOVE, Q)
    driver.do(*command(interval(1), name=b"4", owner=b"o"))
    quotas = driver.machine.state.quotas
    assert [quotas.used(Kind.SCHEDULES, owner) for owner in (b"o", b"p")] == [2, 1]


def test_all_owners_together_are_bounded(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "SCHEDULES_MAX", 2)
    driver.do(*command(interval(1), name=b"1", owner=b"o"))
    driver.do(*command(interval(1), name=b"2", owner=b"p"))
    (fault,) = driver.batch(command(interval(1), name=b"3", owner=b"r"))
    assert fault.code == "quota_exceeded"
    driver.do(*command(interval(2), name=b"2", owner=b"p", was=Q))


@pytest.mark.parametrize(
    "given",
    [
        command(interval(0.999)),
        command(interval(1, jitter=2 * SECOND)),
        command(interval(1), body=bytes(BODY_BYTES_MAX + 1)),
        command(interval(1), name=b""),
        command(interval(1), name=bytes(256)),
        command(interval(1), queue=b""),
        command(interval(1, start=5, end=4)),
        command(cron(), [2, 1]),
        command(cron(), [1, 1]),
        command(cron(), list(range(1, TIMES_MAX + 2))),
        command(cron(), [1 << 61]),
        command([1 * SECOND, b"* * * * *", b"UTC", 0, 0, 0, 0]),
        command([0, b"", b"", 0, 0, 0, 0]),
        [Op.SET_SCHEDULE, S, [Q, [None, b"", [-1, 5, 0, 0, b"", b""]], interval(1)], b"", [], False, b""],
        [Op.CHANGE_SCHEDULE, S, 4, b""],
        [Op.SUPPLY_TIMES, [[S, 1, 0, [1], -1, False]]],
        [Op.SUPPLY_TIMES, [[S, 1, 5, [5], 0, False]]],
        [Op.SUPPLY_TIMES, [[S, 1, 0, [1], 0, False]] * 1_001],
        [Op.REPORT_CLOCK, b"n", 1 << 62],
        [Op.SET_SCHEDULE_CLOCK, "0", False],
    ],
)
def test_a_malformed_command_changes_nothing(driver: Driver, given: list[Any]) -> None:
    before = records(driver.machine)
    (fault,) = driver.batch(given)
    assert isinstance(fault, Fault)
    driver.machine.state.node_sequences = Driver().machine.state.node_sequences
    assert [one for one in records(driver.machine) if one[0] in ("schedules", "schedule clock", "queue")] == [
        one for one in before if one[0] in ("schedules", "schedule clock", "queue")
    ]


def test_one_batch_handles_a_bounded_number_of_due_times(driver: Driver) -> None:
    for number in range(60):
        driver.do(*command(interval(1), name=b"%d" % number))
    driver.wait(60)
    driver.tick()
    assert len(due_times(driver)) == 2 * table.STEPS_MAX
    driver.tick(2)
    assert len(due_times(driver)) == 3_600 - 2 * table.STEPS_MAX


def test_the_copies_of_one_batch_are_bounded(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "COPIES_MAX", 25)
    for number in range(9):
        driver.do(Op.BIND, Q, b"copy %d" % number)
    for number in range(5):
        driver.do(*command(interval(1), name=b"%d" % number))
    driver.wait(1)
    sizes = []
    for _ in range(4):
        driver.tick()
        sizes.append(driver.size(Q))
    assert sizes == [2, 4, 5, 5]


def test_clocks_of_members_are_bounded(driver: Driver) -> None:
    for number in range(table.MEMBERS_MAX + 5):
        driver.do(Op.REPORT_CLOCK, b"member %d" % number, number)
    clocks = driver.machine.state.schedules.clocks
    assert (len(clocks), next(iter(clocks))) == (table.MEMBERS_MAX, b"member 5")


# --- snapshots --------------------------------------------------------------------------------------------------------


def test_a_restored_replica_continues_alike(driver: Driver) -> None:
    now_us = unix_us(driver)
    driver.do(*command(interval(7, jitter=SECOND, once=True), name=b"i"))
    driver.do(*command(cron(), [now_us + 5 * SECOND, now_us + 9 * SECOND], name=b"c"))
    driver.do(Op.REPORT_CLOCK, b"n", -5)
    driver.wait(500)
    driver.tick()
    other = Driver(copied(driver.machine))
    assert records(other.machine) == records(driver.machine)
    assert [*other.machine.state.schedules.hungry] == [*driver.machine.state.schedules.hungry] == [b"c"]
    assert other.machine.state.expiry.next_us == driver.machine.state.expiry.next_us
    other.now_us = driver.now_us
    for one in (driver, other):
        one.wait(7)
        one.tick()
    assert due_times(other) == due_times(driver) != []
    assert other.do(Op.DIGEST, TOKEN) == driver.do(Op.DIGEST, TOKEN)


def test_a_schedule_with_as_many_due_times_as_possible_is_restored(driver: Driver) -> None:
    """A node that could not load its snapshot would never start again."""
    now_us = unix_us(driver)
    times = [now_us + second * SECOND for second in range(1, TIMES_MAX + 1)]
    driver.do(*command(cron(), times))
    assert supply(driver, times[-1], [one + TIMES_MAX * SECOND for one in times]) == 1
    assert len(schedule(driver).times) == KEPT_MAX
    assert records(copied(driver.machine)) == records(driver.machine)


def test_a_digest_shows_a_schedule_that_differs(driver: Driver) -> None:
    other = Driver()
    other.do(Op.SET_SCHEDULE_CLOCK, AHEAD_US, False)
    driver.do(*command(interval(7)))
    other.do(*command(interval(8)))
    assert driver.do(Op.DIGEST, TOKEN) != other.do(Op.DIGEST, TOKEN)
