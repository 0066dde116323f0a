"""Keeping to a rate, by a clock that only waiting advances."""

from __future__ import annotations

import pytest

from lmqcluster.spark.writing.pacing import Pace


class Clock:
    """A clock that only sleeping advances."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.waits: list[float] = []

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("lmqcluster.spark.writing.pacing.time.monotonic", clock.monotonic)
    monkeypatch.setattr("lmqcluster.spark.writing.pacing.time.sleep", clock.sleep)
    return clock


def test_each_request_waits_once_for_the_earlier_ones(clock: Clock) -> None:
    pace = Pace(10.0)
    for _ in range(3):
        pace.wait()
        pace.passed(5)
    assert clock.waits == [0.5, 0.5]


def test_slow_requests_count_for_their_time_and_idle_time_is_not_saved(clock: Clock) -> None:
    pace = Pace(10.0)
    pace.wait()
    clock.now_s += 0.375
    pace.passed(5)
    pace.wait()
    assert clock.waits == [0.125]
    pace.passed(5)
    clock.now_s += 3600.0
    pace.wait()
    pace.passed(5)
    pace.wait()
    assert clock.waits == [0.125, 0.5]


def test_rows_stored_before_take_no_time(clock: Clock) -> None:
    pace = Pace(10.0)
    for _ in range(1000):
        pace.wait()
        pace.passed(0)
    assert clock.waits == []
