"""The queues that need attention: what is reported for which reason, over which time, and within which bounds."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from lmqcluster.node.metrics import attention as attention_module
from lmqcluster.node.metrics.attention import WINDOW_S, Attention, Thresholds
from lmqcluster.node.metrics.history import History
from lmqcluster.node.metrics.stats import Stats
from lmqcluster.node.metrics.totals import Totals
from lmqcluster.node.process.fair_slices import FairSlices
from tests.property.driver import Driver


class Watched:
    """Queues that a node looks at, at times that the test decides."""

    def __init__(self, **options: int) -> None:
        self.driver = Driver()
        self.stats = Stats()
        self.is_current = True
        self.attention = Attention(
            Thresholds(**options),
            self.stats,
            lambda: self.driver.now_us,
            lambda: [("leader", self.is_current, "")],
        )
        state = self.driver.machine.state
        totals = Totals(lambda: state, FairSlices())
        self.history = History(lambda: state, totals, self.stats, FairSlices(), self.attention)

    def look(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Visit all queues; return the list by reason and queue."""
        queues = self.driver.machine.state.queues.values()
        self.stats.tick([(one.name, one.counters.pushed_total, one.counters.pulled_total) for one in queues])
        asyncio.run(self.history.sample())
        return self.listed()

    def listed(self) -> dict[tuple[str, str], dict[str, Any]]:
        return {(one["reason"], one["queue"]): one for one in self.describe()["queues"]}

    def describe(self, **more: Any) -> dict[str, Any]:
        return self.attention.describe(bytes.decode, more.get("is_visible"))

    def fail(self, queue: bytes, times: int, *, retry: int = 1_000_000) -> None:
        """Return messages this often; push one where there is none."""
        self.driver.set(queue, retry=retry)
        for _ in range(times):
            if not self.driver.size(queue):
                self.driver.push(queue, b"x")
            message = self.driver.pull_one(queue)
            self.driver.nack(queue, message[1])

    def work(self, queue: bytes, count: int) -> None:
        """Push, pull and acknowledge messages."""
        self.driver.push(queue, *[b"x"] * count)
        self.driver.ack(queue, *(one[1] for one in self.driver.pull(queue, count)))


def test_messages_that_wait_too_long() -> None:
    watched = Watched(waiting_s=60)
    watched.driver.push(b"late", b"x", b"y")
    assert watched.look() == {}
    watched.driver.wait(61)
    watched.driver.push(b"fresh", b"x")
    ((key, found),) = watched.look().items()
    assert key == ("waiting", "late")
    assert (found["count"], int(found["oldest_age_s"])) == (2, 61)
    assert "no delivery since" in found["detail"]
    watched.driver.ack(b"late", *(one[1] for one in watched.driver.pull(b"late", 2)))
    assert watched.look() == {}


def test_a_leased_message_does_not_wait() -> None:
    watched = Watched(waiting_s=60)
    watched.driver.set(b"slow", timeout=3600)
    watched.driver.push(b"slow", b"x")
    watched.driver.pull_one(b"slow")
    watched.driver.wait(120)
    watched.driver.push(b"delayed", b"x")
    assert watched.look() == {}


@pytest.mark.parametrize("dead_letter_queue", ["", "bin"])
def test_new_dead_letters_and_drops_count_once(dead_letter_queue: str) -> None:
    watched = Watched()
    if dead_letter_queue:
        watched.driver.set(b"poison", dead_letter_queue=dead_letter_queue.encode())
    watched.look()
    watched.fail(b"poison", 1, retry=0)
    found = watched.look()
    assert [*found] == [("dead_letters", "poison")]
    assert found["dead_letters", "poison"]["count"] == 1
    watched.driver.wait(2 * WINDOW_S)
    watched.look()
    watched.driver.wait(WINDOW_S)
    assert ("dead_letters", "poison") not in watched.look()


