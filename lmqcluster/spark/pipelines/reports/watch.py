"""Live statistics of queues: event journals as a stream, by queue and window, with alerts.

The statistics are those of `report`, computed by the same functions from the events of one window. A window is shown
once, when an event is later than its end by `WatchSettings.delay_s`, the maximum lag between the journals of two nodes.
The outcome of a delivery is known as far as the journals contain it at that time, so a last delivery whose lease
expires later is not counted as a drop.

``open`` is the number of messages in the queue at the end of the window according to the journals: pushed, or moved
there by name, and not acknowledged, dropped, withdrawn, purged or moved away, since the journals begin. Leased messages
are included. Journals do not record messages that expire, that are deleted with their queue, or that were there before.

Beside Spark's checkpoint, the query keeps the events that later windows need, and a small file with the open messages.
Every micro-batch writes its events, rows and state under its own number, replacing those of an earlier attempt.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  the common alias
from pyspark.sql.streaming.query import StreamingQuery

from ...reading.journal_source import register_journal
from ..base.storage import Storage
from ..base.stream import run_stream
from .report import QUANTILES, deliveries_of, figures_by, parse_lines

__all__ = ["Thresholds", "WatchSettings", "watch"]

_SHOWN_MAX: Final = 1_000
_KEPT_S: Final = 3_600
"""How long events are kept after the last window that was shown, for deliveries whose outcome is recorded later."""
_EVENT_COLUMNS: Final = (
    *(
        "time_us",
        "event",
        "queue",
        "node",
        "count",
        "bytes",
        "id",
        "wait_us",
        "retry_remaining",
        "redelivery",
        "ok",
        "to",
    ),
)
_WINDOW: Final = "window_us"
_GROWTH: Final = """
    case
        when event = 'push' then count
        when event = 'ack' and ok then -1
        when event in ('purge', 'withdraw', 'move', 'redrive') then -count
        else 0
    end
"""


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Limits of the statistics of a queue and window above which there is an alert; None for never.

    Attributes:
        open: messages in the queue.
        wait_p99_s: minimum waiting time of one message in a hundred, in seconds.
        redelivered_share: redeliveries among all deliveries, from 0 to 1.
        drops: dropped messages.
    """

    open: int | None = None
    wait_p99_s: float | None = None
    redelivered_share: float | None = None
    drops: int | None = None


@dataclass(frozen=True, kw_only=True)
class WatchSettings:
    """The settings of a watch.

    Attributes:
        journal: the folder in which the nodes write their event journals.
        checkpoint: folder of the query's checkpoint and state.
        output: the folder of a Parquet table for all rows; None for none.
        window_s: seconds of a window.
        delay_s: maximum seconds by which the journal of one node lags behind another.
        lease_s: seconds without an ack after which a last delivery counts as a drop.
        trigger_s: seconds between micro-batches; None processes the current events and ends.
        thresholds: the limits for alerts.
    """

    journal: str
    checkpoint: str
    output: str | None = None
    window_s: int = 60
    delay_s: float = 30.0
    lease_s: float = 300.0
    trigger_s: float | None = None
    thresholds: Thresholds = field(default_factory=Thresholds)


def watch(
    spark: SparkSession,
    settings: WatchSettings,
    show: Callable[[list[dict[str, Any]]], None],
    wait: Callable[[StreamingQuery], None],
) -> None:
    """Run the query to its end, or until `wait` stops it.

    Args:
        spark: the session.
        settings: the settings.
        show: called with the rows of completed windows, in order, at most 1,000. A repeated micro-batch shows them
            again.
        wait: called with the running query; returns when it has ended.

    Raises:
        StreamingQueryException: the query failed. It can be restarted with the same checkpoint.
    """
    register_journal(spark)
    lines = spark.readStream.format("lmq_journal").option("path", settings.journal).load()
    state = _State(spark, settings)
    writer = lines.writeStream.queryName("watch").option("checkpointLocation", settings.checkpoint)

    def take(batch: DataFrame, number: int) -> None:
        show(state.process(batch, number))

    run_stream(writer.foreachBatch(take), settings.trigger_s, wait)


