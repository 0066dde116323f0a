"""Batch reads in parallel: ranges of a queue, their rows while a queue changes, and data that a query need not read."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.types import StructType

from lmqcluster import Client
from lmqcluster.client import BatchColumns
from lmqcluster.spark.base.options import BatchRead
from lmqcluster.spark.base.schema import Extras, read_schema
from lmqcluster.spark.reading.batch_reader import PeekReader, spread
from tests.integration.delay_proxy import DelayProxy

from .queues import numbered, push

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
NewReader = Callable[..., PeekReader]
Row = dict[str, Any]


@pytest.fixture
def new_reader(servers: str, queue: str) -> NewReader:
    """A function that creates a reader of the test's queue, as Spark does for each query."""

    def make(columns: str = "value queue offset timestamp", **options: str) -> PeekReader:
        schema = StructType([field for field in read_schema(Extras()) if field.name in columns.split()])
        return PeekReader(BatchRead.parse({"lmq.servers": servers, "subscribe": queue, **options}), schema)

    return make


def rows_of(reader: PeekReader) -> list[Row]:
    """Return the rows of all tasks in order."""
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def test_the_ranges_of_a_queue_are_all_of_it(new_reader: NewReader, client: Client, queue: str) -> None:
    for start in range(0, 30_000, 10_000):
        push(client, queue, numbered(30_000)[start : start + 10_000])
    reader = new_reader(minPartitions="7")
    counts = [sum(len(batch) for batch in reader.read(part)) for part in reader.partitions()]
    assert len(counts) == 7
    assert max(counts) < 1.5 * 30_000 / 7
    rows = rows_of(reader)
    assert [row["value"] for row in rows] == numbered(30_000)
    offsets = [row["offset"] for row in rows]
    assert offsets == sorted(set(offsets))


def test_a_long_queue_makes_many_tasks_by_itself(new_reader: NewReader, client: Client, queue: str) -> None:
    for number in range(9):
        push(client, queue, [b"%d-%d" % (number, place) + bytes(20_000) for place in range(400)])
    assert len(new_reader().partitions()) == 2, "of about 64 MiB at most"
    client.delete(queue)


def test_messages_that_stay_are_read_once_while_others_change(
    new_reader: NewReader, client: Client, queue: str
) -> None:
    push(client, queue, numbered(12_000))
    parts = list((reader := new_reader(minPartitions="5")).partitions())
    random.Random(5).shuffle(parts)
    found: list[bytes] = []
    taken: set[bytes] = set()
    for number, part in enumerate(parts):
        push(client, queue, numbered(100, f"later-{number}"))
        for message in client.pull_many(queue, 200, 0):
            taken.add(message.content)
            # Some are removed, some stay leased, and some return to the end of the queue, with their offsets.
            if message.content[-1] % 3 == 0:
                assert message.ack()
            elif message.content[-1] % 3 == 1:
                assert message.nack()
        found += [row["value"] for batch in reader.read(part) for row in batch.to_pylist()]
    assert len(found) == len(set(found))
    assert set(numbered(12_000)) - taken <= set(found) <= set(numbered(12_000))


