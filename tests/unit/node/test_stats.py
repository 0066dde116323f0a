"""Meters and retention windows against straightforward formulas (LMQ specification 9.3)."""

from __future__ import annotations

import math
import random
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmqcluster.node.metrics.stats import Stats, describe

SECOND = 1_000_000


def meter(stats: Stats, queue: bytes = b"q", kind: str = "push", **more: Any) -> dict[str, Any]:
    value = stats.snapshot(queue, **more)[kind]
    assert isinstance(value, dict)
    return value


def retention(stats: Stats, queue: bytes = b"q", **more: Any) -> dict[str, Any]:
    value = stats.snapshot(queue, **more)["retention"]
    assert isinstance(value, dict)
    return value


def reference_rates(deltas: list[int]) -> dict[str, float]:
    """Return one exponentially weighted average per window, stepped tick by tick, starting with the first
    tick's value.
    """
    rates = {}
    for name, minutes in (("one", 1), ("five", 5), ("fifteen", 15), ("day", 1440)):
        alpha = 1 - math.exp(-5 / (60 * minutes))
        rate = deltas[0] / 5 if deltas else 0.0
        for delta in deltas[1:]:
            rate += alpha * (delta / 5 - rate)
        rates[name] = rate
    return rates


@given(st.lists(st.integers(0, 1000), max_size=40))
def test_rates_are_those_of_a_meter_stepped_every_five_seconds(deltas: list[int]) -> None:
    stats = Stats()
    total = 0
    for delta in deltas:
        total += delta
        stats.tick([(b"q", total, 0)])
    shown = meter(stats)
    for name, rate in reference_rates(deltas).items():
        assert shown[name] == pytest.approx(rate, rel=1e-9, abs=1e-12)
    assert shown["count"] == total
    if deltas:
        assert shown["mean"] == pytest.approx(total / (5 * len(deltas)))


def test_an_idle_queue_decays_as_if_it_were_updated() -> None:
    stats = Stats()
    stats.tick([(b"q", 500, 0)])
    for _ in range(12):
        stats.tick([(b"q", 500, 0)])
    assert meter(stats)["one"] == pytest.approx(100 * math.exp(-1))
    assert meter(stats)["five"] == pytest.approx(100 * math.exp(-1 / 5))


def test_acceleration_is_the_difference_of_rates_over_time() -> None:
    stats = Stats()
    for total in (100, 150, 700):
        stats.tick([(b"q", total, 0)])
    shown = meter(stats)
    assert shown["acceleration"] == pytest.approx(
        {
            "one_to_five": (shown["one"] - shown["five"]) / 300,
            "five_to_fifteen": (shown["five"] - shown["fifteen"]) / 600,
            "one_to_fifteen": (shown["one"] - shown["fifteen"]) / 900,
        }
    )


def test_pushes_and_pulls_are_separate() -> None:
    stats = Stats()
    stats.tick([(b"q", 10, 5)])
    assert meter(stats, kind="push")["one"] == 2
    assert meter(stats, kind="pull")["one"] == 1


def test_counts_may_be_more_recent_than_the_last_tick() -> None:
    stats = Stats()
    stats.tick([(b"q", 10, 5)])
    shown = stats.snapshot(b"q", pushed_total=12, pulled_total=6)
    assert (shown["push"]["count"], shown["pull"]["count"]) == (12, 6)  # type: ignore[index]


def test_an_unknown_queue_has_zeros() -> None:
    shown = Stats().snapshot(b"unknown")
    zero = {
        "count": 0, "one": 0, "five": 0, "fifteen": 0, "day": 0, "mean": 0,
        "acceleration": {"one_to_five": 0, "five_to_fifteen": 0, "one_to_fifteen": 0},
    }  # fmt: skip
    assert shown["push"] == zero
    assert shown["pull"] == zero
    assert list(shown) == ["push", "pull", "retention"]


