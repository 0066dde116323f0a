"""Histograms: every value in exactly one bucket."""

from __future__ import annotations

from lmqcluster.replication.base.histogram import Histogram


def test_a_value_on_a_bound_belongs_below_it() -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.1001, 1.0, 7.0):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1]
    assert histogram.cumulative() == [2, 4, 5]


def test_repeated_values_are_counted() -> None:
    histogram = Histogram((1.0,))
    histogram.observe(0.5, 100)
    histogram.observe(2.0, 0)
    assert histogram.counts == [100, 0]
    assert histogram.sum == 50.0
