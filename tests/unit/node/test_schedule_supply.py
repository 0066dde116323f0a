"""The due times that nodes supply to schedules, and the clock on which they agree."""

from __future__ import annotations

from typing import Any

import pytest

from lmqcluster.core.log.items import Item
from lmqcluster.core.routing.admission import PLAIN_PUSH
from lmqcluster.core.schedules.definition import Definition, Timing
from lmqcluster.core.schedules.schedule import TIMES_MAX, Schedule, wants_times
from lmqcluster.node.queues.schedules import supply as supplies
from lmqcluster.node.queues.schedules.clocks import agreed_ahead
from lmqcluster.node.queues.schedules.supply import supply_of

SECOND = 1_000_000
NOW_US = 1_790_000_000 * SECOND
HOUR_US = 3_600 * SECOND


def schedule(cron: str, known_us: int = NOW_US, **timing: Any) -> Schedule:
    rule = Timing(cron=cron.encode(), zone=b"UTC", **timing)
    return Schedule(b"s", b"", 7, Definition(b"q", Item(b""), PLAIN_PUSH, rule), NOW_US, (), known_us)


def supplied(one: Schedule, now_us: int = NOW_US) -> tuple[list[int], int, bool]:
    name, serial, after_us, times, skipped, done = supply_of(one, now_us)
    assert (name, serial, after_us) == (b"s", 7, one.known_us)
    assert times == sorted(set(times))
    return times, skipped, done


@pytest.mark.parametrize(
    ("cron", "count"), [("* * * * * *", TIMES_MAX), ("* * * * *", 61), ("0 0 * * *", 4), ("0 0 29 2 *", 4)]
)
def test_a_supply_lasts_for_an_hour_or_64_times_and_at_least_for_a_few(cron: str, count: int) -> None:
    times, skipped, done = supplied(schedule(cron))
    assert (len(times), skipped, done) == (count, 0, False)
    assert times[0] > NOW_US
    assert not wants_times(schedule(cron)._replace(times=tuple(times), known_us=times[-1]))


def test_supplies_follow_each_other_without_a_gap() -> None:
    first, _, _ = supplied(schedule("*/7 * * * * *"))
    second, _, _ = supplied(schedule("*/7 * * * * *", first[-1]))
    whole = [NOW_US // SECOND + number for number in range(1, 1_000)]
    expected = [one * SECOND for one in whole if one % 60 % 7 == 0]
    assert first + second == expected[: len(first + second)]


def test_no_time_is_later_than_the_end_or_earlier_than_the_start() -> None:
    one = schedule("* * * * * *", start_us=NOW_US + 10 * SECOND, end_us=NOW_US + 12 * SECOND)
    assert supplied(one) == ([NOW_US + second * SECOND for second in (10, 11, 12)], 0, True)
    assert supplied(one._replace(known_us=NOW_US + 12 * SECOND)) == ([], 0, True)


def test_missed_times_are_counted_and_the_last_one_is_supplied() -> None:
    times, skipped, _ = supplied(schedule("0 * * * *", NOW_US - 10 * HOUR_US))
    assert times[0] <= NOW_US < times[1] == times[0] + HOUR_US
    assert skipped == 9


def test_an_endless_number_of_missed_times_takes_little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A week without a quorum, for a schedule of every second."""
    monkeypatch.setattr(supplies, "COUNTED_MAX", 100)
    times, skipped, _ = supplied(schedule("* * * * * *", NOW_US - 7 * 24 * HOUR_US))
    assert skipped == 99
    assert NOW_US - 63 * SECOND < times[0] < NOW_US - 59 * SECOND
    assert times[:2] == [times[0], times[0] + SECOND]


def test_what_can_still_be_pushed_is_not_skipped() -> None:
    times, skipped, _ = supplied(schedule("* * * * * *", NOW_US - 30 * SECOND))
    assert (times[0], skipped) == (NOW_US - 29 * SECOND, 0)


# --- clocks -----------------------------------------------------------------------------------------------------------

MEMBERS = ["a", "b", "c"]


@pytest.mark.parametrize(
    ("own", "others", "expected"),
    [
        (5, {"b": 6, "c": 7}, 5),
        (HOUR_US, {"b": 6, "c": 7}, 6),
        (5, {"b": 6, "c": HOUR_US}, 5),
        (5, {"b": 6}, 5),
        (5, {}, None),
        (5, {"b": HOUR_US}, None),
        (5, {"b": HOUR_US, "c": -HOUR_US}, None),
        (5, {"b": HOUR_US, "x": 5}, None),
        (5, {"a": HOUR_US, "b": HOUR_US}, None),
        (5, {"b": SECOND + 5, "c": HOUR_US}, 5),
        (5, {"b": SECOND + 6, "c": HOUR_US}, None),
    ],
)
def test_a_majority_decides(own: int, others: dict[str, int], expected: int | None) -> None:
    found = agreed_ahead(others, MEMBERS, "a", own)
    assert found == expected or (expected == 6 and found in (6, 7))


def test_a_member_alone_is_its_majority() -> None:
    assert agreed_ahead({}, ["a"], "a", 5) == 5


def test_a_node_that_is_no_member_decides_nothing() -> None:
    assert agreed_ahead({}, ["b"], "a", 5) is None
