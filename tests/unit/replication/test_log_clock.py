"""Log time goes on from what was stamped, and never back."""

import time

from lmqcluster.replication.log_clock import LogClock

HOUR_US = 3_600_000_000


def test_it_begins_with_the_wall_clock() -> None:
    before = time.time_ns() // 1000
    clock = LogClock()
    assert before <= clock.now_us() <= time.time_ns() // 1000 + 1_000_000


def test_a_follower_takes_the_leaders_stamp_even_if_it_is_earlier() -> None:
    clock = LogClock()
    stamp = clock.now_us() - HOUR_US
    clock.follow(stamp)
    assert stamp <= clock.now_us() < stamp + HOUR_US


def test_a_leader_goes_on_from_the_newest_stamp_it_meets() -> None:
    """After a restart a leader applies entries of an earlier one. A clock behind them would stand still for the machine."""
    clock = LogClock()
    clock.follow(1_000_000)
    clock.at_least(1_000_000 + HOUR_US)
    assert clock.now_us() >= 1_000_000 + HOUR_US
    clock.at_least(5)
    assert clock.now_us() >= 1_000_000 + HOUR_US
