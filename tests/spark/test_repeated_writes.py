"""Writes that fail half-way and are repeated with other tasks: every row is stored once, and other rows are refused."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from lmqcluster import Client
from tests.integration.cluster import Cluster, wait_for

from .queues import numbered, pulled, ready

ROWS = 2000
WIDTH = 4000
"""Rows wide enough for Spark to pass them on before it has all of them."""
SMALL = {"lmq.batchSize": "20"}


def wide(rows: int = ROWS, start: int = 0) -> list[bytes]:
    """Return the rows of a file."""
    return [row.ljust(WIDTH, b".") for row in numbered(start + rows)[start:]]


class Breakdown:
    """Makes a task fail when rows are stored, while a file exists."""

    def __init__(self, folder: Path, http: str, queue: str) -> None:
        self.flag = folder / "breaks-down"
        self.flag.touch()
        self._path, self._http, self._queue = str(self.flag), http, queue

    def __call__(self, rows: DataFrame) -> DataFrame:
        """Add the failure to a plan."""
        path, http, queue = self._path, self._http, self._queue

        def part(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            if not Path(path).exists():
                yield from batches
                return
            found = list(batches)
            if not found:
                return
            rows = pa.Table.from_batches(found).combine_chunks()
            yield from rows.slice(0, rows.num_rows * 3 // 4).to_batches(max_chunksize=25)
            wait_for(lambda: ready(http, queue), "something stored")
            raise RuntimeError("this task breaks down")

        return rows.mapInArrow(part, rows.schema)


@pytest.fixture
def breakdown(tmp_path: Path, cluster: Cluster, queue: str) -> Breakdown:
    """A failure of tasks that write to the queue."""
    return Breakdown(tmp_path, cluster[0].http, queue)


def stream(rows: DataFrame, servers: str, queue: str, checkpoint: Path, **options: str) -> None:
    """Write the current rows of a stream."""
    sink = rows.writeStream.format("lmq").options(**{"lmq.servers": servers, "queue": queue, **SMALL, **options})
    sink.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination(240)


@contextmanager
def settings(spark: SparkSession, values: dict[str, str]) -> Iterator[None]:
    """Change settings of the session within a block."""
    before = {name: str(spark.conf.get(name)) for name in values}
    try:
        for name, value in values.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


@pytest.fixture(autouse=True)
def small_batches(spark: SparkSession) -> Iterator[None]:
    """Passes rows from one Python function of a task to the next, a few at a time."""
    with settings(spark, {"spark.sql.execution.arrow.maxRecordsPerBatch": "20"}):
        yield


def some_are_stored(client: Client, queue: str, count: int = ROWS) -> bool:
    """Return whether a part of the rows is stored."""
    return 0 < len(client.peek(queue, count)) < count


@pytest.mark.parametrize(("before", "after"), [(8, 2), (2, 8), (4, 1)])
@pytest.mark.parametrize("adaptive", ["false", "true"])
def test_a_named_write(
    spark: SparkSession,
    servers: str,
    client: Client,
    queue: str,
    breakdown: Breakdown,
    before: int,
    after: int,
    adaptive: str,
) -> None:
    with settings(spark, {"spark.sql.adaptive.enabled": adaptive, "spark.sql.codegen.wholeStage": adaptive}):
        rows = spark.range(ROWS).select(f.rpad(f.format_string("m-%06d", "id"), WIDTH, ".").alias("value"))
        options = {"lmq.servers": servers, "queue": queue, "lmq.application": queue, "lmq.epoch": "7", **SMALL}

        def write(tasks: int) -> None:
            breakdown(rows.repartition(tasks)).write.format("lmq").mode("append").options(**options).save()

        with pytest.raises(PySparkException, match="this task breaks down"):
            write(before)
        assert some_are_stored(client, queue)
        breakdown.flag.unlink()
        write(after)
    assert sorted(pulled(client, queue)) == wide()


@pytest.mark.parametrize(("before", "after"), [("1m", "100m"), ("100m", "1m")])
def test_a_stream_of_files(
    spark: SparkSession,
    servers: str,
    client: Client,
    queue: str,
    breakdown: Breakdown,
    tmp_path: Path,
    before: str,
    after: str,
) -> None:
    """The constant for sizes of tasks changes between the runs."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.txt").write_bytes(b"\n".join(wide()))
    rows = breakdown(spark.readStream.text(str(tmp_path / "in")))
    with settings(spark, {"spark.sql.files.maxPartitionBytes": before, "spark.sql.files.openCostInBytes": "0"}):
        with pytest.raises(PySparkException, match="this task breaks down"):
            stream(rows, servers, queue, tmp_path / "checkpoint")
        assert some_are_stored(client, queue)
        breakdown.flag.unlink()
        spark.conf.set("spark.sql.files.maxPartitionBytes", after)
        stream(rows, servers, queue, tmp_path / "checkpoint")
    assert sorted(pulled(client, queue)) == wide()


