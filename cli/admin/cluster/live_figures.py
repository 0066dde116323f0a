"""The figures of ``lmq-admin top``: rates from the differences of counters between two samples of a node."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ...shared.connection.api import Api
from ...shared.connection.target import queue_text
from ...shared.output import Column
from ..queues.queue_list import all_queues

__all__ = ["NODE_COLUMNS", "QUEUE_COLUMNS", "Figures", "Sample", "compare_samples", "take_sample"]

QUEUE_COLUMNS: Final = [
    Column("Queue", "queue", cut="middle"),
    Column("Ready", "ready", right=True),
    Column("Leased", "leased", right=True),
    Column("Push/s", "push_per_s", right=True, digits=1),
    Column("Pull/s", "pull_per_s", right=True, digits=1),
    Column("Ack/s", "ack_per_s", right=True, digits=1),
    Column("Nack/s", "nack_per_s", right=True, digits=1, rank=2),
    Column("Timed out/s", "redelivered_per_s", right=True, digits=1, rank=2),
    Column("Bytes", "bytes", right=True, unit="bytes", rank=1),
]
_COUNTERS: Final = {
    "push_per_s": "pushed_total",
    "pull_per_s": "pulled_total",
    "ack_per_s": "acked_total",
    "nack_per_s": "nacked_total",
    "redelivered_per_s": "redelivered_total",
}
_FIELDS: Final = ",".join(("ready", "leased", "bytes", *_COUNTERS.values()))
NODE_COLUMNS: Final = [
    Column("Node", "node"),
    Column("State", "state"),
    Column("Log lag", "log_lag", right=True),
    Column("Waiting pulls", "waiting_pulls", right=True, rank=2),
    Column("Messages", "stored_bytes", right=True, unit="bytes", rank=1),
    Column("Process", "process_bytes", right=True, unit="bytes", rank=3),
    Column("Log", "log_bytes", right=True, unit="bytes", rank=3),
    Column("Kept", "kept_bytes", right=True, unit="bytes", rank=3),
    Column("Disk free", "disk_free_bytes", right=True, unit="bytes", rank=1),
    Column("Round trip (ms)", "round_trip_ms", right=True, digits=1, rank=2),
    Column("HTTP", "http", rank=2),
]


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample.

    Attributes:
        at_s: when the queues were read, in seconds of a monotonic clock.
        took_s: how long the requests took.
        overview: the node's ``/v1/overview``.
        queues: all queues by name.
    """

    at_s: float
    took_s: float
    overview: Mapping[str, Any]
    queues: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures computed from two samples.

    Attributes:
        totals: sums over all queues, with rates.
        nodes: a row for each node, in the order of `NODE_COLUMNS`.
        queues: a row for each queue, in the order of `QUEUE_COLUMNS`; a rate is None for a new queue.
        cluster: the node's view of the cluster.
    """

    totals: Mapping[str, Any]
    nodes: list[list[object]]
    queues: list[list[object]]
    cluster: Mapping[str, Any]


def take_sample(api: Api) -> Sample:
    """Return a sample of a node. Raises the errors of `Api.get`."""
    begun = time.monotonic()
    queues = {queue_text(queue["name"]): queue for queue in all_queues(api, fields=_FIELDS)}
    overview = api.get("/v1/overview")
    return Sample(begun, time.monotonic() - begun, overview, queues)


def compare_samples(before: Sample, now: Sample) -> Figures:
    """Return the figures between two samples."""
    seconds = now.at_s - before.at_s
    queues = [
        [name, queue["ready"], queue["leased"], *_rates(before.queues.get(name), queue, seconds), queue["bytes"]]
        for name, queue in now.queues.items()
    ]
    sums, sums_before = now.overview["totals"], before.overview["totals"]
    rates = dict(zip(_COUNTERS, _rates(sums_before, sums, sums["at_s"] - sums_before["at_s"]), strict=True))
    totals = {key: sums[key] for key in ("queues", "ready", "delayed", "leased", "bytes")} | rates
    cluster = now.overview["cluster"]
    return Figures(totals, [*_nodes(cluster)], queues, cluster)


def _rates(before: Mapping[str, Any] | None, now: Mapping[str, Any], seconds: float) -> Iterator[float | None]:
    for counter in _COUNTERS.values():
        if before is None or seconds <= 0:
            yield None
        else:
            # The counters of a queue that was deleted and recreated start at zero.
            yield max(0.0, (now[counter] - before[counter]) / seconds)


def _nodes(cluster: Mapping[str, Any]) -> Iterator[list[object]]:
    nodes = sorted(cluster["nodes"], key=lambda node: (node["name"] or "", node["id"]))
    for node in nodes:
        vitals = node["vitals"] or {}
        trip = node["round_trip_s"]
        known: dict[str, object] = {
            "node": node["name"] or node["id"],
            "log_lag": node["lag"],
            "round_trip_ms": None if trip is None else trip * 1000,
        }
        yield [known[c.key] if c.key in known else node.get(c.key, vitals.get(c.key)) for c in NODE_COLUMNS]
