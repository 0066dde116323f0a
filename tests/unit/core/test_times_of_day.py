"""The wall clock time of a message: the same at every node, independent of later clock changes."""

from __future__ import annotations

import pytest

from lmqcluster.core import Fault, Op
from lmqcluster.core.state.times_of_day import ROWS_MAX, TimesOfDay
from tests.property.driver import SECOND, Driver, copied, records


def test_later_changes_do_not_change_earlier_times() -> None:
    times = TimesOfDay()
    assert times.unix_us(7) is None
    times.tell(100, 1_000)
    times.tell(200, 5_000)
    assert [times.unix_us(log_us) for log_us in (50, 100, 199, 200, 300)] == [950, 1_000, 1_099, 5_000, 5_100]
    assert times.ahead_us == 4_800


def test_a_bounded_number_of_changes_is_remembered() -> None:
    times = TimesOfDay()
    for number in range(ROWS_MAX + 10):
        times.tell(number, number * 7)
    assert len(list(times.rows())) == ROWS_MAX
    assert times.unix_us(ROWS_MAX + 9) == (ROWS_MAX + 9) * 7


def test_snapshots_have_them() -> None:
    driver = Driver()
    driver.do(Op.SET_TIME, 1_700_000_000 * SECOND)
    driver.wait(60)
    driver.do(Op.SET_TIME, 1_700_003_660 * SECOND)
    restored = copied(driver.machine)
    assert records(restored) == records(driver.machine)
    assert restored.state.times.unix_us(driver.now_us) == 1_700_003_660 * SECOND


@pytest.mark.parametrize("wrong", [-1, 1 << 60, 1.5, b"1", None])
def test_an_invalid_time_is_refused(wrong: object) -> None:
    driver = Driver()
    assert isinstance(driver.batch([Op.SET_TIME, wrong])[0], Fault)
