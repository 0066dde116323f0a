"""Rates and retention times of queues, as in LMQ's ``/stats``.

There are two kinds of figures, both of this node and both bounded in memory:

- A meter derives exponentially weighted rates over 1, 5 and 15 minutes and a day from a growing total. It is updated every
  five seconds. An idle queue costs one comparison per tick; its decay is computed on reading.
- A retention window holds how long the messages delivered in the last 60 seconds had been due, at most 100 samples a second.

Nothing here reads a clock: deliveries carry their time, and a `Stats.tick` stands for five seconds.
"""

from __future__ import annotations

import math
import random
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

__all__ = ["Stats", "describe"]

TICK_S = 5
WINDOW_S = 60
SAMPLES_PER_SECOND_MAX = 100
SAMPLES_MIN = 5
BINS_MAX = 50
_MICRO = 1_000_000
_TOGETHER = 500
"""Number of names that one step of `Stats.ticking` checks for deleted queues."""
_MINUTES = (1, 5, 15, 1440)
_FIVE = 1
"""Index of the five minutes in `_MINUTES`."""
_KEEP = tuple(math.exp(-TICK_S / 60 / minutes) for minutes in _MINUTES)
_PERCENTILES = (("50", 0.5), ("75", 0.75), ("90", 0.9), ("95", 0.95), ("99", 0.99), ("999", 0.999))


class _Meter:
    """Rates of one growing total, per second.

    `updated` is the tick of `rates`, and `latest` is the rate of the five seconds before it.
    """

    __slots__ = ("born", "latest", "rates", "total", "updated")

    def __init__(self, tick: int) -> None:
        self.born = tick
        self.total = 0
        self.updated = tick
        self.latest = 0.0
        self.rates: tuple[float, ...] = (0.0,) * 4

    def advance(self, total: int, tick: int) -> None:
        """Update the rates with the total as of `tick`; an unchanged total is a no-op."""
        if total == self.total:
            return
        if total < self.total:
            # The queue was deleted and recreated, so the old rates do not apply.
            self.total, self.born = 0, tick - 1
        now = self.latest = (total - self.total) / TICK_S
        if self.born == tick - 1:
            # The first rate is taken unweighted, so that a new queue does not seem slow for a day.
            self.rates = (now,) * 4
        else:
            before = self.rates_at(tick - 1)
            self.rates = tuple(keep * rate + (1 - keep) * now for keep, rate in zip(_KEEP, before, strict=True))
        self.total = total
        self.updated = tick

    def rates_at(self, tick: int) -> tuple[float, ...]:
        """Return the rates at a tick, with no traffic since `updated`."""
        idle = max(0, tick - self.updated)
        return tuple(rate * keep**idle for rate, keep in zip(self.rates, _KEEP, strict=True))

    def rate_at(self, tick: int, window: int) -> float:
        """Return one rate at a tick, by its index in `_MINUTES`."""
        rate = self.rates[window]
        return rate * _KEEP[window] ** max(0, tick - self.updated) if rate else 0.0

    def describe(self, tick: int, count: int | None) -> dict[str, object]:
        total = self.total if count is None else count
        one, five, fifteen, day = self.rates_at(tick)
        return {
            "count": total,
            "one": one,
            "five": five,
            "fifteen": fifteen,
            "day": day,
            "mean": total / (max(1, tick - self.born) * TICK_S),
            "acceleration": {
                "one_to_five": (one - five) / 300,
                "five_to_fifteen": (five - fifteen) / 600,
                "one_to_fifteen": (one - fifteen) / 900,
            },
        }


class _Retention:
    """Waiting times in seconds per second of delivery; a uniform sample of 100 if there were more."""

    __slots__ = ("second", "seconds", "seen")

    def __init__(self) -> None:
        self.seconds: deque[tuple[int, array[float]]] = deque()
        self.second = -1
        self.seen = 0

    def add(self, waited_s: float, second: int, rng: random.Random) -> None:
        if second > self.second:
            self.second = second
            self.seen = 0
            self.seconds.append((second, array("d")))
            self.drop_before(second - WINDOW_S)
        self.seen += 1
        samples = self.seconds[-1][1]
        if len(samples) < SAMPLES_PER_SECOND_MAX:
            samples.append(waited_s)
            return
        place = int(rng.random() * self.seen)
        if place < SAMPLES_PER_SECOND_MAX:
            samples[place] = waited_s

    def drop_before(self, second: int) -> None:
        seconds = self.seconds
        while seconds and seconds[0][0] < second:
            seconds.popleft()

    def values(self, second: int) -> list[float]:
        """Return the samples of the 60 seconds up to `second`."""
        oldest = second - WINDOW_S
        return [value for moment, samples in self.seconds if moment >= oldest for value in samples]


