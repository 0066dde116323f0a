"""Streaming reads from a real cluster: every message once in the table under stops, kills and repetitions."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery

from lmqcluster import Client
from tests.integration.cluster import Cluster, ports, wait_for

from .queues import expire_leases, numbered, pulled, push, settled_and_open, wait_until_ready

WAIT_S = 600


@dataclass
class Pipeline:
    """A streaming query from queues into a Parquet table, with a checkpoint."""

    spark: SparkSession
    servers: str
    folder: Path
    options: dict[str, str] = field(default_factory=dict)

    @property
    def checkpoint(self) -> Path:
        """Return the folder of Spark's logs."""
        return self.folder / "checkpoint"

    def stream(self) -> DataFrame:
        """Return the stream of messages."""
        return self.spark.readStream.format("lmq").option("lmq.servers", self.servers).options(**self.options).load()

    def start(self, *, available_now: bool = True, checkpoint: Path | None = None) -> StreamingQuery:
        """Start the query."""
        sink = self.stream().writeStream.format("parquet").option("path", str(self.folder / "table"))
        sink = sink.option("checkpointLocation", str(checkpoint or self.checkpoint))
        return (sink.trigger(availableNow=True) if available_now else sink.trigger(processingTime="0 seconds")).start()

    def run(self) -> StreamingQuery:
        """Run the query until it has read all current messages."""
        query = self.start()
        assert query.awaitTermination(WAIT_S)
        return query

    def values(self) -> list[bytes]:
        """Return the values of the table, sorted."""
        if not (self.folder / "table" / "_spark_metadata").exists():
            return []
        return sorted(bytes(row["value"]) for row in self.spark.read.parquet(str(self.folder / "table")).collect())

    def offsets(self) -> list[dict[str, object]]:
        """Return the offsets in Spark's log."""
        entries = sorted((self.checkpoint / "offsets").glob("[0-9]*"), key=lambda entry: int(entry.name))
        return [json.loads(entry.read_text().splitlines()[2]) for entry in entries]

    def forget_last_commit(self) -> None:
        """Put the checkpoint in the state after a crash that preceded only the entry in the commit log."""
        last = max((self.checkpoint / "commits").glob("[0-9]*"), key=lambda entry: int(entry.name))
        last.unlink()
        (last.parent / f".{last.name}.crc").unlink()


@pytest.fixture
def pipeline(spark: SparkSession, servers: str, tmp_path: Path, queue: str) -> Pipeline:
    """A pipeline that reads the test's queue."""
    return Pipeline(spark, servers, tmp_path, {"subscribe": queue, "lmq.subscription": queue})


def test_available_now_reads_all_current_messages_and_leaves_nothing_reserved(
    pipeline: Pipeline, client: Client, queue: str
) -> None:
    push(client, queue, numbered(2500))
    pipeline.options["maxOffsetsPerTrigger"] = "1000"
    query = pipeline.run()
    assert pipeline.values() == numbered(2500)
    assert [progress["numInputRows"] for progress in query.recentProgress][:3] == [1000, 1000, 500]
    assert settled_and_open(client, queue) == (3, [])
    assert pulled(client, queue) == []


def test_a_query_continues_from_its_checkpoint(pipeline: Pipeline, client: Client, queue: str) -> None:
    for start in (0, 100, 200):
        push(client, queue, numbered(300)[start : start + 100])
        pipeline.run()
    assert pipeline.values() == numbered(300)
    assert [offset["epoch"] for offset in pipeline.offsets()] == [1, 2, 3]


def test_a_random_subscription_is_kept_in_the_checkpoint(pipeline: Pipeline, client: Client, queue: str) -> None:
    del pipeline.options["lmq.subscription"]
    for start in (0, 100):
        push(client, queue, numbered(200)[start : start + 100])
        pipeline.run()
    assert pipeline.values() == numbered(200)
    assert len({offset["subscription"] for offset in pipeline.offsets()}) == 1


