"""Due times of cron expressions, compared with a scan of every minute, across changes of clocks in three zones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest

from lmqcluster.node.queues.schedules.cron import CronRule, cron_rule
from lmqcluster.wire.errors import LmqError

MINUTE_S = 60
CHANGES = {
    # The clocks of Lord Howe Island change by half an hour.
    "Europe/Berlin": ("2026-03-29", "2026-10-25"),
    "America/New_York": ("2026-03-08", "2026-11-01"),
    "Australia/Lord_Howe": ("2026-10-04", "2026-04-05"),
}
ALL_CHANGES = [(zone, day) for zone, days in CHANGES.items() for day in days]
CLOCK_RULES = ["*/5 * * * *", "* 2 * * *", "*/10 1-3 * * *", "7 * * * *"]
FIXED_RULES = ["30 2 * * *", "0 2 * * *", "15,45 1,2 * * *", "0 3 * * *", "30 1 * * *", "0 0 * * *"]


def unix_s(day: str, zone: str) -> int:
    return int(datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone)).timestamp())


def matches(minute: str, hour: str, local: datetime) -> bool:
    return all(
        value in _values(field, most) for field, value, most in ((minute, local.minute, 60), (hour, local.hour, 24))
    )


def _values(field: str, most: int) -> set[int]:
    if field.startswith("*"):
        return set(range(0, most, int(field[2:] or 1)))
    if "-" in field:
        low, high = map(int, field.split("-"))
        return set(range(low, high + 1))
    return set(map(int, field.split(",")))


def shown(rule: str, zone: str, begin_s: int, end_s: int) -> list[int]:
    """Return each minute at which the clocks of the zone show a time that matches."""
    minute, hour, *_ = rule.split()
    return [
        moment
        for moment in range(begin_s, end_s, MINUTE_S)
        if matches(minute, hour, datetime.fromtimestamp(moment, ZoneInfo(zone)))
    ]


def once(rule: str, zone: str, begin: datetime, minutes: int) -> list[int]:
    """Return the moments of the matching local times, each once: the first of two, the change for one that is skipped."""
    minute, hour, *_ = rule.split()
    found = []
    for number in range(minutes):
        local = (begin + timedelta(minutes=number)).replace(tzinfo=ZoneInfo(zone))
        if not matches(minute, hour, local):
            continue
        moment = int(local.timestamp())
        while datetime.fromtimestamp(moment, ZoneInfo(zone)).replace(tzinfo=None) < local.replace(tzinfo=None):
            moment += MINUTE_S
        back = datetime.fromtimestamp(moment, ZoneInfo(zone)).replace(tzinfo=None)
        if back != local.replace(tzinfo=None):
            # The clocks skip it: the first minute after the change.
            while (
                datetime.fromtimestamp(moment - MINUTE_S, ZoneInfo(zone)).utcoffset()
                == datetime.fromtimestamp(moment, ZoneInfo(zone)).utcoffset()
            ):
                moment -= MINUTE_S
        found.append(moment)
    return sorted(set(found))


def times(rule: str, zone: str, begin_s: int, end_s: int) -> list[int]:
    found = []
    for due_s in CronRule(rule, zone).from_after(begin_s - 1):
        if due_s >= end_s:
            break
        found.append(due_s)
    return found


@pytest.mark.parametrize(("zone", "day"), ALL_CHANGES)
@pytest.mark.parametrize("rule", CLOCK_RULES)
def test_a_rule_with_a_star_follows_the_clocks(rule: str, zone: str, day: str) -> None:
    begin_s = unix_s(day, zone) - 86_400
    end_s = begin_s + 3 * 86_400
    assert times(rule, zone, begin_s, end_s) == shown(rule, zone, begin_s, end_s)


@pytest.mark.parametrize(("zone", "day"), ALL_CHANGES)
@pytest.mark.parametrize("rule", FIXED_RULES)
def test_a_fixed_time_of_day_comes_once(rule: str, zone: str, day: str) -> None:
    begin = datetime.fromisoformat(day) - timedelta(days=1)
    begin_s, end_s = unix_s(day, zone) - 86_400, unix_s(day, zone) + 2 * 86_400
    expected = [one for one in once(rule, zone, begin, 4 * 1_440) if begin_s <= one < end_s]
    assert times(rule, zone, begin_s, end_s) == expected


@pytest.mark.parametrize(("zone", "day"), ALL_CHANGES)
def test_it_does_not_matter_from_where_a_rule_is_continued(zone: str, day: str) -> None:
    """Another leader continues from any due time, and from any time in between."""
    begin_s = unix_s(day, zone)
    for rule in (*CLOCK_RULES, *FIXED_RULES):
        found = times(rule, zone, begin_s, begin_s + 86_400)
        for moment in range(begin_s, begin_s + 6 * 3_600, 7 * MINUTE_S):
            following = [one for one in found if one > moment]
            assert not following or CronRule(rule, zone).after(moment) == following[0], (rule, moment)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("*/20 * * * * *", ["00:00:20", "00:00:40", "00:01:00"]),
        ("@hourly", ["01:00:00", "02:00:00", "03:00:00"]),
        ("@daily", ["00:00:00", "00:00:00", "00:00:00"]),
        ("0 9-17/4 * * mon-fri", ["09:00:00", "13:00:00", "17:00:00"]),
    ],
)
def test_forms_of_expressions(rule: str, expected: list[str]) -> None:
    found = islice(cron_rule(rule, "UTC").from_after(unix_s("2026-01-05", "UTC")), 3)
    assert [datetime.fromtimestamp(one, UTC).strftime("%H:%M:%S") for one in found] == expected


def test_a_rare_time_is_found_beyond_many_changes() -> None:
    found = [*islice(CronRule("* * 29 2 *", "America/New_York").from_after(unix_s("2025-01-01", "UTC")), 2)]
    assert [datetime.fromtimestamp(one, ZoneInfo("America/New_York")).isoformat() for one in found] == [
        "2028-02-29T00:00:00-05:00",
        "2028-02-29T00:01:00-05:00",
    ]


@pytest.mark.parametrize(
    "rule", ["0 0 30 2 *", "", "* * * *", "60 * * * *", "* * * * * * *", "a b c d e", "1/0 * * * *"]
)
def test_invalid_expressions(rule: str) -> None:
    with pytest.raises(LmqError, match="cron"):
        CronRule(rule, "UTC")


@pytest.mark.parametrize(
    "zone", ["Nowhere/Town", "", "../../etc/passwd", "/etc/localtime", "x" * 100, "M\xfcnchen", "Europe"]
)
def test_invalid_zones(zone: str) -> None:
    with pytest.raises(LmqError, match="time zone"):
        CronRule("* * * * *", zone)
