"""Log time continues from the latest stamp, and never goes back."""

import time

import pytest

from lmqcluster.replication.base.log_clock import LogClock

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US


def test_the_first_leader_begins_with_its_wall_clock() -> None:
    before = time.time_ns() // 1000
    clock = LogClock()
    clock.lead(0)
    assert before <= clock.now_us() <= time.time_ns() // 1000 + 1_000_000


def test_a_follower_takes_the_leaders_stamp_even_if_it_is_earlier() -> None:
    clock = LogClock()
    stamp = clock.now_us() - HOUR_US
    clock.follow(stamp)
    assert stamp <= clock.now_us() < stamp + HOUR_US


@pytest.mark.parametrize("wrong_us", [-DAY_US, DAY_US])
def test_a_first_leadership_continues_where_the_log_stops(wrong_us: int) -> None:
    clock = LogClock()
    stamp = clock.now_us() - wrong_us
    clock.lead(stamp)
    assert stamp <= clock.now_us() < stamp + HOUR_US


def test_a_stamp_found_at_the_start_does_not_count_if_it_left_the_log() -> None:
    clock = LogClock()
    stamp = clock.now_us() - DAY_US
    clock.guess(stamp + HOUR_US)
    assert stamp + HOUR_US <= clock.now_us() < stamp + 2 * HOUR_US
    clock.lead(stamp)
    assert stamp <= clock.now_us() < stamp + HOUR_US


def test_a_leader_continues_from_the_newest_stamp_of_its_log() -> None:
    """Its log may hold entries of an earlier leader that it has not applied. A clock behind them would stop."""
    clock = LogClock()
    clock.follow(1_000_000)
    clock.lead(1_000_000 + HOUR_US)
    assert clock.now_us() >= 1_000_000 + HOUR_US
    clock.lead(5)
    assert clock.now_us() >= 1_000_000 + HOUR_US