def test_a_task_requests_no_more_than_spark_takes(
    new_reader: NewReader, client: Client, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    peek = Client.peek

    def counted(client: Client, queue: str, count: int, *arguments: Any, **options: Any) -> BatchColumns:
        asked.append(count)
        return peek(client, queue, count, *arguments, **options)

    monkeypatch.setattr(Client, "peek", counted)
    push(client, queue, numbered(3_000))
    reader = new_reader()
    (part,) = reader.partitions()
    batches = reader.read(part)
    assert (len(next(batches)), asked) == (100, [100])
    assert sum(map(len, batches)) == 2_900
    assert asked == [100, 400, 1_600, 6_400]


def test_bodies_are_omitted_if_no_column_needs_them(new_reader: NewReader, client: Client, queue: str) -> None:
    push(client, queue, numbered(50))
    client.push(queue, "rich", priority=-1)
    page = client.peek(queue, 100, bodies=False, details=True)
    assert (len(page), set(page.bodies)) == (51, {b""})
    assert page.details is not None
    assert page.details.priorities == [0] * 50 + [-1]
    assert page.sequences == client.peek(queue, 100).sequences
    rows = rows_of(new_reader("queue offset timestamp"))
    whole = rows_of(new_reader())
    assert rows == [{name: row[name] for name in ("queue", "offset", "timestamp")} for row in whole]


def test_filters_are_applied_exactly_or_returned(servers: str, client: Client, new_queue: Callable[[], str]) -> None:
    queues = [new_queue() for _ in range(3)]
    for number in range(120):
        client.push(queues[number % 3], number)
        if number % 10 == 3:
            message = client.pull(queues[0], timeout=0)
            assert message is not None
            assert message.nack()
    options = BatchRead.parse({"lmq.servers": servers, "subscribe": ",".join(queues), "minPartitions": "3"})
    every = rows_of(PeekReader(options, read_schema(Extras())))
    chance = random.Random(9)
    for _ in range(60):
        filters = [_filter(chance, every) for _ in range(chance.randrange(1, 4))]
        reader = PeekReader(options, read_schema(Extras()))
        left = reader.pushFilters(filters)
        assert all(any(one is given for given in filters) for one in left)
        found = [row for row in rows_of(reader) if all(_passes(one, row) for one in left)]
        assert found == [row for row in every if all(_passes(one, row) for one in filters)], filters
    reader = PeekReader(options, read_schema(Extras()))
    assert reader.pushFilters(
        [EqualTo(("value",), b"x"), EqualTo(("timestamp",), datetime.now(UTC).replace(tzinfo=None)), IsNull(("queue",))]
    )
    assert rows_of(reader) == every


def _filter(chance: random.Random, rows: list[Row]) -> Filter:
    column = chance.choice(("queue", "offset", "offset", "timestamp", "timestamp"))
    kinds = (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual, EqualNullSafe, In, IsNotNull, Not)
    kind = chance.choice((*kinds, StringContains, StringStartsWith, StringEndsWith) if column == "queue" else kinds)
    value: Any = chance.choice(rows)[column]
    if kind in (StringContains, StringStartsWith, StringEndsWith):
        return kind((column,), value[-1] if kind is not StringStartsWith else value[:-1])
    if kind is In:
        return In((column,), tuple(chance.choice(rows)[column] for _ in range(3)))
    if kind is IsNotNull:
        return IsNotNull((column,))
    return Not(EqualTo((column,), value)) if kind is Not else kind((column,), value)  # type: ignore[call-arg, arg-type]


def _passes(one: Filter, row: Row) -> bool:
    if isinstance(one, Not):
        return not _passes(one.child, row)
    found = row[one.attribute[0]]  # type: ignore[attr-defined]
    value: Any = getattr(one, "value", None)
    return {
        EqualTo: lambda: found == value,
        EqualNullSafe: lambda: found == value,
        GreaterThan: lambda: found > value,
        GreaterThanOrEqual: lambda: found >= value,
        LessThan: lambda: found < value,
        LessThanOrEqual: lambda: found <= value,
        In: lambda: found in value,
        IsNotNull: lambda: True,
        StringContains: lambda: value in found,
        StringStartsWith: lambda: found.startswith(value),
        StringEndsWith: lambda: found.endswith(value),
    }[type(one)]()


@pytest.fixture(params=["true", "false"])
def pushdown(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[bool]:
    """Return whether Spark pushes filters down, which `register` has enabled."""
    assert spark.conf.get(PUSHDOWN) == "true"
    spark.conf.set(PUSHDOWN, request.param)
    yield request.param == "true"
    spark.conf.set(PUSHDOWN, "true")


def test_a_query_with_filters_has_its_rows_either_way(
    spark: SparkSession, servers: str, client: Client, new_queue: Callable[[], str], pushdown: bool
) -> None:
    first, second = new_queue(), new_queue()
    push(client, first, numbered(2_000, "a"))
    push(client, second, numbered(2_000, "b"))
    rows = spark.read.format("lmq").option("lmq.servers", servers).option("subscribe", f"{first},{second}").load()
    offsets = client.peek(first, 2_000).sequences
    some = rows.where((f.col("queue") == first) & (f.col("offset") >= offsets[100]) & (f.col("offset") < offsets[200]))
    assert some.rdd.getNumPartitions() == (1 if pushdown else 2)
    assert [bytes(row["value"]) for row in some.collect()] == numbered(2_000, "a")[100:200]
    plan = some._jdf.queryExecution().executedPlan().toString()
    assert ("Filter (" in plan) != pushdown
    due_us = client.peek(second, 2_000).due_us
    since = datetime.fromtimestamp(due_us[0] / 1e6, UTC)
    later = rows.where(f.col("timestamp") >= f.lit(since)).where(f.col("offset").isin(offsets[5], offsets[1_900]))
    expected = (
        [numbered(2_000, "a")[place] for place in (5, 1_900)] if due_us[0] <= client.peek(first, 1).due_us[0] else []
    )
    assert [bytes(row["value"]) for row in later.collect()] == expected


def test_a_query_that_needs_little_reads_little(
    spark: SparkSession, servers: str, client: Client, new_queue: Callable[[], str]
) -> None:
    long, other = new_queue(), new_queue()
    for _ in range(8):
        push(client, long, [bytes(1_000)] * 4_000)
    push(client, other, numbered(1))
    bytes_all = 32_000 * 1_000
    offsets = client.peek(long, 20, bodies=False).sequences

    def carried(query: Callable[[DataFrame], object], columns: str | None = None) -> int:
        before = proxy.carried_bytes
        source = spark.read.format("lmq").option("lmq.servers", proxy.addresses[0]).option("lmq.discover", "false")
        query((source if columns is None else source.schema(columns)).option("subscribe", f"{long},{other}").load())
        return proxy.carried_bytes - before

    with DelayProxy([servers.split(",", 1)[0]], 0.0) as proxy:
        assert carried(lambda rows: rows.count()) > bytes_all
        # The contents of buffers before Spark stops the task, and one page more.
        assert carried(lambda rows: rows.limit(5).collect()) < bytes_all / 2
        assert carried(lambda rows: rows.count(), "queue STRING, offset BIGINT") < bytes_all / 10
        assert carried(lambda rows: rows.where(f.col("queue") == other).collect()) < bytes_all / 20
        assert carried(lambda rows: rows.where(f.col("offset") <= offsets[-1]).collect()) < bytes_all / 20
        assert carried(lambda rows: rows.where("timestamp < '2020-01-01'").collect()) < bytes_all / 20


def test_tasks_are_spread_over_the_nodes() -> None:
    connection = BatchRead.parse({"lmq.servers": "a:1,b:2,c:3", "subscribe": "q"}).connection
    servers = [spread(connection, number).servers for number in range(4)]
    assert servers == ["a:1,b:2,c:3", "b:2,c:3,a:1", "c:3,a:1,b:2", "a:1,b:2,c:3"]