@pytest.mark.parametrize(("before", "after"), [("8", "2"), ("2", "8")])
def test_a_stream_from_queue_to_queue(
    spark: SparkSession,
    servers: str,
    client: Client,
    queue: str,
    breakdown: Breakdown,
    tmp_path: Path,
    before: str,
    after: str,
) -> None:
    source = f"{queue}-source"
    client.push_many(source, wide())

    def run(tasks: str) -> None:
        options = {"lmq.servers": servers, "subscribe": source, "minPartitions": tasks}
        rows = breakdown(spark.readStream.format("lmq").options(**options).load().select("value"))
        stream(rows, servers, queue, tmp_path / "checkpoint")

    with pytest.raises(PySparkException, match="this task breaks down"):
        run(before)
    assert some_are_stored(client, queue)
    breakdown.flag.unlink()
    run(after)
    assert sorted(pulled(client, queue)) == wide()
    run(after)
    assert len(client.peek(source, 1)) == 0


def test_an_older_checkpoint(spark: SparkSession, servers: str, client: Client, queue: str, tmp_path: Path) -> None:
    """The same rows store nothing, and other rows fail the query before its checkpoint advances, until they
    have a new one.
    """
    folder, checkpoint, old = tmp_path / "in", tmp_path / "checkpoint", tmp_path / "old"
    folder.mkdir()

    def put(number: int) -> None:
        (folder / f"{number}.txt").write_bytes(b"\n".join(wide(10, 10 * number)))

    def run(where: Path) -> None:
        rows = spark.readStream.option("maxFilesPerTrigger", "1").text(str(folder))
        stream(rows, servers, queue, where)

    put(0)
    run(checkpoint)
    shutil.copytree(checkpoint, old)
    for number in range(1, 4):
        put(number)
        run(checkpoint)
    run(old)
    assert len(client.peek(queue, 100)) == 40
    shutil.rmtree(old)
    shutil.copytree(checkpoint, tmp_path / "again")
    put(4)
    run(checkpoint)
    (folder / "4.txt").unlink()
    put(5)
    with pytest.raises(PySparkException, match="epoch 4 is finished with 10 rows, and these 10 are not the same"):
        run(tmp_path / "again")
    for number in range(5):
        (folder / f"{number}.txt").unlink(missing_ok=True)
    run(tmp_path / "new")
    assert sorted(pulled(client, queue)) == wide(60)


def test_an_application_is_not_for_streams(spark: SparkSession, servers: str, queue: str, tmp_path: Path) -> None:
    """A job with a new checkpoint counts from 0 again, which must not count as a repetition."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.txt").write_bytes(b"a row")
    rows = spark.readStream.text(str(tmp_path / "in"))
    with pytest.raises(PySparkException, match="is for batch writes: a streaming write is identified by its query"):
        stream(rows, servers, queue, tmp_path / "c", **{"lmq.application": "daily", "lmq.epoch": "0"})


def test_rows_that_differ_when_they_are_repeated_fail_the_write(
    spark: SparkSession, servers: str, client: Client, queue: str, breakdown: Breakdown
) -> None:
    options = {"lmq.servers": servers, "queue": queue, "lmq.application": queue, "lmq.epoch": "0", **SMALL}

    def write() -> None:
        # Each has a different seed.
        rows = spark.range(ROWS).repartition(2).select(f.rpad(f.uuid(), WIDTH, ".").alias("value"))
        breakdown(rows).write.format("lmq").mode("append").options(**options).save()

    with pytest.raises(PySparkException, match="this task breaks down"):
        write()
    breakdown.flag.unlink()
    with pytest.raises(PySparkException, match=r"was repeated with other rows.*lmq-admin job rm"):
        write()
