"""Batch reads from a real cluster: they peek, and take nothing."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from lmqcluster import Client
from lmqcluster.spark.base.options import BatchRead
from lmqcluster.spark.reading.batch_reader import PeekReader
from tests.integration.cluster import Cluster, ports, wait_for

from .queues import numbered, pulled, push


def read(spark: SparkSession, servers: str, **options: str) -> DataFrame:
    """Read a batch."""
    return spark.read.format("lmq").option("lmq.servers", servers).options(**options).load()


def values(rows: DataFrame) -> list[bytes]:
    """Return the values in the order of the messages."""
    return [bytes(row["value"]) for row in sorted(rows.collect(), key=lambda row: row["offset"])]


def test_peek_changes_nothing(spark: SparkSession, servers: str, client: Client, queue: str) -> None:
    push(client, queue, numbered(12_000))
    rows = read(spark, servers, subscribe=queue)
    assert [bytes(row["value"]) for row in rows.collect()] == numbered(12_000)
    assert rows.count() == 12_000
    assert pulled(client, queue) == numbered(12_000)


def test_every_column_is_filled(spark: SparkSession, servers: str, client: Client, queue: str) -> None:
    push(client, queue, [b"a", b"b"])
    client.push(queue, "c", attributes={"text": "x", "count": 7})
    first, second, third = read(
        spark, servers, subscribe=queue, includeAttributes="true", includeDelivery="true"
    ).collect()
    assert (bytes(first["value"]), first["queue"]) == (b"a", queue)
    assert first["offset"] < second["offset"]
    assert abs(first["timestamp"].replace(tzinfo=UTC) - datetime.now(UTC)) < timedelta(hours=1)
    assert (first["attributes"], first["attribute_types"], first["type"]) == ({}, {}, "normal")
    assert (first["deliveries_left"], first["part"], first["parts"]) == (3, None, None)
    assert third["attributes"] == {"text": "x", "count": "7"}
    assert third["attribute_types"] == {"count": "integer"}


def test_repeated_reads_remove_nothing(spark: SparkSession, servers: str, client: Client, queue: str) -> None:
    push(client, queue, numbered(20_000))
    rows = read(spark, servers, subscribe=queue)
    rows.show(3)
    assert len(rows.sort("offset").collect()) == 20_000
    assert client.backlog(queue=queue).messages == 20_000
    assert client.subscriptions() == []


def test_several_short_queues_are_read_with_a_task_each(
    spark: SparkSession, servers: str, client: Client, new_queue: Callable[[], str]
) -> None:
    first, second = new_queue(), new_queue()
    push(client, first, numbered(5, "a"))
    push(client, second, numbered(5, "b"))
    rows = read(spark, servers, subscribe=f"{first}, {second}")
    assert rows.rdd.getNumPartitions() == 2
    assert {(row["queue"], bytes(row["value"])) for row in rows.collect()} == {
        *((first, value) for value in numbered(5, "a")),
        *((second, value) for value in numbered(5, "b")),
    }


def test_an_empty_queue_has_no_rows(spark: SparkSession, servers: str, queue: str) -> None:
    assert read(spark, servers, subscribe=queue).collect() == []


def test_some_columns_are_enough(spark: SparkSession, servers: str, client: Client, queue: str) -> None:
    push(client, queue, numbered(3))
    source = spark.read.format("lmq").option("lmq.servers", servers).option("subscribe", queue)
    rows = source.schema("offset long, value binary").load()
    assert rows.columns == ["offset", "value"]
    assert values(rows) == numbered(3)
    assert rows.filter("offset < 0").count() == 0


def test_rows_that_were_read_can_be_written(
    spark: SparkSession, servers: str, client: Client, new_queue: Callable[[], str]
) -> None:
    source, target = new_queue(), new_queue()
    push(client, source, numbered(100))
    rows = read(spark, servers, subscribe=source, includeAttributes="true")
    rows.write.format("lmq").mode("append").option("lmq.servers", servers).option("queue", target).save()
    assert pulled(client, target) == numbered(100)


def test_push_options_can_be_read_and_written_again(
    spark: SparkSession, servers: str, client: Client, new_queue: Callable[[], str]
) -> None:
    source, target = new_queue(), new_queue()
    client.push(source, "late", priority=9, group="tenant", label="order-1")
    client.push(source, "soon", priority=-1)
    client.push(source, "plain")
    rows = read(spark, servers, subscribe=source, includeDelivery="true")
    first, second, third = sorted(rows.collect(), key=lambda row: row["offset"])
    assert (first["priority"], first["group"], first["label"]) == (9, "tenant", "order-1")
    assert (second["priority"], second["group"], second["label"]) == (-1, None, None)
    assert (third["priority"], third["delivery"]) == (0, 0)
    assert first["pushed_at"] <= second["pushed_at"] <= third["pushed_at"]
    assert abs(third["pushed_at"].replace(tzinfo=UTC) - datetime.now(UTC)) < timedelta(hours=1)
    rows.write.format("lmq").mode("append").option("lmq.servers", servers).option("queue", target).save()
    again = [client.pull(target, timeout=0) for _ in range(3)]
    assert [(one.value, one.priority, one.group, one.label) for one in again if one is not None] == [
        ("soon", -1, None, None),
        ("plain", 0, None, None),
        ("late", 9, "tenant", "order-1"),
    ]


def test_compound_messages_are_exploded(spark: SparkSession, servers: str, client: Client, queue: str) -> None:
    client.update_props(queue, {"accum": 1.0})
    for value in ("a", "b", 3):
        client.push(queue, value)
    wait_for(lambda: client.backlog(queue=queue).messages, "the end of the window")
    (compound,) = read(spark, servers, subscribe=queue).collect()
    assert bytes(compound["value"]) == b"\xdd\x00\x00\x00\x03\xa1a\xa1b\x03"
    parts = read(spark, servers, subscribe=queue, explode="true", includeDelivery="true").collect()
    assert [bytes(row["value"]) for row in parts] == [b"a", b"b", b"\x03"]
    assert [(row["type"], row["part"], row["parts"]) for row in parts] == [("compound", n, 3) for n in range(3)]
    assert {row["offset"] for row in parts} == {compound["offset"]}


def test_a_body_pushed_over_http_keeps_its_type(
    spark: SparkSession, cluster: Cluster, servers: str, queue: str
) -> None:
    request = urllib.request.Request(
        f"http://{cluster[0].http}/messages/{queue}", b"a,b", {"Content-Type": "text/csv"}, method="POST"
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request) as response:
        assert response.status == 200
    (row,) = read(spark, servers, subscribe=queue).collect()
    assert (bytes(row["value"]), row["content_type"]) == (b"a,b", "text/csv")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "option 'subscribe' or 'subscribePattern' is required"),
        ({"subscribe": "a", "lmq.server": "x"}, "did you mean 'lmq.servers'?"),
        ({"subscribe": "a", "mode": "take"}, "option 'mode' must be peek, not 'take'"),
        ({"subscribe": "a", "mode": "drain"}, "'lmq-pipeline archive --once', or 'lmq-admin drain'"),
        ({"subscribe": "a", "includeattribute": "true"}, "did you mean 'includeAttributes'?"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "5"}, "'maxOffsetsPerTrigger' is for streaming reads"),
        ({"subscribePattern": "a"}, "'subscribePattern' is for streaming reads"),
        ({"subscribe": "q" * 256}, "option 'subscribe' must have at most 255 bytes"),
    ],
)
def test_wrong_options_are_named(spark: SparkSession, servers: str, options: dict[str, str], text: str) -> None:
    with pytest.raises(PySparkException) as caught:
        read(spark, servers, **options).collect()
    assert text in str(caught.value)


def test_an_unsuitable_schema_is_refused(spark: SparkSession, servers: str) -> None:
    source = spark.read.format("lmq").option("lmq.servers", servers).option("subscribe", "a")
    with pytest.raises(PySparkException, match="column 'value' is binary, not string; unknown column 'topic'"):
        source.schema("value string, topic string").load().collect()


def test_unreachable_servers_are_named(spark: SparkSession) -> None:
    address = f"127.0.0.1:{ports.take()}"
    with pytest.raises(PySparkException, match=f"option 'lmq.servers' = '{address}'"):
        read(spark, address, subscribe="a", **{"lmq.timeout": "1"}).collect()


@pytest.mark.parametrize(("size", "count"), [(1_000, 24_000), (20_000, 1_200), (1_000_000, 70)])
def test_large_messages_are_all_read(servers: str, client: Client, queue: str, size: int, count: int) -> None:
    """The reader is called as Spark calls it on an executor; a page holds neither all of them nor the head
    and 32 chunks.
    """
    step = max(1, 4_000_000 // size)
    for start in range(0, count, step):
        push(client, queue, [b"%08d" % number + bytes(size) for number in range(start, min(start + step, count))])
    schema = StructType([StructField("offset", LongType()), StructField("value", BinaryType())])
    options = BatchRead.parse({"lmq.servers": servers, "subscribe": queue})
    reader = PeekReader(options, schema)
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert [int(row["value"][:8]) for row in rows] == list(range(count))
    assert len({row["offset"] for row in rows}) == count
    client.delete(queue)