def test_what_happened_before_the_start_is_not_new() -> None:
    watched = Watched()
    watched.fail(b"poison", 1, retry=0)
    assert watched.look() == {}
    watched.fail(b"poison", 2, retry=0)
    found = watched.look()["dead_letters", "poison"]
    assert found["count"] >= 1
    assert found["detail"].startswith(f"{found['count']} dropped after the last delivery, in the last "), "none is kept"


def test_counts_cover_one_to_two_windows() -> None:
    watched = Watched(returns=0)
    watched.look()
    seen = []
    for _ in range(40):
        watched.fail(b"poison", 1, retry=0)
        watched.driver.wait(WINDOW_S / 10)
        seen.append((watched.look()["dead_letters", "poison"]["count"], watched.describe()["window_s"]))
    assert max(count for count, _window_s in seen) <= 21
    assert all(count >= 10 for count, _window_s in seen[10:])
    assert all(WINDOW_S * 0.99 <= window_s <= 2.01 * WINDOW_S for _count, window_s in seen[10:])
    assert all(later - sooner <= 1 for (sooner, _), (later, _) in pairwise(seen))


def test_a_storm_of_returns_is_a_tenth_of_the_deliveries() -> None:
    watched = Watched(returns=20)
    watched.work(b"busy", 1000)
    watched.look()
    watched.fail(b"flaky", 20)
    watched.fail(b"calm", 19)
    watched.work(b"busy", 400)
    watched.fail(b"busy", 20)
    found = watched.look()
    assert [*found] == [("returns", "flaky")]
    assert found["returns", "flaky"]["count"] == 20
    assert "20 of 20 deliveries" in found["returns", "flaky"]["detail"]
    watched.fail(b"busy", 100)
    assert [*watched.look()] == [("returns", "busy"), ("returns", "flaky")]


def test_a_queue_that_is_created_again_counts_from_zero() -> None:
    watched = Watched(returns=5)
    watched.fail(b"jobs", 10)
    watched.look()
    watched.driver.delete(b"jobs")
    watched.fail(b"jobs", 6)
    assert watched.look()["returns", "jobs"]["count"] == 6


def test_a_node_that_is_cut_off_keeps_its_list_and_counts_no_gap() -> None:
    watched = Watched(waiting_s=60)
    watched.driver.push(b"late", b"x")
    watched.driver.wait(61)
    found = watched.look()
    watched.is_current = False
    watched.driver.pull_one(b"late")
    watched.fail(b"poison", 1, retry=0)
    assert watched.look() == found
    watched.is_current = True
    watched.driver.wait(3 * WINDOW_S)
    assert ("dead_letters", "poison") not in watched.look()


def test_a_client_sees_only_its_queues_and_a_bounded_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_module, "FINDINGS_MAX", 20)
    monkeypatch.setattr(attention_module, "LISTED_MAX", 10)
    watched = Watched(waiting_s=60)
    for number in range(100):
        watched.driver.push(b"q%02d" % number, *[b"x"] * (number + 1))
        watched.driver.wait(1)
    watched.driver.wait(60)
    watched.look()
    whole = watched.describe()
    assert whole["totals"] == {"dead_letters": 0, "returns": 0, "waiting": 100}
    assert [one["queue"] for one in whole["queues"]] == [f"q{number:02}" for number in range(10)], "the oldest first"
    some = watched.describe(is_visible=lambda name: name.endswith(b"7"))
    assert [one["queue"] for one in some["queues"]] == ["q07", "q17"]
    assert some["totals"]["waiting"] == 2


def test_zero_switches_a_reason_off() -> None:
    watched = Watched(waiting_s=0, dead_letters=0, returns=0)
    watched.look()
    watched.fail(b"poison", 1, retry=0)
    watched.fail(b"flaky", 500)
    watched.driver.wait(7200)
    assert watched.look() == {}


def test_a_new_cluster_starts_without_findings() -> None:
    watched = Watched(waiting_s=60)
    assert watched.describe()["age_s"] is None
    watched.driver.push(b"late", b"x")
    watched.driver.wait(61)
    assert watched.look()
    assert watched.describe()["age_s"] >= 0
    watched.history.forget()
    assert watched.listed() == {}
    assert watched.describe()["age_s"] is None