def test_keys_are_in_the_order_of_the_specification() -> None:
    stats = Stats()
    stats.tick([(b"q", 1, 0)])
    assert list(meter(stats)) == ["count", "one", "five", "fifteen", "day", "mean", "acceleration"]
    order = [
        "min", "max", "arithmetic_mean", "geometric_mean", "harmonic_mean", "median", "variance", "standard_deviation",
        "skewness", "kurtosis", "percentile", "histogram", "n",
    ]  # fmt: skip
    assert list(describe([])) == order
    assert list(describe([1, 2, 3, 4, 5])) == order


def test_a_deleted_queue_starts_over() -> None:
    stats = Stats()
    stats.tick([(b"q", 1000, 0)])
    stats.on_delivery(b"q", SECOND, SECOND)
    stats.forget(b"q")
    assert meter(stats)["one"] == 0
    stats.tick([(b"q", 10, 0)])
    assert meter(stats)["one"] == 2


def test_a_total_that_fell_is_another_queue_of_the_same_name() -> None:
    stats = Stats()
    stats.tick([(b"q", 1000, 0)])
    stats.tick([(b"q", 15, 0)])
    shown = meter(stats)
    assert shown["one"] == 3
    assert shown["count"] == 15
    assert shown["mean"] == 3


def test_deleted_queues_are_forgotten() -> None:
    stats = Stats()
    stats.tick([(b"a", 5, 0), (b"b", 5, 0)])
    stats.tick([(b"b", 5, 0)])
    assert meter(stats, b"a")["count"] == 0
    assert meter(stats, b"b")["count"] == 5


def test_a_baseline_is_no_traffic() -> None:
    stats = Stats()
    stats.baseline([(b"q", 1_000_000, 900_000)])
    stats.tick([(b"q", 1_000_010, 900_000)])
    assert meter(stats)["one"] == 2
    assert meter(stats, kind="pull")["one"] == 0


# --- retention ------------------------------------------------------------------------------------------------------


def test_fewer_than_five_samples_are_shown_as_nothing() -> None:
    stats = Stats()
    for _ in range(4):
        stats.on_delivery(b"q", SECOND, SECOND)
    shown = retention(stats)
    assert shown == describe([])
    assert shown["n"] == 0
    assert shown["histogram"] == [{"bin": 0, "count": 0}]
    assert shown["percentile"] == {"50": 0, "75": 0, "90": 0, "95": 0, "99": 0, "999": 0}
    stats.on_delivery(b"q", SECOND, SECOND)
    assert retention(stats)["n"] == 5


def test_waits_are_shown_in_seconds() -> None:
    stats = Stats()
    for waited_us in (100_000, 200_000, 300_000, 400_000, 1_500_000):
        stats.on_delivery(b"q", waited_us, 10 * SECOND)
    shown = retention(stats)
    assert (shown["min"], shown["max"], shown["median"], shown["n"]) == (0.1, 1.5, 0.3, 5)
    assert shown["arithmetic_mean"] == pytest.approx(0.5)


def test_a_corrected_clock_causes_no_negative_wait() -> None:
    stats = Stats()
    for _ in range(5):
        stats.on_delivery(b"q", -7, SECOND)
    assert retention(stats)["min"] == 0


def test_samples_older_than_sixty_seconds_are_left_out() -> None:
    stats = Stats()
    for second in (100, 159, 160, 161):
        for _ in range(5):
            stats.on_delivery(b"q", second * SECOND, second * SECOND)
    assert retention(stats)["n"] == 15
    assert retention(stats, now_us=160 * SECOND)["n"] == 20 - 5
    assert retention(stats, now_us=300 * SECOND)["n"] == 0


def test_without_deliveries_samples_age_with_the_ticks() -> None:
    stats = Stats()
    for _ in range(5):
        stats.on_delivery(b"q", SECOND, 100 * SECOND)
    for _ in range(12):
        stats.tick([(b"q", 5, 5)])
    assert retention(stats)["n"] == 5
    for _ in range(2):
        stats.tick([(b"q", 5, 5)])
    assert retention(stats)["n"] == 0
    assert not stats._retention


def test_at_most_a_hundred_samples_a_second() -> None:
    stats = Stats(seed=1)
    for i in range(1000):
        stats.on_delivery(b"q", i * SECOND, 100 * SECOND + i)
    for i in range(250):
        stats.on_delivery(b"q", i * SECOND, 101 * SECOND + i)
    assert retention(stats)["n"] == 200


