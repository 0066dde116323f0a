"""Unix times become log times without changing places."""

from __future__ import annotations

import time

import pytest

from lmqcluster.node.queues.due_times import STEP_US, DueTimes

LOG_AHEAD_US = 5_000_000


class Clocks:
    """Log time and Unix time, each set by hand."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.unix_us = 1_000_000_000_000
        self.log_us = self.unix_us + LOG_AHEAD_US
        patch.setattr(time, "time_ns", lambda: self.unix_us * 1000)
        self.due = DueTimes(lambda: self.log_us)

    def pass_us(self, unix_us: int, log_us: int) -> None:
        """Let time pass on each clock."""
        self.unix_us += unix_us
        self.log_us += log_us


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


def test_times_keep_their_distance_though_the_estimate_of_log_time_wavers(clocks: Clocks) -> None:
    found = []
    for number in range(100):
        clocks.pass_us(1_000, 1_000 + (number % 7 - 3) * 1_500)
        found.append(clocks.due.log_us(2_000_000.0 + number / 1_000))
    assert found == [2_000_000_000_000 + LOG_AHEAD_US - 4_500 + number * 1_000 for number in range(100)]


@pytest.mark.parametrize("step_us", [STEP_US + 2, -STEP_US - 2, 3_600_000_000])
def test_a_clock_that_was_set_counts_from_then_on(clocks: Clocks, step_us: int) -> None:
    before = clocks.due.log_us(2_000_000.0)
    clocks.pass_us(step_us, 0)
    assert clocks.due.log_us(2_000_000.0) == before - step_us


def test_there_is_no_log_time_before_the_first(clocks: Clocks) -> None:
    clocks.pass_us(0, -clocks.log_us)
    assert clocks.due.log_us(1.0) == 1
