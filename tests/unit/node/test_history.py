"""A node's history of the last hour: the busiest queues, in a bounded number of samples."""

from __future__ import annotations

import asyncio

import pytest

from lmqcluster.node.metrics import history as history_module
from lmqcluster.node.metrics.attention import Attention, Thresholds
from lmqcluster.node.metrics.history import HISTORY_FIELDS, History
from lmqcluster.node.metrics.stats import Stats
from lmqcluster.node.metrics.totals import Totals
from lmqcluster.node.process.fair_slices import FairSlices
from tests.property.driver import Driver


class Watched:
    """Queues with a history, and time that passes in steps of five seconds."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.stats = Stats()
        totals = Totals(lambda: self.driver.machine.state, FairSlices())
        attention = Attention(Thresholds(), self.stats, lambda: self.driver.now_us, list)
        self.history = History(lambda: self.driver.machine.state, totals, self.stats, FairSlices(), attention)

    def sample(self) -> None:
        """Update the rates and take a sample."""
        queues = self.driver.machine.state.queues.values()
        self.stats.tick([(queue.name, queue.counters.pushed_total, queue.counters.pulled_total) for queue in queues])
        asyncio.run(self.history.sample())

    def column(self, queue: bytes, field: str) -> list[int]:
        samples = self.history.of_queue(queue)
        assert samples is not None
        return [sample[field] for sample in samples]


def test_samples_have_the_values_at_their_times() -> None:
    watched = Watched()
    for number in range(4):
        watched.driver.push(b"jobs", b"x", b"y")
        watched.driver.pull(b"jobs", number)
        watched.sample()
    assert watched.column(b"jobs", "pushed_total") == [2, 4, 6, 8]
    leased = watched.column(b"jobs", "leased")
    assert [ready + under for ready, under in zip(watched.column(b"jobs", "ready"), leased, strict=True)] == [
        2,
        4,
        6,
        8,
    ]
    assert watched.column(b"jobs", "pulled_total") == leased
    assert leased[-1] > 0
    times = watched.column(b"jobs", "at_s")
    assert times == sorted(times)
    samples = watched.history.of_queue(b"jobs")
    assert samples is not None
    assert samples[0].keys() == {"at_s", *HISTORY_FIELDS}
    assert watched.history.of_queue(b"none") is None


def test_the_oldest_samples_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "SAMPLES_MAX", 5)
    watched = Watched()
    for _ in range(12):
        watched.driver.push(b"jobs", b"x")
        watched.sample()
    assert watched.column(b"jobs", "pushed_total") == [8, 9, 10, 11, 12]


def test_only_the_busiest_queues_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "QUEUES_MAX", 3)
    watched = Watched()
    names = [b"queue-%d" % number for number in range(10)]
    for place, name in enumerate(names):
        watched.driver.push(name, *[b"x"] * (place + 1))
    watched.sample()
    assert [name for name in names if watched.history.of_queue(name)] == names[-3:]
    watched.driver.push(names[0], *[b"x"] * 1000)
    watched.sample()
    assert [name for name in names if watched.history.of_queue(name)] == [names[0], *names[-2:]]
    assert watched.column(names[-1], "pushed_total") == [10, 10]


def test_a_recreated_queue_starts_over_and_a_deleted_one_is_forgotten() -> None:
    watched = Watched()
    watched.driver.push(b"jobs", b"x", b"y")
    watched.sample()
    watched.driver.delete(b"jobs")
    watched.driver.push(b"jobs", b"z")
    watched.sample()
    assert watched.column(b"jobs", "pushed_total") == [1]
    watched.driver.delete(b"jobs")
    watched.sample()
    assert watched.history.of_queue(b"jobs") is None


def test_another_cluster_has_another_history() -> None:
    watched = Watched()
    watched.driver.push(b"jobs", b"x")
    watched.sample()
    watched.history.forget()
    assert watched.history.of_queue(b"jobs") is None
    assert not watched.history.sums
