"""Statistics of timings: percentiles, medians of repeats, and ratios that are robust on a noisy machine.

A shared machine is fast in one second and slow in the next. Systems are therefore compared only within one repeat,
where they ran one right after the other, and the reported ratio is the median of these paired ratios, not the ratio of
two medians.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .cases import Row


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of one repeat of one row on one system: a rate, or a distribution of latencies."""

    system: str
    row: Row
    repeat: int
    operations: int
    """Number of messages behind the figures."""
    rate: float | None = None
    """Messages per second."""
    p50_ms: float | None = None
    p99_ms: float | None = None
    client_load: float | None = None
    """Share of one core that the client used. Close to 1, the client limits the rate."""

    @property
    def score(self) -> float:
        """Return the figure by which systems are compared, scaled so that more is better."""
        if self.rate is not None:
            return self.rate
        assert self.p50_ms is not None
        return 1 / self.p50_ms


@dataclass(slots=True)
class Figure:
    """The median of all repeats of one row on one system."""

    repeats: int
    operations: int
    rate: float | None = None
    rate_range: tuple[float, float] | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    client_load: float | None = None


@dataclass(slots=True)
class Comparison:
    """One row of the result: the figures of all systems, and the ratio of the reference system to each peer."""

    row: Row
    figures: dict[str, Figure] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    """Ratio by peer. Above 1 the reference system is better: more messages per second, or a lower latency."""


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that at least `percent` of all values do not exceed (nearest rank).

    Raises:
        ValueError: there are no values, or `percent` is not in (0, 100].
    """
    if not values:
        raise ValueError("a percentile needs at least one value")
    if not 0 < percent <= 100:
        raise ValueError(f"{percent} is not a percentage above 0")
    rank = -(-len(values) * percent // 100)  # ceiling
    return sorted(values)[int(rank) - 1]


def figure_of(measurements: Sequence[Measurement]) -> Figure:
    """Return the medians of the repeats of one row on one system."""
    figure = Figure(repeats=len(measurements), operations=sum(each.operations for each in measurements))
    rates = [each.rate for each in measurements if each.rate is not None]
    if rates:
        figure.rate, figure.rate_range = statistics.median(rates), (min(rates), max(rates))
    figure.p50_ms = _median_of_known(each.p50_ms for each in measurements)
    figure.p99_ms = _median_of_known(each.p99_ms for each in measurements)
    figure.client_load = _median_of_known(each.client_load for each in measurements)
    return figure


def _median_of_known(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def paired_ratio(ours: Iterable[Measurement], theirs: Iterable[Measurement]) -> float | None:
    """Return the median over repeats of our score to theirs in the same repeat; ``None`` if no repeat has both."""
    score_of_peer = {each.repeat: each.score for each in theirs}
    ratios = [each.score / score_of_peer[each.repeat] for each in ours if each.repeat in score_of_peer]
    return statistics.median(ratios) if ratios else None


def compare(measurements: Iterable[Measurement], reference: str) -> list[Comparison]:
    """Return one comparison per row, in the order of first measurement, with `reference` compared to every
    other system.
    """
    grouped: dict[Row, dict[str, list[Measurement]]] = defaultdict(lambda: defaultdict(list))
    for each in measurements:
        grouped[each.row][each.system].append(each)
    return [_compare_row(row, by_system, reference) for row, by_system in grouped.items()]


def _compare_row(row: Row, by_system: Mapping[str, Sequence[Measurement]], reference: str) -> Comparison:
    comparison = Comparison(row, {system: figure_of(found) for system, found in by_system.items()})
    for system, found in by_system.items():
        if system != reference and reference in by_system:
            ratio = paired_ratio(by_system[reference], found)
            if ratio is not None:
                comparison.ratios[system] = ratio
    return comparison