def test_batches_of_a_pattern_cover_all_queues(
    pipeline: Pipeline, client: Client, new_queue: Callable[[], str]
) -> None:
    first, second = new_queue(), new_queue()
    stem = first.rsplit("-", 1)[0]
    push(client, first, numbered(10, "a"))
    push(client, second, numbered(10, "b"))
    del pipeline.options["subscribe"]
    pipeline.options["subscribePattern"] = f"^{stem}-"
    pipeline.run()
    assert pipeline.values() == numbered(10, "a") + numbered(10, "b")


def test_a_batch_planned_before_a_crash_is_read_again_alike(pipeline: Pipeline, client: Client, queue: str) -> None:
    pipeline.options["minPartitions"] = "2"
    read: list[list[tuple[int, bytes]]] = []

    def note(rows: DataFrame, _epoch: int) -> None:
        read.append([(row["offset"], bytes(row["value"])) for row in rows.collect()])

    def run() -> None:
        sink = pipeline.stream().writeStream.foreachBatch(note).option("checkpointLocation", str(pipeline.checkpoint))
        assert sink.trigger(availableNow=True).start().awaitTermination(WAIT_S)

    push(client, queue, numbered(100))
    query = pipeline.stream().writeStream.foreachBatch(note).option("checkpointLocation", str(pipeline.checkpoint))
    running = query.start()
    wait_for((pipeline.checkpoint / "commits" / "0").exists, "the first micro-batch")
    running.stop()
    # The batch may be settled only if Spark will not request it again; a query without new data settles it at once.
    push(client, queue, numbered(50, "n"))
    run()
    assert [[value for _, value in rows] for rows in read] == [numbered(100), numbered(50, "n")]


def test_a_crash_within_a_micro_batch_duplicates_and_loses_nothing(
    pipeline: Pipeline, client: Client, queue: str
) -> None:
    read: list[list[bytes]] = []

    def fail_first(rows: DataFrame, _epoch: int) -> None:
        read.append([bytes(row["value"]) for row in rows.collect()])
        if len(read) == 1:
            raise RuntimeError("the sink fails")

    def start() -> StreamingQuery:
        sink = pipeline.stream().writeStream.foreachBatch(fail_first)
        return sink.option("checkpointLocation", str(pipeline.checkpoint)).trigger(availableNow=True).start()

    push(client, queue, numbered(100))
    with pytest.raises(StreamingQueryException, match="the sink fails"):
        start().awaitTermination(WAIT_S)
    # Other clients push, and pull messages that are not reserved.
    push(client, queue, numbered(10, "n"))
    assert pulled(client, queue) == numbered(10, "n")
    push(client, queue, numbered(5, "o"))
    assert start().awaitTermination(WAIT_S)
    assert read == [numbered(100), numbered(100), numbered(5, "o")]
    assert settled_and_open(client, queue) == (2, [])


def test_a_batch_reserved_but_not_planned_is_resumed(pipeline: Pipeline, client: Client, queue: str) -> None:
    push(client, queue, numbered(100))
    # The query does this before Spark writes its offset log.
    assert client.reserve_batch(queue, 1, queue=queue, count=60).count == 60
    pipeline.run()
    assert pipeline.values() == numbered(100)
    assert [offset["epoch"] for offset in pipeline.offsets()] == [1, 2]


def test_a_batch_that_expired_before_it_was_planned_is_skipped(pipeline: Pipeline, client: Client, queue: str) -> None:
    push(client, queue, numbered(100))
    client.reserve_batch(queue, 1, queue=queue, count=60, lease_s=0.1)
    wait_until_ready(client, queue)
    pipeline.run()
    assert pipeline.values() == numbered(100)
    firsts = {offset["first"] for offset in pipeline.offsets()}
    assert firsts
    assert firsts <= {2, 3}, "the first epoch is skipped"


