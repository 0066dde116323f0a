"""A cluster that is restored from a backup under a query: the reader, called as Spark calls it, reports it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from lmqcluster import Client
from lmqcluster.spark import start_query
from lmqcluster.spark.base.errors import DataLossError
from lmqcluster.spark.base.options import BatchRead
from lmqcluster.spark.base.schema import Extras, read_schema
from lmqcluster.spark.reading.batch_reader import PeekReader
from tests.integration.cluster import NodeProcess, wait_for
from tests.integration.programs import Result, run

from .queues import NewReader, numbered, push, values

OFFSETS = StructType(
    [one for one in read_schema(Extras(delivery=True)) if one.name in ("value", "offset", "incarnation")]
)


def done(result: Result) -> None:
    assert result.code == 0, result


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path, "n1").start() as node:
        yield node


@pytest.fixture
def servers(node: NodeProcess) -> str:
    """The servers of a cluster that this test restores."""
    return node.rpc


def restore(node: NodeProcess, file: Path) -> None:
    """Replace the cluster by the contents of a backup, at the same addresses."""
    node.kill()
    shutil.rmtree(node.data_dir)
    done(run("lmq-admin", "restore", str(file), "--data-dir", str(node.data_dir), "--raft", node.raft))
    node.start()


def rows(servers: str, queue: str) -> set[tuple[str, int]]:
    """Return incarnation and offset of all messages that a batch read of the queue finds."""
    reader = PeekReader(
        BatchRead.parse({"lmq.servers": servers, "subscribe": queue, "includeDelivery": "true"}), OFFSETS
    )
    return {
        (row["incarnation"], row["offset"])
        for part in reader.partitions()
        for batch in reader.read(part)
        for row in batch.to_pylist()
    }


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("sink_has_it", [False, True])
def test_a_restore_is_reported_and_offsets_are_distinguished(
    node: NodeProcess,
    new_reader: NewReader,
    servers: str,
    queue: str,
    tmp_path: Path,
    restarted: bool,
    sink_has_it: bool,
) -> None:
    with Client(servers) as client:
        push(client, queue, numbered(10))
        reader = new_reader()
        start = reader.initialOffset()
        first = reader.latestOffset(start, ReadMaxRows(4))
        assert values(reader, start, first) == numbered(10)[:4]
        done(run("lmq-admin", "--node", node.http, "backup", str(tmp_path / "backup")))
        second = reader.latestOffset(first, ReadMaxRows(4))
        if sink_has_it:
            assert values(reader, first, second) == numbered(10)[4:8]
        push(client, queue, [b"lost"])
        before = rows(servers, queue)
    if restarted:
        reader.stop()
    restore(node, tmp_path / "backup")
    with Client(servers) as client:
        push(client, queue, [b"new"])
        calls: list[Callable[[Any], Any]] = [
            lambda one: one.latestOffset(second, ReadMaxRows(10)),
            lambda one: one.commit(second),
            lambda one: one.partitions(first, second),
        ]
        for call in calls:
            with pytest.raises(DataLossError, match=r"restored from a backup.*batch 2 was planned: its incarnation is"):
                call(new_reader() if restarted else reader)
        lenient = new_reader(failOnDataLoss="false")
        if not sink_has_it:
            assert values(lenient, first, second) == []
        end = lenient.latestOffset(second, ReadMaxRows(100))
        # The first batch was planned before the backup: it is settled with the checkpoint, and is not redelivered.
        assert values(lenient, second, end) == [*numbered(10)[4:], b"new"]
        lenient.stop()
        # From now on the checkpoint belongs to this incarnation.
        again = new_reader()
        assert again.latestOffset(end, ReadMaxRows(10)) == end
        push(client, queue, [b"newer", b"newest"])
        after = rows(servers, queue)
    offsets_before, offsets_after = ({offset for _, offset in found} for found in (before, after))
    assert max(offsets_before) >= min(offsets_after) - 2
    assert {life for life, _ in before}.isdisjoint(life for life, _ in after)


def test_a_task_that_runs_while_the_cluster_is_restored_reports_it(
    node: NodeProcess, new_reader: NewReader, servers: str, queue: str, tmp_path: Path
) -> None:
    with Client(servers) as client:
        push(client, queue, numbered(4))
    done(run("lmq-admin", "--node", node.http, "backup", str(tmp_path / "backup")))
    reader = new_reader()
    start = reader.initialOffset()
    (part,) = reader.partitions(start, reader.latestOffset(start, ReadMaxRows(4)))
    restore(node, tmp_path / "backup")
    with pytest.raises(DataLossError, match="restored from a backup"):
        list(reader.read(part))


def test_a_query_fails_when_the_cluster_under_it_is_restored(
    spark: SparkSession, node: NodeProcess, servers: str, queue: str, tmp_path: Path
) -> None:
    """Spark runs the query: the error reaches its caller, and with `failOnDataLoss` off no row is duplicated."""

    def start(**options: str) -> StreamingQuery:
        rows = spark.readStream.format("lmq").option("lmq.servers", servers).option("subscribe", queue)
        sink = rows.options(**options).load().select("value").writeStream.format("parquet")
        sink = sink.option("path", str(tmp_path / "table")).option("checkpointLocation", str(tmp_path / "checkpoint"))
        return start_query(sink.trigger(processingTime="0 seconds"))

    def table() -> list[bytes]:
        if not any((tmp_path / "table" / "_spark_metadata").glob("[0-9]*")):
            return []
        return sorted(bytes(row.value) for row in spark.read.parquet(str(tmp_path / "table")).collect())

    def wait_for_end(query: StreamingQuery) -> None:
        wait_for(lambda: not query.isActive, "the end of the query")

    def wait_for_rows(query: StreamingQuery, expected: list[bytes]) -> None:
        wait_for(lambda: not query.isActive or table() == sorted(expected), f"{len(expected)} rows")
        assert query.isActive, query.exception()

    with Client(servers) as client:
        push(client, queue, numbered(30))
        query = start()
        wait_for_rows(query, numbered(30))
        done(run("lmq-admin", "--node", node.http, "backup", str(tmp_path / "backup")))
        push(client, queue, numbered(40)[30:])
        wait_for_rows(query, numbered(40))
    restore(node, tmp_path / "backup")
    with Client(servers) as client:
        push(client, queue, [b"new"])
        for attempt in (lambda: query, start):
            # The start of a query stops an earlier one with the same checkpoint.
            ended = attempt()
            wait_for_end(ended)
            assert "restored from a backup" in str(ended.exception())
        assert table() == numbered(40)
        lenient = start(failOnDataLoss="false")
        wait_for_rows(lenient, [*numbered(40), b"new"])
        lenient.stop()
