"""The statistics of a drill's history: throughput, latency, pauses and errors, in total and around each fault."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from ..load.history import Event

__all__ = ["Bucket", "Latency", "Window", "buckets", "errors_of", "latencies", "longest_pause_s", "operations"]

BUCKET_US = 250_000


@dataclass(slots=True)
class Window:
    """The time span of a fault.

    Attributes:
        kind, hit: the fault, and the nodes whose clients may notice it.
        begin_us, end_us: from the start of the first effect to the end of the last one.
        in_step_s: time until all members had caught up under one leader; None if they never were.
        leader_s: time from the start until a new leader was known; None if there was no election.
        pause_s: longest pause of clients of unaffected nodes; None if the fault hit all nodes.
    """

    kind: str
    hit: tuple[str, ...]
    begin_us: int
    end_us: int
    in_step_s: float | None = None
    leader_s: float | None = None
    pause_s: float | None = None


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds from start to answer of successful operations."""

    count: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True)
class Bucket:
    """A quarter of a second: the successful operations, and the latency of the slowest."""

    time_us: int
    pushes: int
    deliveries: int
    push_p50_ms: float
    push_max_ms: float


def operations(events: Iterable[Event]) -> dict[str, dict[str, int]]:
    """Return the attempts by operation and outcome."""
    counted: dict[str, Counter[str]] = defaultdict(Counter)
    for event in events:
        counted[event.op][event.outcome] += 1
    return {op: dict(sorted(outcomes.items())) for op, outcomes in sorted(counted.items())}


def latencies(events: Iterable[Event], since_us: int = 0, until_us: int = 1 << 62) -> Latency | None:
    """Return the latencies of successful pushes between two moments; None if there were none."""
    took = sorted(
        (event.end_us - event.time_us) / 1000
        for event in events
        if event.op == "push" and event.outcome == "ok" and since_us <= event.end_us < until_us
    )
    if not took:
        return None
    p50, p95, p99 = (took[min(len(took) - 1, int(len(took) * part))] for part in (0.5, 0.95, 0.99))
    return Latency(len(took), p50, p95, p99, took[-1])


def longest_pause_s(events: Iterable[Event], sites: Collection[str], since_us: int, until_us: int) -> float:
    """Return the longest time that a producer at these sites waited for a push, of waits that overlap the interval."""
    waits = [
        min(event.end_us, until_us) - event.time_us
        for event in events
        if event.op == "push" and event.site in sites and event.time_us < until_us and event.end_us > since_us
    ]
    return max(waits, default=0) / 1e6


def errors_of(events: Iterable[Event], sites: Collection[str]) -> Counter[str]:
    """Return the errors that clients at these sites got, by operation and code."""
    return Counter(f"{event.op} {event.error}" for event in events if event.error is not None and event.site in sites)


def buckets(events: Sequence[Event]) -> list[Bucket]:
    """Return throughput and latency by quarter of a second."""
    pushes: dict[int, list[float]] = defaultdict(list)
    deliveries: Counter[int] = Counter()
    for event in events:
        if event.outcome != "ok" or (event.op == "pull" and event.value is None):
            continue
        if event.op == "push":
            pushes[event.end_us // BUCKET_US].append((event.end_us - event.time_us) / 1000)
        elif event.op == "pull":
            deliveries[event.end_us // BUCKET_US] += 1
    numbers = sorted({*pushes, *deliveries})
    if not numbers:
        return []
    return [
        _bucket(number, sorted(pushes.get(number, ())), deliveries[number])
        for number in range(numbers[0], numbers[-1] + 1)
    ]


def _bucket(number: int, took: Sequence[float], deliveries: int) -> Bucket:
    middle = took[len(took) // 2] if took else 0.0
    return Bucket(number * BUCKET_US, len(took), deliveries, middle, took[-1] if took else 0.0)