def test_the_hundred_samples_are_unbiased() -> None:
    stats = Stats(seed=7)
    for i in range(10_000):
        stats.on_delivery(b"q", i * SECOND, 100 * SECOND)
    shown = retention(stats)
    # The mean of 100 uniform values on 0..9999 has a standard error of 289: five of them suffice.
    assert abs(shown["arithmetic_mean"] - 5000) < 5 * 289
    assert shown["max"] > 9000
    assert shown["min"] < 1000


def test_memory_is_bounded() -> None:
    stats = Stats()
    for second in range(1000):
        for _ in range(150):
            stats.on_delivery(b"q", 1, second * SECOND)
    window = stats._retention[b"q"]
    assert len(window.seconds) <= 61
    assert sum(len(samples) for _second, samples in window.seconds) <= 6100


def moment(values: list[float], order: int) -> float:
    mean = statistics.fmean(values)
    return statistics.fmean((value - mean) ** order for value in values)


@given(st.lists(st.integers(1, 10_000_000), min_size=5, max_size=200))
def test_statistics_match_the_textbook(micros: list[int]) -> None:
    values = [value / 1e6 for value in micros]
    shown = describe(values)
    ordered = sorted(values)
    assert shown["n"] == len(values)
    assert (shown["min"], shown["max"]) == (ordered[0], ordered[-1])
    assert shown["arithmetic_mean"] == pytest.approx(statistics.fmean(values))
    assert shown["geometric_mean"] == pytest.approx(statistics.geometric_mean(values))
    assert shown["harmonic_mean"] == pytest.approx(statistics.harmonic_mean(values))
    assert shown["variance"] == pytest.approx(statistics.variance(values), rel=1e-6, abs=1e-15)
    assert shown["standard_deviation"] == pytest.approx(statistics.stdev(values), rel=1e-6, abs=1e-9)
    if len(set(values)) > 1:
        deviation = statistics.stdev(values)
        assert shown["skewness"] == pytest.approx(moment(values, 3) / deviation**3, rel=1e-6, abs=1e-6)
        assert shown["kurtosis"] == pytest.approx(moment(values, 4) / deviation**4 - 3, rel=1e-6, abs=1e-6)
    histogram = shown["histogram"]
    assert isinstance(histogram, list)
    assert sum(entry["count"] for entry in histogram) == len(values)
    edges = [entry["bin"] for entry in histogram]
    assert edges == sorted(set(edges))
    assert edges[-1] == ordered[-1]
    below = 0
    for entry in histogram:
        below += entry["count"]
        assert below == sum(1 for value in values if value <= entry["bin"])


def test_percentiles_are_nearest_ranks() -> None:
    values = [float(i) for i in range(1, 1001)]
    random.Random(3).shuffle(values)
    shown = describe(values)
    assert shown["percentile"] == {"50": 500, "75": 750, "90": 900, "95": 950, "99": 990, "999": 999}
    assert describe([5, 4, 3, 2, 1])["median"] == 3


def test_equal_samples_have_one_bin_and_no_shape() -> None:
    shown = describe([0.25] * 9)
    assert shown["histogram"] == [{"bin": 0.25, "count": 9}]
    assert (shown["variance"], shown["skewness"], shown["kurtosis"]) == (0, 0, 0)


def test_zero_waits_have_zero_geometric_and_harmonic_means() -> None:
    shown = describe([0, 0, 1, 2, 3])
    assert (shown["geometric_mean"], shown["harmonic_mean"]) == (0, 0)


def test_the_rate_of_the_last_five_seconds_drops_to_zero() -> None:
    stats = Stats()
    stats.baseline([(b"q", 100, 40)])
    stats.tick([(b"q", 100, 40)])
    assert stats.recent(b"q") == (0.0, 0.0)
    stats.tick([(b"q", 150, 45)])
    assert stats.recent(b"q") == (10.0, 1.0)
    stats.tick([(b"q", 150, 45)])
    assert stats.recent(b"q") == (0.0, 0.0)
    assert stats.recent(b"unknown") == (0.0, 0.0)