class _State:
    """The state between two micro-batches."""

    def __init__(self, spark: SparkSession, settings: WatchSettings) -> None:
        self._spark = spark
        self._settings = settings
        self._storage = Storage(spark, f"{settings.checkpoint.rstrip('/')}/watch")

    def process(self, batch: DataFrame, number: int) -> list[dict[str, Any]]:
        """Process the lines of a micro-batch; return the rows of the windows completed since the previous one."""
        root, settings = self._storage.root, self._settings
        readable = parse_lines(batch).where("readable").select(*_EVENT_COLUMNS)
        readable.write.mode("overwrite").parquet(f"{root}/events/batch={number}")
        before = self._before(number)
        events = self._events(number)
        spans = events.groupBy("batch").agg(F.max("time_us")).collect()
        end_us = max((latest for _batch, latest in spans), default=0)
        step_us = settings.window_s * 1_000_000
        over_us = (end_us - round(settings.delay_s * 1e6)) // step_us * step_us
        if over_us <= before["over_us"]:
            return []
        rows = self._rows(events, before, end_us, over_us).persist()
        try:
            if settings.output is not None:
                rows.write.mode("overwrite").parquet(f"{settings.output.rstrip('/')}/batch={number}")
            shown = [row.asDict() for row in rows.orderBy("window", "queue").limit(_SHOWN_MAX).collect()]
            # Queues without new events keep their state.
            latest = rows.groupBy("queue").agg(F.max_by("open", "window").alias("open")).where("open <> 0").collect()
            heard = {row["queue"] for row in rows.select("queue").distinct().collect()}
        finally:
            rows.unpersist()
        kept = {queue: count for queue, count in before["open"].items() if queue not in heard}
        state = {"over_us": over_us, "open": kept | {row["queue"]: row["open"] for row in latest}}
        self._storage.write_text(f"{root}/state/{number:012d}.json", json.dumps(state))
        self._forget(number, {one: latest for one, latest in spans if latest < over_us - self._kept_us})
        return shown

    @property
    def _kept_us(self) -> int:
        return round(max(_KEPT_S, self._settings.lease_s) * 1e6)

    def _before(self, number: int) -> dict[str, Any]:
        """Return the state after the previous micro-batch."""
        files = [file for file in self._storage.find("state/*.json") if int(file.name.partition(".")[0]) < number]
        if not files:
            return {"over_us": 0, "open": {}}
        state: dict[str, Any] = json.loads(self._storage.read_text(files[-1].path))
        return state

    def _events(self, number: int) -> DataFrame:
        # A batch without events also has a file, and so a schema.
        found = self._spark.read.option("basePath", f"{self._storage.root}/events")
        events = found.parquet(f"{self._storage.root}/events").withColumn("batch", F.col("batch").cast("int"))
        return events.where(F.col("batch") <= number)

    def _rows(self, events: DataFrame, before: dict[str, Any], end_us: int, over_us: int) -> DataFrame:
        """Return the rows of the windows after the last shown one up to the one that ends at `over_us`."""
        step_us = self._settings.window_s * 1_000_000
        is_inside = (F.col("time_us") >= before["over_us"]) & (F.col("time_us") < over_us)
        window = F.expr(f"time_us div {step_us} * {step_us}").alias(_WINDOW)
        inside = events.where(is_inside).select("*", window)
        deliveries = deliveries_of(events, end_us, self._settings.lease_s).where(is_inside).select("*", window)
        # A move also records what arrives in the other queue.
        arrived = inside.where("event in ('move', 'redrive') and to is not null")
        arrived = arrived.select(_WINDOW, F.col("to").alias("queue"), F.col("count").alias("growth"))
        changed = inside.select(_WINDOW, "queue", F.expr(_GROWTH).alias("growth")).unionByName(arrived)
        growth = changed.groupBy(_WINDOW, "queue").agg(F.sum("growth").alias("growth"))
        figures = growth.join(figures_by(inside, deliveries, [_WINDOW, "queue"]), [_WINDOW, "queue"], "left")
        so_far = Window.partitionBy("queue").orderBy(_WINDOW).rowsBetween(Window.unboundedPreceding, 0)
        at_start = self._spark.createDataFrame(list(before["open"].items()), "queue string, at_start long")
        figures = figures.join(at_start, "queue", "left").fillna(0, ["at_start", "drops"])
        is_open = F.col("at_start") + F.sum(F.col("growth") - F.col("drops")).over(so_far)
        rows = figures.withColumn("open", F.greatest(is_open, F.lit(0)))
        return _to_table(rows, self._settings.thresholds)

    def _forget(self, number: int, old: dict[int, int]) -> None:
        for batch in old:
            if batch < number:
                self._storage.delete(f"{self._storage.root}/events/batch={batch}")
        files = [file for file in self._storage.find("state/*.json") if int(file.name.partition(".")[0]) < number]
        for file in files[:-1]:
            self._storage.delete(file.path)


def _to_table(rows: DataFrame, thresholds: Thresholds) -> DataFrame:
    """Return the columns of the table, with the alerts."""
    counts = ("arrivals", "deliveries", "redeliveries", "drops")
    names = list(QUANTILES)
    quantiles = [
        (F.element_at("waiting", names.index(name) + 1) / 1e6).alias(f"wait_{name}_s") for name in ("p50", "p99", "max")
    ]
    table = rows.select(
        F.timestamp_micros(_WINDOW).alias("window"),
        "queue",
        "open",
        *(F.coalesce(name, F.lit(0)).alias(name) for name in counts),
        *quantiles,
    )
    return table.withColumn("alerts", F.filter(F.array(*_alerts(thresholds)), lambda text: text.isNotNull()))


def _alerts(thresholds: Thresholds) -> list[Column]:
    share = F.try_divide("redeliveries", "deliveries")
    limits = {
        "open": (F.col("open"), thresholds.open),
        "wait p99": (F.col("wait_p99_s"), thresholds.wait_p99_s),
        "redelivered share": (share, thresholds.redelivered_share),
        "drops": (F.col("drops"), thresholds.drops),
    }
    found = [
        F.when(
            figure > F.lit(limit), F.concat(F.lit(f"{name} "), F.round(figure.cast("double"), 3), F.lit(f" > {limit}"))
        )
        for name, (figure, limit) in limits.items()
        if limit is not None
    ]
    return found or [F.lit(None).cast("string")]
