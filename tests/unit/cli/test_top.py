"""Rates as differences of two samples."""

from __future__ import annotations

from typing import Any

from lmqcluster_cli.admin.cluster.live_figures import NODE_COLUMNS, QUEUE_COLUMNS, Sample, compare_samples
from lmqcluster_cli.admin.transfer.load import Phase, _quantile

COUNTERS = ("pushed_total", "pulled_total", "acked_total", "nacked_total", "redelivered_total")


def counts(number: int) -> dict[str, int]:
    return {"ready": 1, "leased": 2, "bytes": 3, **dict.fromkeys(COUNTERS, number)}


def sample(at_s: float, queues: dict[str, int], *, vitals: dict[str, Any] | None = None) -> Sample:
    node = {
        "id": "a", "name": "n1", "http": None, "state": "leader", "lag": 4, "round_trip_s": 0.25, "vitals": vitals,
    }  # fmt: skip
    totals = {"at_s": at_s, "queues": len(queues), "delayed": 0, **counts(sum(queues.values()))}
    overview = {"cluster": {"leader": "a", "nodes": [node]}, "totals": totals}
    return Sample(at_s, 0.1, overview, {name: counts(number) for name, number in queues.items()})


def rows(columns: Any, lines: list[list[object]]) -> list[dict[str, object]]:
    return [dict(zip((column.key for column in columns), line, strict=True)) for line in lines]


def test_rates_are_differences_over_the_time_between() -> None:
    seen = compare_samples(sample(10.0, {"a": 100}), sample(12.0, {"a": 150}))
    [queue] = rows(QUEUE_COLUMNS, seen.queues)
    assert (queue["queue"], queue["push_per_s"], queue["ack_per_s"]) == ("a", 25.0, 25.0)
    assert seen.totals["push_per_s"] == 25.0


def test_new_queues_have_no_rate_yet_and_no_rate_is_negative() -> None:
    seen = compare_samples(sample(10.0, {"again": 100}), sample(12.0, {"again": 5, "new": 50}))
    by_name = {queue["queue"]: queue for queue in rows(QUEUE_COLUMNS, seen.queues)}
    assert by_name["new"]["push_per_s"] is None
    assert by_name["again"]["push_per_s"] == 0.0


def test_two_samples_of_the_same_sums_give_no_rate() -> None:
    seen = compare_samples(sample(10.0, {"a": 1}), sample(10.0, {"a": 1}))
    assert seen.totals["push_per_s"] is None


def test_a_node_that_has_not_answered_has_no_figures() -> None:
    before = sample(10.0, {})
    [node] = rows(NODE_COLUMNS, compare_samples(before, sample(12.0, {})).nodes)
    assert (node["node"], node["log_lag"], node["round_trip_ms"], node["disk_free_bytes"]) == ("n1", 4, 250.0, None)
    [node] = rows(NODE_COLUMNS, compare_samples(before, sample(12.0, {}, vitals={"disk_free_bytes": 9})).nodes)
    assert node["disk_free_bytes"] == 9


def test_quantiles_are_values_that_occurred() -> None:
    values = [float(n) for n in range(1, 101)]
    assert [_quantile(values, share) for share in (0.5, 0.99, 0.999, 1.0)] == [50.0, 99.0, 100.0, 100.0]
    assert _quantile([7.0], 0.5) == 7.0
    assert Phase("push", 1, 10, 0.0, 1, 1, 1, 1, 0).per_second == 0.0