def test_a_new_checkpoint_continues_where_the_subscription_was_settled(
    pipeline: Pipeline, client: Client, queue: str, tmp_path: Path
) -> None:
    push(client, queue, numbered(10))
    pipeline.run()
    push(client, queue, numbered(10, "n"))
    other = Pipeline(pipeline.spark, pipeline.servers, tmp_path / "other", pipeline.options)
    other.run()
    assert (pipeline.values(), other.values()) == (numbered(10), numbered(10, "n"))


def expire_planned(pipeline: Pipeline, client: Client, queue: str) -> None:
    """Leave a micro-batch behind that was planned, not written, and whose lease has expired."""

    def fail(_rows: DataFrame, _epoch: int) -> None:
        raise RuntimeError("the sink fails")

    push(client, queue, numbered(10))
    sink = pipeline.stream().writeStream.foreachBatch(fail).option("checkpointLocation", str(pipeline.checkpoint))
    with pytest.raises(StreamingQueryException, match="the sink fails"):
        sink.trigger(availableNow=True).start().awaitTermination(WAIT_S)
    expire_leases(client, queue)
    wait_until_ready(client, queue)


def test_an_expired_lease_fails_the_query_until_data_loss_is_accepted(
    pipeline: Pipeline, client: Client, queue: str
) -> None:
    def start() -> StreamingQuery:
        sink = pipeline.stream().writeStream.foreachBatch(note)
        return sink.option("checkpointLocation", str(pipeline.checkpoint)).trigger(availableNow=True).start()

    def note(rows: DataFrame, epoch: int) -> None:
        read[epoch] = [bytes(row["value"]) for row in rows.collect()]

    read: dict[int, list[bytes]] = {}
    expire_planned(pipeline, client, queue)
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match=r"batch 1 of subscription .* is expired.*'failOnDataLoss'"):
            start().awaitTermination(WAIT_S)
    pipeline.options["failOnDataLoss"] = "false"
    assert start().awaitTermination(WAIT_S)
    assert read == {0: [], 1: numbered(10)}


def test_a_lease_that_expires_after_the_sink_has_the_batch_is_reported_until_data_loss_is_accepted(
    pipeline: Pipeline, client: Client, queue: str
) -> None:
    def expire(rows: DataFrame, _epoch: int) -> None:
        read.append([bytes(row["value"]) for row in rows.collect()])
        if len(read) == 1:
            expire_leases(client, queue)
            wait_until_ready(client, queue)

    def start() -> StreamingQuery:
        sink = pipeline.stream().writeStream.foreachBatch(expire)
        return sink.option("checkpointLocation", str(pipeline.checkpoint)).trigger(availableNow=True).start()

    read: list[list[bytes]] = []
    push(client, queue, numbered(10))
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="may be read twice"):
            start().awaitTermination(WAIT_S)
    pipeline.options["failOnDataLoss"] = "false"
    assert start().awaitTermination(WAIT_S)
    assert read == [numbered(10), numbered(10)]