class Stats:
    """Meters and retention windows of all queues of one node."""

    def __init__(self, seed: int | None = None) -> None:
        """Start empty. `seed` makes the sampling of more than 100 deliveries a second repeatable."""
        self._rng = random.Random(seed)
        self._ticks = 0
        self._baselines = 0
        self._push: dict[bytes, _Meter] = {}
        self._pull: dict[bytes, _Meter] = {}
        self._retention: dict[bytes, _Retention] = {}
        self._last_due_us: dict[bytes, int] = {}
        self._now_us = 0
        self._delivered = False

    def on_delivery(self, queue: bytes, waited_us: int, now_us: int, last_due_us: int | None = None) -> None:
        """Record how long a delivered message had been due and when it was delivered, in microseconds; O(1).

        For several messages, `waited_us` is the wait of the first one and `last_due_us` the due time of the last one.
        """
        self._now_us = max(self._now_us, now_us)
        self._delivered = True
        window = self._retention.get(queue)
        if window is None:
            window = self._retention[queue] = _Retention()
        self._last_due_us[queue] = now_us - waited_us if last_due_us is None else last_due_us
        window.add(max(0, waited_us) / _MICRO, now_us // _MICRO, self._rng)

    def last_due_us(self, queue: bytes) -> int | None:
        """Return the due time of the last delivered message; None if there was no delivery since the node started."""
        return self._last_due_us.get(queue)

    def baseline(self, totals: Iterable[tuple[bytes, int, int]]) -> None:
        """Set ``(name, pushed, pulled)`` totals without counting them as traffic, as after loading a snapshot."""
        self._baselines += 1
        for name, pushed, pulled in totals:
            self._meter(self._push, name).total = pushed
            self._meter(self._pull, name).total = pulled

    def tick(self, totals: Iterable[tuple[bytes, int, int]]) -> None:
        """Advance by five seconds; `totals` is ``(name, pushed, pulled)`` of every queue."""
        for _step in self.ticking(totals):
            pass

    def ticking(self, totals: Iterable[tuple[bytes, int, int]]) -> Iterator[None]:
        """Do the work of `tick` in steps; other changes may happen between them, and a `baseline` ends the work."""
        tick, baselines = self._ticks + 1, self._baselines
        known = [list(named) for named in (self._push, self._pull, self._last_due_us)]
        listed = set()
        for name, pushed, pulled in totals:
            listed.add(name)
            self._meter(self._push, name).advance(pushed, tick)
            self._meter(self._pull, name).advance(pulled, tick)
            yield
            if baselines != self._baselines:
                return
        self._ticks = tick
        tables: tuple[dict[bytes, Any], ...] = (self._push, self._pull, self._last_due_us)
        for named, names in zip(tables, known, strict=True):
            for start in range(0, len(names), _TOGETHER):
                for name in names[start : start + _TOGETHER]:
                    if name not in listed:
                        named.pop(name, None)
                yield
        yield from self._expiring()

    def forget(self, queue: bytes) -> None:
        """Delete the figures of a deleted queue."""
        self._push.pop(queue, None)
        self._pull.pop(queue, None)
        self._retention.pop(queue, None)
        self._last_due_us.pop(queue, None)

    def snapshot(
        self,
        queue: bytes,
        *,
        pushed_total: int | None = None,
        pulled_total: int | None = None,
        now_us: int | None = None,
    ) -> dict[str, object]:
        """Return the figures of one queue: ``{"push": METER, "pull": METER, "retention": HISTOGRAM}``.

        Args:
            queue: its name; the figures of an unknown queue are zero.
            pushed_total: the push count to show, if it is more recent than the last tick.
            pulled_total: the pull count to show, likewise.
            now_us: end of the retention window on the clock of the deliveries; by default the last known time.
        """
        nothing = _Meter(self._ticks)
        window = self._retention.get(queue)
        second = (self._now_us if now_us is None else now_us) // _MICRO
        return {
            "push": self._push.get(queue, nothing).describe(self._ticks, pushed_total),
            "pull": self._pull.get(queue, nothing).describe(self._ticks, pulled_total),
            "retention": describe(window.values(second) if window else ()),
        }

    def recent(self, queue: bytes) -> tuple[float, float]:
        """Return the pushes and the pulls per second of a queue in the last five complete seconds."""
        return self._latest(self._push.get(queue)), self._latest(self._pull.get(queue))

    def idle_s(self, queue: bytes) -> int | None:
        """Return the seconds since the last delivery from a queue, in steps of five; None if this node has seen none."""
        meter = self._pull.get(queue)
        return None if meter is None or not meter.total else (self._ticks - meter.updated) * TICK_S

    def _latest(self, meter: _Meter | None) -> float:
        return meter.latest if meter is not None and meter.updated >= self._ticks else 0.0

    def rate(self, queue: bytes) -> float:
        """Return the sum of pushes and pulls per second of a queue over the last five minutes."""
        found = (meters.get(queue) for meters in (self._push, self._pull))
        return sum(meter.rate_at(self._ticks, _FIVE) for meter in found if meter is not None)

    def _meter(self, meters: dict[bytes, _Meter], name: bytes) -> _Meter:
        meter = meters.get(name)
        if meter is None:
            meter = meters[name] = _Meter(self._ticks)
        return meter

    def _expiring(self) -> Iterator[None]:
        # Deliveries advance the time. Ticks advance it only if there were none, so that it does not run ahead.
        if not self._delivered:
            self._now_us += TICK_S * _MICRO
        self._delivered = False
        oldest = self._now_us // _MICRO - WINDOW_S
        names = list(self._retention)
        for start in range(0, len(names), _TOGETHER):
            for name in names[start : start + _TOGETHER]:
                window = self._retention.get(name)
                if window is not None and window.second < oldest:
                    del self._retention[name]
            yield


def describe(values: Sequence[float]) -> dict[str, object]:
    """Return moments, percentiles and a histogram of samples; all zero for fewer than five.

    Variance and standard deviation are those of a sample (n - 1). Skewness and excess kurtosis divide the central
    moments by powers of that deviation. Percentiles are nearest ranks.
    """
    if len(values) < SAMPLES_MIN:
        return _nothing()
    ordered = sorted(values)
    n = len(ordered)
    mean = math.fsum(ordered) / n
    variance = math.fsum((x - mean) ** 2 for x in ordered) / (n - 1)
    deviation = math.sqrt(variance)
    positive = ordered[0] > 0
    return {
        "min": ordered[0],
        "max": ordered[-1],
        "arithmetic_mean": mean,
        "geometric_mean": math.exp(math.fsum(map(math.log, ordered)) / n) if positive else 0.0,
        "harmonic_mean": n / math.fsum(1 / x for x in ordered) if positive else 0.0,
        "median": _rank(ordered, 0.5),
        "variance": variance,
        "standard_deviation": deviation,
        "skewness": _moment(ordered, mean, 3) / deviation**3 if deviation else 0.0,
        "kurtosis": _moment(ordered, mean, 4) / deviation**4 - 3 if deviation else 0.0,
        "percentile": {name: _rank(ordered, share) for name, share in _PERCENTILES},
        "histogram": _histogram(ordered, deviation),
        "n": n,
    }


def _nothing() -> dict[str, object]:
    zero: dict[str, object] = dict.fromkeys(
        (
            "min", "max", "arithmetic_mean", "geometric_mean", "harmonic_mean", "median", "variance",
            "standard_deviation", "skewness", "kurtosis",
        ),
        0,
    )  # fmt: skip
    return zero | {
        "percentile": dict.fromkeys((name for name, _share in _PERCENTILES), 0),
        "histogram": [{"bin": 0, "count": 0}],
        "n": 0,
    }


def _rank(ordered: Sequence[float], share: float) -> float:
    return ordered[max(1, math.floor(share * len(ordered) + 0.5)) - 1]


def _moment(values: Sequence[float], mean: float, order: int) -> float:
    return math.fsum((x - mean) ** order for x in values) / len(values)


def _histogram(ordered: Sequence[float], deviation: float) -> list[dict[str, object]]:
    """Return bins of equal width by Scott's rule; `bin` is the inclusive upper edge."""
    low, high = ordered[0], ordered[-1]
    width = 3.5 * deviation / len(ordered) ** (1 / 3)
    count = min(BINS_MAX, math.ceil((high - low) / width)) if width > 0 else 1
    if count <= 1 or low + (high - low) / count <= low:
        return [{"bin": high, "count": len(ordered)}]
    edges = [low + (high - low) * i / count for i in range(1, count)] + [high]
    counts = [0] * count
    place = 0
    for value in ordered:
        while value > edges[place]:
            place += 1
        counts[place] += 1
    return [{"bin": edge, "count": seen} for edge, seen in zip(edges, counts, strict=True)]
