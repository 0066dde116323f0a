"""LMQ over HTTP, specification section 9.3: /stats."""

from __future__ import annotations

import re
import time

from .cluster import NodeProcess
from .raw_http import call

METER = ["count", "one", "five", "fifteen", "day", "mean", "acceleration"]
HISTOGRAM = [
    "min", "max", "arithmetic_mean", "geometric_mean", "harmonic_mean", "median", "variance", "standard_deviation", "skewness",
    "kurtosis", "percentile", "histogram", "n",
]  # fmt: skip
NOTHING = (
    '{"min":0,"max":0,"arithmetic_mean":0,"geometric_mean":0,"harmonic_mean":0,"median":0,"variance":0,"standard_deviation":0,'
    '"skewness":0,"kurtosis":0,"percentile":{"50":0,"75":0,"90":0,"95":0,"99":0,"999":0},"histogram":[{"bin":0,"count":0}],"n":0}'
)


def test_9_3_shape_and_key_order(node: NodeProcess, queue_name: str) -> None:
    """9.3: one object; key order as specified; node lists sorted, queues sorted by name."""
    for suffix in ("b", "a"):
        call(node.http, "POST", f"/messages/{queue_name}-{suffix}", b"x")
    answer = call(node.http, "GET", "/stats")
    assert answer.lines[0] == b"content-type: application/json"
    assert not re.search(rb"[,:{\[]\s|\s[,:}\]]", answer.body)
    stats = answer.json
    assert list(stats) == ["active_nodes", "all_nodes", "queues"]
    assert stats["active_nodes"] == stats["all_nodes"] == [node.name]
    assert list(stats["queues"]) == sorted(stats["queues"])
    queue = stats["queues"][f"{queue_name}-a"]
    assert list(queue) == ["stats", "size", "memory", "nodes", "props"]
    assert list(queue["stats"]) == ["push", "pull", "retention"]
    assert list(queue["stats"]["push"]) == list(queue["stats"]["pull"]) == METER
    assert list(queue["stats"]["push"]["acceleration"]) == ["one_to_five", "five_to_fifteen", "one_to_fifteen"]
    assert list(queue["stats"]["retention"]) == HISTOGRAM
    assert queue["nodes"] == [node.name]


def test_9_3_sizes_memory_and_properties(node: NodeProcess, queue_name: str) -> None:
    """9.3: size counts waiting and unanswered; memory is positive even when empty; accum in milliseconds."""
    body = b'{"accum":1.5,"timeout":2.5}'
    call(node.http, "PATCH", f"/properties/{queue_name}", body, {"Content-Type": "application/json"})
    queue = call(node.http, "GET", "/stats").json["queues"][queue_name]
    assert (queue["size"], queue["props"]) == (0, {"accum": 1500, "retry": 2, "timeout": 2.5})
    assert queue["memory"] > 0
    call(node.http, "DELETE", f"/properties/{queue_name}")
    for _ in range(3):
        call(node.http, "POST", f"/messages/{queue_name}", b"x" * 1000)
    call(node.http, "GET", f"/messages/{queue_name}?t=0")
    after = call(node.http, "GET", "/stats").json["queues"][queue_name]
    assert after["size"] == 3
    assert after["memory"] >= queue["memory"] + 3000


def test_9_3_fewer_than_five_deliveries_are_shown_as_zeros(node: NodeProcess, queue_name: str) -> None:
    """9.3: with fewer than 5 samples all values are 0, including n, and the histogram is one bin 0 with count 0."""
    for _ in range(4):
        call(node.http, "POST", f"/messages/{queue_name}", b"x")
        assert call(node.http, "GET", f"/messages/{queue_name}?t=0").status == 200
    body = call(node.http, "GET", "/stats").body.decode()
    shown = body[body.index(f'"{queue_name}"') :]
    assert shown[shown.index('"retention":') + 12 :].startswith(NOTHING)


def test_9_3_counts_rates_and_retention(node: NodeProcess, queue_name: str) -> None:
    """9.3: count is total events; rates are per second, updated every 5 s; retention is in seconds."""
    for _ in range(10):
        call(node.http, "POST", f"/messages/{queue_name}", b"x")
    time.sleep(0.1)
    for _ in range(6):
        call(node.http, "GET", f"/messages/{queue_name}?t=0")
    stats = call(node.http, "GET", "/stats").json["queues"][queue_name]["stats"]
    assert (stats["push"]["count"], stats["pull"]["count"]) == (10, 6)
    retention = stats["retention"]
    assert retention["n"] == 6
    assert 0.1 <= retention["min"] <= retention["median"] <= retention["max"] < 30
    assert retention["percentile"]["999"] == retention["max"]
    assert sum(entry["count"] for entry in retention["histogram"]) == 6
    deadline = time.monotonic() + 12
    while stats["push"]["one"] == 0:
        assert time.monotonic() < deadline, "no rate after two updates"
        time.sleep(0.1)
        stats = call(node.http, "GET", "/stats").json["queues"][queue_name]["stats"]
    # All ten fell into one or two intervals of five seconds.
    assert 0 < stats["push"]["one"] <= 2
    assert stats["push"]["mean"] > 0


def test_9_3_a_deleted_queue_leaves_no_trace(node: NodeProcess, queue_name: str) -> None:
    """9.3: counts are those since the queue was created."""
    for _ in range(5):
        call(node.http, "POST", f"/messages/{queue_name}", b"x")
        call(node.http, "GET", f"/messages/{queue_name}?t=0")
    call(node.http, "DELETE", f"/queues/{queue_name}")
    assert queue_name not in call(node.http, "GET", "/stats").json["queues"]
    call(node.http, "POST", f"/messages/{queue_name}", b"x")
    stats = call(node.http, "GET", "/stats").json["queues"][queue_name]["stats"]
    assert (stats["push"]["count"], stats["pull"]["count"], stats["retention"]["n"]) == (1, 0, 0)
