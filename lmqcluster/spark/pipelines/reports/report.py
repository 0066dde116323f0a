"""Statistics from the nodes' event journals: arrivals, waiting times, redeliveries and drops, by queue and over time.

The journals of all nodes are read together, because each event is in the journal of one node only;
`lmqcluster.node.events.journal` describes the lines. Deliveries that were put back are not counted, as no consumer got
them. A message counts as dropped if its last delivery was nacked, or stayed without an ack for `ReportSettings.lease_s`
while the journals continue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the common alias

from ..base.failures import BAD_DATA, PipelineError, unreadable

__all__ = ["QUANTILES", "ReportSettings", "deliveries_of", "figures_by", "parse_lines", "report"]

QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "max": 1.0}
"""Quantiles of waiting times and of times from delivery to ack, by their names in the report."""

_SCHEMA: Final = (
    "time timestamp, event string, queue string, node string, count long, bytes long, windows long, id string,"
    " sequence long, wait_us long, retry_remaining long, redelivery boolean, parts long, ok boolean, to string,"
    " _unreadable string"
)
_EVENTS: Final = ("push", "pull", "ack", "nack", "extend", "put_back", "delete", "purge", "withdraw", "move", "redrive")
_READABLE: Final = (
    "_unreadable is null and time is not null and queue is not null and (event <> 'push' or count is not null)"
    " and (event <> 'pull' or (id is not null and wait_us is not null and retry_remaining is not null))"
)
_BUCKETS_MAX: Final = 120
_BUCKET_STEPS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400)
_ANSWER_COUNTS: Final = {
    "nacks": "event = 'nack' and ok",
    "extends": "event = 'extend' and ok",
    "late_acks": "event = 'ack' and not ok",
    "put_backs": "event = 'put_back' and ok",
    "deletes": "event = 'delete' and ok",
}


@dataclass(frozen=True, kw_only=True)
class ReportSettings:
    """The settings of a report.

    Attributes:
        journals: files, directories or globs with the journals of all nodes.
        queues_max: maximum number of queues to list, those with most arrivals and deliveries first.
        lease_s: seconds without an ack after which a last delivery counts as a drop.
    """

    journals: Sequence[str]
    queues_max: int = 100
    lease_s: float = 300.0


def report(spark: SparkSession, settings: ReportSettings) -> dict[str, Any]:
    """Compute the statistics.

    Returns:
        ``span`` (begin, end, seconds, nodes, unreadable_lines), ``total`` and ``queues`` (statistics, times in
            seconds), ``queue_count``, and ``series``: totals by time, each entry at least ``bucket_s`` after the one
            before.

    Raises:
        PipelineError: there is no such file, or it contains no event.
    """
    lines = _read(spark, settings.journals).persist(StorageLevel.DISK_ONLY)
    try:
        span = _span(lines)
        events = lines.where("readable")
        deliveries = deliveries_of(events, span["end_us"], settings.lease_s).persist(StorageLevel.DISK_ONLY)
        try:
            return _figures(events, deliveries, span, settings)
        finally:
            deliveries.unpersist()
    finally:
        lines.unpersist()


def _read(spark: SparkSession, journals: Sequence[str]) -> DataFrame:
    # A file truncated by a failing machine is read up to there, see lmqcluster.node.events.files.
    reader = spark.read.option("ignoreCorruptFiles", "true").option("recursiveFileLookup", "true")
    try:
        return parse_lines(reader.text(list(journals)).where("trim(value) <> ''"))
    except AnalysisException as exc:
        raise unreadable("the event journals", exc) from exc


def parse_lines(lines: DataFrame) -> DataFrame:
    """Return the events of the lines in the column ``value``, including invalid ones, with ``readable`` and
    ``time_us``.
    """
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_unreadable"}
    events = lines.select(F.from_json("value", _SCHEMA, options).alias("event")).select("event.*")
    readable = F.expr(_READABLE) & F.col("event").isin(*_EVENTS)
    return events.withColumn("time_us", F.unix_micros("time")).withColumn(
        "readable", F.coalesce(readable, F.lit(False))
    )


def _span(lines: DataFrame) -> dict[str, Any]:
    """Return what the journals cover, with the times in microseconds too."""
    row = lines.agg(
        F.min(F.when(F.col("readable"), F.col("time_us"))).alias("begin_us"),
        F.max(F.when(F.col("readable"), F.col("time_us"))).alias("end_us"),
        F.count_if(~F.col("readable")).alias("unreadable"),
        F.array_sort(F.collect_set(F.when(F.col("readable"), F.col("node")))).alias("nodes"),
    ).head()
    if row is None or row["begin_us"] is None:
        raise PipelineError("the event journals contain no readable event", BAD_DATA)
    return {
        "begin_us": row["begin_us"],
        "end_us": row["end_us"],
        "begin": _iso(row["begin_us"]),
        "end": _iso(row["end_us"]),
        "seconds": (row["end_us"] - row["begin_us"]) / 1e6,
        "nodes": row["nodes"],
        "unreadable_lines": row["unreadable"],
    }


def deliveries_of(events: DataFrame, end_us: int, lease_s: float) -> DataFrame:
    """Return the deliveries that a consumer got: the time of each, and its outcome up to the time `end_us`."""
    answers = events.where("event in ('ack', 'nack', 'put_back') and ok and id is not null")
    settled = answers.groupBy("id").agg(
        F.max(F.expr("event = 'put_back'")).alias("put_back"),
        F.max(F.expr("event = 'nack'")).alias("nacked"),
        F.min(F.expr("case when event = 'ack' then time_us end")).alias("acked_us"),
    )
    over_us = end_us - round(lease_s * 1e6)
    dropped = F.expr(f"retry_remaining = 0 and acked_us is null and (coalesce(nacked, false) or time_us < {over_us})")
    return (
        events.where("event = 'pull'")
        .select("queue", "time_us", "id", "wait_us", "retry_remaining", "redelivery")
        .join(settled, "id", "left")
        .where("not coalesce(put_back, false)")
        .withColumn("held_us", F.col("acked_us") - F.col("time_us"))
        .withColumn("dropped", dropped)
        .drop("id")
    )


def _figures(
    events: DataFrame, deliveries: DataFrame, span: dict[str, Any], settings: ReportSettings
) -> dict[str, Any]:
    by_queue = figures_by(events, deliveries, ["queue"])
    order = (F.col("arrivals") + F.col("deliveries")).desc()
    queues = by_queue.orderBy(order, "queue").limit(settings.queues_max).collect()
    total = figures_by(events, deliveries, []).head()
    bucket_s = next((step for step in _BUCKET_STEPS_S if span["seconds"] / step <= _BUCKETS_MAX), _BUCKET_STEPS_S[-1])
    return {
        "span": {key: value for key, value in span.items() if not key.endswith("_us")},
        "total": _entry(total, span["seconds"]),
        "queue_count": events.select("queue").distinct().count(),
        "queues": [{"queue": row["queue"], **_entry(row, span["seconds"])} for row in queues],
        "bucket_s": bucket_s,
        "series": _series(events, deliveries, bucket_s),
    }


def figures_by(events: DataFrame, deliveries: DataFrame, keys: list[str]) -> DataFrame:
    """Return all statistics, a row for each value of `keys`, one row in total if there are none."""
    arrivals = (
        events.where("event = 'push'")
        .groupBy(*keys)
        .agg(F.sum("count").alias("arrivals"), F.sum("bytes").alias("bytes"))
    )
    delivered = deliveries.groupBy(*keys).agg(
        F.count("*").alias("deliveries"),
        F.count_if("redelivery").alias("redeliveries"),
        F.count_if(F.col("acked_us").isNotNull()).alias("acks"),
        F.count_if("dropped").alias("drops"),
        F.count_if(F.expr("dropped and nacked")).alias("nacked_drops"),
        _quantiles("wait_us").alias("waiting"),
        F.avg("wait_us").alias("waiting_mean"),
        _quantiles("held_us").alias("holding"),
    )
    answered = events.groupBy(*keys).agg(
        *(F.count_if(F.expr(condition)).alias(name) for name, condition in _ANSWER_COUNTS.items())
    )
    # Every event belongs to a queue, so no key is missing in the table of answers.
    tables = [answered, arrivals, delivered]
    if keys:
        joined = reduce(lambda left, right: left.join(right, keys, "left"), tables)
    else:
        joined = reduce(lambda left, right: left.crossJoin(right), tables)
    return joined.fillna(0, ["arrivals", "bytes", "deliveries", "redeliveries", "acks", "drops", "nacked_drops"])


def _quantiles(name: str) -> Column:
    return F.percentile_approx(name, list(QUANTILES.values()), 1000)


def _entry(row: Any, seconds: float) -> dict[str, Any]:
    counts = ("arrivals", "bytes", "deliveries", "redeliveries", "acks", "drops", *_ANSWER_COUNTS)
    entry: dict[str, Any] = {name: row[name] for name in counts}
    # A nack causes a redelivery unless the message is dropped; every other redelivery follows an expired lease.
    entry["lease_ends"] = max(0, entry["redeliveries"] - (entry["nacks"] - row["nacked_drops"]))
    entry["arrivals_per_s"] = entry["arrivals"] / seconds if seconds else None
    entry["redelivered_share"] = entry["redeliveries"] / entry["deliveries"] if entry["deliveries"] else None
    entry["waiting_s"] = _seconds(row["waiting"])
    if entry["waiting_s"] is not None:
        entry["waiting_s"]["mean"] = row["waiting_mean"] / 1e6
    entry["holding_s"] = _seconds(row["holding"])
    return entry


def _seconds(quantiles: Sequence[int] | None) -> dict[str, float] | None:
    if quantiles is None:
        return None
    return {name: value / 1e6 for name, value in zip(QUANTILES, quantiles, strict=True)}


def _series(events: DataFrame, deliveries: DataFrame, bucket_s: int) -> list[dict[str, Any]]:
    bucket = F.expr(f"time_us div {bucket_s * 1_000_000} * {bucket_s}").alias("bucket")
    arrivals = events.where("event = 'push'").groupBy(bucket).agg(F.sum("count").alias("arrivals"))
    delivered = deliveries.groupBy(bucket).agg(
        F.count("*").alias("deliveries"),
        F.count_if("redelivery").alias("redeliveries"),
        F.count_if("dropped").alias("drops"),
        _quantiles("wait_us").alias("waiting"),
    )
    rows = arrivals.join(delivered, "bucket", "full_outer").fillna(0).orderBy("bucket").collect()
    counts = ("arrivals", "deliveries", "redeliveries", "drops")
    return [
        {
            "time": _iso(row["bucket"] * 1_000_000),
            **{name: row[name] for name in counts},
            "waiting_s": _seconds(row["waiting"]),
        }
        for row in rows
    ]


def _iso(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
