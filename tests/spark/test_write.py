"""Batch and streaming writes to a real cluster: every row once, whatever Spark repeats."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from lmqcluster import Client
from tests.integration.cluster import Cluster, ports, wait_for

from .queues import numbered, pulled, ready

ROWS = 3000
BATCH = 250
WIDTH = 500


def numbers(spark: SparkSession, rows: int, partitions: int = 2) -> DataFrame:
    """Return one column ``value``, as `numbered` makes them; each partition has consecutive ones in order."""
    return spark.range(0, rows, 1, partitions).select(f.format_string("m-%06d", "id").alias("value"))


def wide(spark: SparkSession, rows: int) -> DataFrame:
    """Return one partition of rows wide enough for Spark to pass them on before it has all of them."""
    return numbers(spark, rows, partitions=1).select(f.rpad("value", WIDTH, ".").alias("value"))


def content(number: int) -> bytes:
    """Return the content of a row of `wide`."""
    return (b"m-%06d" % number).ljust(WIDTH, b".")


def write(rows: DataFrame, servers: str, **options: str) -> None:
    """Append rows to queues."""
    rows.write.format("lmq").mode("append").option("lmq.servers", servers).options(**options).save()


def test_rows_become_messages_in_the_order_of_their_partition(
    spark: SparkSession, servers: str, client: Client, queue: str
) -> None:
    write(numbers(spark, ROWS, partitions=1), servers, queue=queue, **{"lmq.batchSize": "700"})
    assert pulled(client, queue) == numbered(ROWS)


def test_several_partitions_write_every_row_once(spark: SparkSession, servers: str, client: Client, queue: str) -> None:
    write(numbers(spark, ROWS, partitions=8), servers, queue=queue)
    assert sorted(pulled(client, queue)) == numbered(ROWS)


def test_a_column_names_the_queue_and_the_option_overrides_it(
    spark: SparkSession, servers: str, client: Client, new_queue: Callable[[], str]
) -> None:
    first, second, only = new_queue(), new_queue(), new_queue()
    rows = numbers(spark, 10, partitions=1).withColumn(
        "queue", f.when(f.col("value") < "m-000004", first).otherwise(second)
    )
    write(rows, servers)
    assert pulled(client, first) == numbered(10)[:4]
    assert pulled(client, second) == numbered(10)[4:]
    write(rows, servers, queue=only)
    assert pulled(client, only) == numbered(10)


def test_binary_values_arrive_unchanged(spark: SparkSession, servers: str, client: Client, queue: str) -> None:
    values = [b"", b"\x00\xff", b"\xc1" * 70_000]
    rows = spark.createDataFrame([(bytearray(value),) for value in values], "value binary").coalesce(1)
    write(rows, servers, queue=queue)
    assert pulled(client, queue) == values


def test_equal_rows_are_all_stored(spark: SparkSession, servers: str, client: Client, queue: str) -> None:
    write(spark.range(0, 100, 1, 2).select(f.lit("same").alias("value")), servers, queue=queue)
    assert pulled(client, queue) == [b"same"] * 100


def test_rows_with_equal_idempotency_keys_are_one_message(
    spark: SparkSession, servers: str, client: Client, queue: str
) -> None:
    rows = [("a", "k1"), ("a", "k1"), ("c", None), ("c", None), ("d", "k2")]
    write(spark.createDataFrame(rows, "value string, idempotency_key string").coalesce(1), servers, queue=queue)
    assert pulled(client, queue) == [b"a", b"c", b"c", b"d"]


def test_columns_and_options_set_the_delivery_of_rows(
    spark: SparkSession, servers: str, client: Client, queue: str
) -> None:
    rows = spark.createDataFrame(
        [
            ("late", 7, None, None, "x"),
            ("first", -1, 3600.0, "g", None),
            ("not yet", None, None, None, None),
        ],
        "value string, priority int, ttl double, group string, label string",
    ).withColumn("due", f.when(f.col("value") == "not yet", f.timestamp_seconds(f.lit(4_000_000_000))))
    write(rows.coalesce(1), servers, queue=queue, label="all", priority="2")
    found = client.pull_many(queue, 10)
    assert [(one.content, one.priority, one.group, one.label) for one in found] == [
        (b"first", -1, "g", "all"),
        (b"late", 7, None, "x"),
    ]
    assert client.count_labelled(queue, "all") == 1


def epoch_of(application: str, number: int) -> dict[str, str]:
    """Return the options that name a write."""
    return {"lmq.application": application, "lmq.epoch": str(number)}


def test_the_same_epoch_stores_nothing_twice(spark: SparkSession, servers: str, client: Client, queue: str) -> None:
    for partitions in (2, 5, 1):
        write(numbers(spark, 100).repartition(partitions), servers, queue=queue, **epoch_of(queue, 1))
    assert sorted(pulled(client, queue)) == numbered(100)
    with pytest.raises(PySparkException, match="epoch 1 is finished with 100 rows, and these 101 are not the same"):
        write(numbers(spark, 101), servers, queue=queue, **epoch_of(queue, 1))
    write(numbers(spark, 100), servers, queue=queue, **epoch_of(queue, 2))
    assert sorted(pulled(client, queue)) == numbered(100)


def _halves(batches: Iterable[pa.RecordBatch]) -> tuple[pa.Table, pa.Table]:
    rows = pa.Table.from_batches(list(batches)).combine_chunks()
    return rows.slice(0, rows.num_rows // 2), rows.slice(rows.num_rows // 2)


def _breaks_down_when_some_is_stored(
    http: str, queue: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The second attempt of the task has its rows in another order."""
    context = TaskContext.get()
    assert context is not None
    first, second = _halves(batches)
    if context.attemptNumber() > 0:
        yield from pa.concat_tables([second, first]).to_batches(max_chunksize=BATCH)
        return
    yield from first.to_batches(max_chunksize=BATCH)
    wait_for(lambda: ready(http, queue), "something stored")
    raise RuntimeError("this attempt breaks down")