def test_leases_are_renewed_while_a_query_runs(pipeline: Pipeline, client: Client, queue: str) -> None:
    pipeline.options["lmq.lease"] = "2"
    expires: list[float] = []

    def longer_than_a_lease(rows: DataFrame, _epoch: int) -> None:
        def renewed() -> bool:
            known = client.subscription(queue)
            assert known is not None
            expires.append(known["batches"][0]["expires_in_s"])
            # A renewal increases the remaining time.
            return sum(later > earlier for earlier, later in pairwise(expires)) >= 4

        wait_for(renewed, "renewals for longer than the lease")
        assert rows.count() == 10

    push(client, queue, numbered(10))
    sink = pipeline.stream().writeStream.foreachBatch(longer_than_a_lease)
    query = sink.option("checkpointLocation", str(pipeline.checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(WAIT_S)
    assert settled_and_open(client, queue) == (1, [])


def test_a_restarted_query_keeps_its_lease_while_the_sink_takes_longer(
    pipeline: Pipeline, client: Client, queue: str
) -> None:
    """This uses a random subscription, whose name only the checkpoint knows, after a crash in the first micro-batch."""
    del pipeline.options["lmq.subscription"]
    read: list[list[bytes]] = []
    left_s: list[float] = []

    def renewed(subscription: str) -> bool:
        (batch,) = (client.subscription(subscription) or {})["batches"]
        left_s.append(batch["expires_in_s"])
        return sum(later > earlier for earlier, later in pairwise(left_s)) >= 4

    def crash_then_dawdle(rows: DataFrame, _epoch: int) -> None:
        read.append([bytes(row["value"]) for row in rows.collect()])
        if len(read) == 1:
            raise RuntimeError("the sink fails")
        (offset,) = pipeline.offsets()
        wait_for(lambda: renewed(str(offset["subscription"])), "renewals for longer than the lease")

    def start() -> StreamingQuery:
        sink = pipeline.stream().writeStream.foreachBatch(crash_then_dawdle)
        return sink.option("checkpointLocation", str(pipeline.checkpoint)).trigger(availableNow=True).start()

    push(client, queue, numbered(100))
    with pytest.raises(StreamingQueryException, match="the sink fails"):
        start().awaitTermination(WAIT_S)
    # However long the restart of the query takes, the lease is short only from then on.
    pipeline.options["lmq.lease"] = "6"
    assert start().awaitTermination(WAIT_S)
    assert read == [numbered(100), numbered(100)]
    assert client.backlog(queue=queue).messages == 0


def test_a_checkpoint_of_another_subscription_is_refused(pipeline: Pipeline, client: Client, queue: str) -> None:
    push(client, queue, numbered(1))
    pipeline.run()
    pipeline.options["lmq.subscription"] = "another"
    with pytest.raises(StreamingQueryException, match=f"is 'another', but the checkpoint belongs to '{queue}'"):
        pipeline.run()


def test_batches_settled_by_another_query_are_reported(pipeline: Pipeline, client: Client, queue: str) -> None:
    push(client, queue, numbered(1))
    pipeline.run()
    push(client, queue, numbered(2))
    session = client.claim_subscription(queue)
    client.reserve_batch(queue, 2, queue=queue, count=1, session=session)
    client.settle_batches(queue, 2, session=session)
    with pytest.raises(StreamingQueryException, match=r"batches 2 to 2 .* were settled by another query"):
        pipeline.run()
    pipeline.options["failOnDataLoss"] = "false"
    pipeline.run()
    assert pipeline.values() == sorted([*numbered(1), numbered(2)[1]])


class Reports(StreamingQueryListener):
    """Keeps the reports on the source of one query."""

    def __init__(self) -> None:
        self.sources: list[Any] = []

    def onQueryStarted(self, event: Any) -> None: ...  # noqa: N802

    def onQueryIdle(self, event: Any) -> None: ...  # noqa: N802

    def onQueryTerminated(self, event: Any) -> None: ...  # noqa: N802

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self.sources += event.progress.sources


def test_a_listener_gets_the_backlog(
    pipeline: Pipeline, client: Client, new_queue: Callable[[], str], queue: str
) -> None:
    other = new_queue()
    push(client, queue, [bytes(100)] * 30)
    push(client, other, [bytes(50)] * 5)
    del pipeline.options["subscribe"]
    pipeline.options |= {"subscribePattern": f"^({queue}|{other})$", "maxOffsetsPerTrigger": "10"}
    reports = Reports()
    pipeline.spark.streams.addListener(reports)
    try:
        pipeline.run()
        wait_for(lambda: len(reports.sources) >= 4, "the last report")
    finally:
        pipeline.spark.streams.removeListener(reports)
    lags = [json.loads(source.latestOffset) for source in reports.sources]
    assert [lag["backlog"] for lag in lags][:4] == [25, 15, 5, 0]
    sizes = {queue: 100, other: 50}
    for lag in lags[:3]:
        assert lag["backlog"] == sum(one["backlog"] for one in lag["queues"].values())
        assert lag["backlog_bytes"] == sum(one["backlog_bytes"] for one in lag["queues"].values())
        assert max(one["oldest_age_s"] for one in lag["queues"].values()) == lag["oldest_age_s"] > 0
        assert {name: one["backlog"] * sizes[name] for name, one in lag["queues"].items()} == {
            name: pytest.approx(one["backlog_bytes"], abs=5 * one["backlog"]) for name, one in lag["queues"].items()
        }
    assert (lags[-1]["oldest_age_s"], lags[-1]["queues"]) == (None, {})
    assert all(not source.metrics for source in reports.sources), "Spark does not ask Python sources for metrics"


def test_an_aggregate_with_a_watermark(pipeline: Pipeline, client: Client, queue: str) -> None:
    push(client, queue, [b"a", b"b", b"a"])
    counts = pipeline.stream().withWatermark("timestamp", "1 hour").groupBy(f.col("value").cast("string")).count()
    sink = counts.writeStream.format("memory").queryName("counts").outputMode("complete")
    query = sink.option("checkpointLocation", str(pipeline.checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(WAIT_S)
    assert {(row["value"], row["count"]) for row in pipeline.spark.table("counts").collect()} == {("a", 2), ("b", 1)}


def test_a_node_that_dies_in_a_micro_batch_causes_no_error(spark: SparkSession, tmp_path: Path, queue: str) -> None:
    def kill(rows: DataFrame, epoch: int) -> None:
        if epoch == 1:
            own[0].kill()
        read.extend(bytes(row["value"]) for row in rows.collect())

    read: list[bytes] = []
    with Cluster(3) as own:
        servers = ",".join(own.rpc_addresses)
        with Client(servers) as client:
            push(client, queue, numbered(3000))
        options = {"subscribe": queue, "maxOffsetsPerTrigger": "1000", "minPartitions": "2"}
        pipeline = Pipeline(spark, servers, tmp_path, options)
        sink = pipeline.stream().writeStream.foreachBatch(kill).option("checkpointLocation", str(pipeline.checkpoint))
        assert sink.trigger(availableNow=True).start().awaitTermination(WAIT_S)
        assert read == numbered(3000)


def test_unreachable_servers_are_named(pipeline: Pipeline) -> None:
    pipeline.servers = f"127.0.0.1:{ports.take()}"
    pipeline.options["lmq.timeout"] = "1"
    with pytest.raises(StreamingQueryException, match=f"option 'lmq.servers' = '{pipeline.servers}'"):
        pipeline.run()


def test_a_pattern_that_the_cluster_refuses_is_named(pipeline: Pipeline) -> None:
    del pipeline.options["subscribe"]
    pipeline.options["subscribePattern"] = "("
    with pytest.raises(StreamingQueryException, match=r"option 'subscribePattern' = '\(' is refused"):
        pipeline.run()


def test_a_query_that_is_restarted_repeatedly_duplicates_and_loses_nothing(
    pipeline: Pipeline, client: Client, queue: str
) -> None:
    def feed() -> None:
        for start in range(0, 6000, 200):
            push(client, queue, numbered(6000)[start : start + 200])

    pipeline.options["maxOffsetsPerTrigger"] = "500"
    with ThreadPoolExecutor(1) as threads:
        feeding = threads.submit(feed)
        for commits in (1, 3, 5):
            query = pipeline.start(available_now=False)
            wait_for((pipeline.checkpoint / "commits" / str(commits)).exists, "some micro-batches")
            query.stop()
        feeding.result()
    pipeline.forget_last_commit()
    pipeline.run()
    assert pipeline.values() == numbered(6000)