def test_a_repeated_task_stores_nothing_twice(
    spark: SparkSession, cluster: Cluster, servers: str, client: Client, queue: str, tmp_path: Path
) -> None:
    def counted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _breaks_down_when_some_is_stored(http, queue, batches)
        Path(reached).touch()

    http, reached = cluster[0].http, str(tmp_path / "reached")
    # Both are parts of one task, with rows passing from one to the other as they arrive.
    rows = wide(spark, ROWS).mapInArrow(counted, "value string")
    write(rows, servers, queue=queue, **{"lmq.batchSize": "100"})
    assert Path(reached).exists()
    assert sorted(pulled(client, queue)) == sorted(content(number) for number in range(ROWS))


def test_a_node_that_dies_causes_no_error(spark: SparkSession, tmp_path: Path, queue: str) -> None:
    def pausing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first, second = _halves(batches)
        yield from first.to_batches(max_chunksize=BATCH)
        wait_for(Path(dead).exists, "the death of the node")
        yield from second.to_batches(max_chunksize=BATCH)

    def kill_when_some_is_stored() -> None:
        wait_for(lambda: ready(own[1].http, queue), "something stored")
        own[0].kill()
        Path(dead).touch()

    dead = str(tmp_path / "dead")
    with Cluster(3, directory=tmp_path) as own, ThreadPoolExecutor(1) as threads:
        # A client uses the first address while it answers.
        servers = ",".join(own.rpc_addresses)
        killing = threads.submit(kill_when_some_is_stored)
        write(wide(spark, ROWS).mapInArrow(pausing, "value string"), servers, queue=queue, **{"lmq.batchSize": "100"})
        killing.result()
        with Client(servers) as client:
            assert pulled(client, queue) == [content(number) for number in range(ROWS)]


def _stream(spark: SparkSession, folder: Path) -> DataFrame:
    """Return a stream of the lines of the files in a folder, a file for each micro-batch."""
    return spark.readStream.option("maxFilesPerTrigger", "1").text(str(folder))


def _run(stream: DataFrame, servers: str, queue: str, checkpoint: Path) -> None:
    sink = stream.writeStream.format("lmq").option("lmq.servers", servers).option("queue", queue)
    query = sink.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)


def test_a_stream_continues_from_its_checkpoint(
    spark: SparkSession, servers: str, client: Client, queue: str, tmp_path: Path
) -> None:
    lines = numbered(300)
    folder = tmp_path / "in"
    folder.mkdir()
    for start in (0, 100):
        (folder / f"{start}.txt").write_bytes(b"\n".join(lines[start : start + 100]))
    _run(_stream(spark, folder), servers, queue, tmp_path / "checkpoint")
    (folder / "200.txt").write_bytes(b"\n".join(lines[200:]))
    _run(_stream(spark, folder), servers, queue, tmp_path / "checkpoint")
    assert sorted(pulled(client, queue)) == lines


def test_a_micro_batch_that_is_repeated_after_a_crash_stores_nothing_twice(
    spark: SparkSession, servers: str, client: Client, queue: str, tmp_path: Path
) -> None:
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "0.txt").write_bytes(b"\n".join(numbered(100)))
    _run(_stream(spark, folder), servers, queue, checkpoint)
    assert sorted(pulled(client, queue)) == numbered(100)
    # The state after a crash between the sink's commit and the commit log.
    for entry in (checkpoint / "commits").iterdir():
        entry.unlink()
    _run(_stream(spark, folder), servers, queue, checkpoint)
    assert pulled(client, queue) == []


def jobs_of(client: Client, stem: str) -> dict[str, int]:
    """Return the number of stored messages, by the names of the jobs that begin with `stem`."""
    return {job["name"]: job["messages"] for job in client.jobs() if job["name"].startswith(stem)}


def test_a_query_leaves_one_job_of_constant_size(
    spark: SparkSession, servers: str, client: Client, queue: str, tmp_path: Path
) -> None:
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    folder.mkdir()
    for name, start in (("0", 0), ("1", 60)):
        (folder / f"{name}.txt").write_bytes(b"\n".join(numbered(100)[start : start + 60]))
        _run(_stream(spark, folder), servers, queue, checkpoint)
    query_id = json.loads((checkpoint / "metadata").read_text())["id"]
    (job,) = [job for job in client.jobs() if job["name"] == f"spark/stream/{query_id}"]
    assert (job["finished_epoch"], job["messages"], job["streams"], job["note_bytes"]) == (1, 40, 0, 0)


def test_a_batch_write_is_remembered_to_its_end_unless_it_has_a_name(
    spark: SparkSession, servers: str, client: Client, queue: str
) -> None:
    write(numbers(spark, 10), servers, queue=queue)
    with pytest.raises(PySparkException):
        write(
            numbers(spark, 10).withColumn("value", f.when(f.col("value") < "m-000008", f.col("value"))),
            servers,
            queue=queue,
        )
    assert jobs_of(client, "spark/batch/") == {}
    write(numbers(spark, 10), servers, queue=queue, **epoch_of(queue, 0))
    assert jobs_of(client, f"spark/application/{queue}") == {f"spark/application/{queue}": 10}


def test_an_empty_idempotency_key_is_refused(spark: SparkSession, servers: str, queue: str) -> None:
    rows = spark.createDataFrame([("a", "")], "value string, idempotency_key string")
    with pytest.raises(PySparkException, match="'idempotency_key' contains an empty key"):
        write(rows, servers, queue=queue)


def test_foreach_batch_can_name_its_writes(
    spark: SparkSession, servers: str, client: Client, queue: str, tmp_path: Path
) -> None:
    def twice(rows: DataFrame, epoch: int) -> None:
        for _ in range(2):
            write(rows, servers, queue=queue, **epoch_of(queue, epoch))

    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "0.txt").write_bytes(b"\n".join(numbered(100)))
    query = _stream(spark, folder).writeStream.foreachBatch(twice).trigger(availableNow=True)
    assert query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination(120)
    assert sorted(pulled(client, queue)) == numbered(100)


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        ("value int", {"queue": "q"}, "column 'value' must be binary or string, not int"),
        ("body string", {"queue": "q"}, "column 'value' (binary or string) is missing"),
        ("value string", {}, "the queue is missing"),
        ("value string", {"queue": "q", "lmq.batchsizes": "1"}, "did you mean 'lmq.batchSize'?"),
        ("value string", {"queue": "q", "lmq.servers": ""}, "option 'lmq.servers' is empty"),
    ],
)
def test_wrong_writes_are_refused_when_they_are_planned(
    spark: SparkSession, servers: str, columns: str, options: dict[str, str], text: str
) -> None:
    rows = spark.createDataFrame([], columns)
    with pytest.raises(PySparkException) as caught:
        write(rows, options.pop("lmq.servers", servers), **options)
    assert text in str(caught.value)


def test_replacing_a_queue_is_refused(spark: SparkSession, servers: str, queue: str) -> None:
    rows = numbers(spark, 1).write.format("lmq").mode("overwrite").option("lmq.servers", servers)
    with pytest.raises(PySparkException, match="must be append"):
        rows.option("queue", queue).save()


@pytest.mark.parametrize(("value", "name", "column"), [(None, "q", "value"), ("a", None, "queue")])
def test_a_null_is_refused(spark: SparkSession, servers: str, value: str | None, name: str | None, column: str) -> None:
    rows = spark.createDataFrame([(value, name)], "value string, queue string")
    with pytest.raises(PySparkException, match=f"column '{column}' contains 1 null"):
        write(rows, servers)


def test_unreachable_servers_are_named(spark: SparkSession, queue: str) -> None:
    address = f"127.0.0.1:{ports.take()}"
    with pytest.raises(PySparkException, match=f"option 'lmq.servers' = '{address}'"):
        write(numbers(spark, 1, partitions=1), address, queue=queue, **{"lmq.timeout": "1"})


def test_a_name_that_the_cluster_refuses_is_named(spark: SparkSession, servers: str) -> None:
    rows = spark.createDataFrame([("a", "q" * 300)], "value string, queue string")
    with pytest.raises(PySparkException, match="could not be pushed to queue 'qqq"):
        write(rows, servers)
