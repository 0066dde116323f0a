"""An archive holds everything that a message has, and a replay restores everything that a push can set."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  what everybody calls it
from pyspark.sql.streaming.query import StreamingQuery

from lmqcluster import AsyncClient, Client
from lmqcluster.client import BatchMessage
from lmqcluster.client.batches import BatchDetails
from lmqcluster.spark.pipelines.archives.archive import SCHEMA, ArchiveSettings, archive
from lmqcluster.spark.pipelines.archives.compaction import Compaction, batch_file_name
from lmqcluster.spark.pipelines.base.access import Access
from lmqcluster.spark.pipelines.base.failures import BAD_DATA, USAGE, PipelineError
from lmqcluster.spark.pipelines.base.source import Source
from lmqcluster.spark.pipelines.base.storage import Storage
from lmqcluster.spark.pipelines.replays.replay import (
    Planned,
    PlannedQueue,
    Replayed,
    ReplaySettings,
    plan_replay,
    replay,
)

from .queues import numbered, pulled, push, wait_until_ready

ODD = bytes(range(256))
DAY = timedelta(days=1)


def watch(query: StreamingQuery) -> None:
    query.awaitTermination()


def archived(
    spark: SparkSession, servers: str, table: Path, pattern: str, messages_max: int = 100_000, **options: Any
) -> None:
    source = Source(access=Access(servers=servers), pattern=pattern, messages_max=messages_max)
    archive(spark, ArchiveSettings(source=source, output=str(table), **options), watch)


def replayed(servers: str, table: Path, **options: Any) -> ReplaySettings:
    return ReplaySettings(inputs=[str(table)], form="archive", access=Access(servers=servers), **options)


def stored(client: Client, queue: bytes) -> list[tuple[Any, ...]]:
    """Return the push options of all messages of a queue, in push order, with times to live as durations."""
    found: list[tuple[Any, ...]] = []
    position: int | None = 0
    while position is not None:
        page = client.peek(queue, 1000, position, details=True)
        assert isinstance(page.details, BatchDetails)
        traits = zip(page.details.priorities, page.details.groups, page.details.labels, ttls(page.details), strict=True)
        found += [(*shown(one), *rest) for one, rest in zip(page, traits, strict=True)]
        position = page.next
    return found


def ttls(details: BatchDetails) -> list[int | None]:
    pairs = zip(details.expires_us, details.pushed_us, strict=True)
    return [None if expires_us is None else expires_us - pushed_us for expires_us, pushed_us in pairs]


def shown(message: BatchMessage) -> tuple[Any, ...]:
    return message.body, message.content_type, message.attributes


def hostile_rows() -> list[dict[str, Any]]:
    """Return pushes with contents, types and options that are hard to preserve."""
    return [
        {"content": b""},
        {"content": b"", "content_type": ""},
        {"content": ODD, "content_type": "application/octet-stream"},
        {"content": b"\xff\xfe not UTF-8", "content_type": b"text/plain; name=\xff\xfe"},
        {"content": b"m" * (1 << 20), "content_type": "application/x-large"},
        {"content": b"n" * (1 << 20)},
        {"content": b"\xc4\x01x", "content_type": "application/x-msgpack"},
        {"content": {"a": [1, b"\x80", None]}},
        {"content": b"attributes", "options": {"attributes": {"raw": ODD, "traceparent": "00-4bf9-01"}}},
        {"content": b"numbers", "options": {"attributes": {"n": -(1 << 63), "tiny": 5e-324, "zero": -0.0, "one": 1.0}}},
        {"content": b"texts", "options": {"attributes": {"private \uef80": "\uefff\uf8ff", "a": "", "n": "7"}}},
        {"content": b"many", "options": {"attributes": {f"n{n}": "x" * 140 for n in range(64)}}, "content_type": ""},
        *({"content": b"g%d" % n, "options": {"group": b"%d" % n + b"\xff" * 254, "priority": -n}} for n in range(3)),
        {
            "content": b"all",
            "options": {"priority": -(1 << 31), "label": b"\x80" * 255, "group": "g", "ttl": 86_400.000001},
        },
        {"content": b"low", "options": {"priority": (1 << 31) - 1, "label": "l", "ttl": 1e9}},
        {"content": b"twin"},
        {"content": b"twin"},
    ]


def push_rows(client: Client, queue: bytes, rows: list[dict[str, Any]]) -> None:
    options: list[Any] = [row.get("options", {}) for row in rows]
    client.push_many(
        queue,
        [row["content"] for row in rows],
        content_types=[row.get("content_type") for row in rows],
        options=options,
    )


def test_a_round_trip_keeps_every_byte_that_a_push_can_set(
    spark: SparkSession, client: Client, servers: str, new_queue: Callable[[], str], tmp_path: Path
) -> None:
    stem = new_queue().encode()
    names = [stem, stem + b"\xff\xfe", stem + b"/../x", stem + b"=%2F\xc3\xa9", (stem + b"n" * 255)[:255]]
    pattern = f"^{stem.decode()}"
    for name in names:
        push_rows(client, name, hostile_rows())
    pushed = {name: stored(client, name) for name in names}
    assert len(pushed[names[0]]) == len(hostile_rows())
    archived(spark, servers, tmp_path / "table", pattern, messages_max=40, by="day")
    assert client.backlog(pattern=pattern).messages == 0
    # The files of the three micro-batches are merged.
    days = [path.parent for path in (tmp_path / "table").glob("day=*/*.parquet")]
    assert len(days) == len(set(days))

    table = spark.read.parquet(str(tmp_path / "table"))
    assert table.drop("day").schema.fieldNames() == SCHEMA.fieldNames()
    assert table.select("queue").distinct().count() == len(names)
    assert table.where("delivery <> 1 or pushed_at is null or offset is null or timestamp is null").isEmpty()
    assert table.where("abs(ttl - (unix_micros(expires_at) - unix_micros(pushed_at)) / 1e6) < 1e-6").count() == 2 * len(
        names
    )

    # Into the same queues; the longest name has no room for a prefix.
    assert replay(spark, replayed(servers, tmp_path / "table")) == Replayed(len(names) * 19, len(names) * 19, 0)
    assert {name: stored(client, name) for name in names} == pushed


def test_the_parts_of_a_compound_message_are_replayed_as_pushed(
    spark: SparkSession, client: Client, servers: str, queue: str, tmp_path: Path
) -> None:
    client.update_props(queue, {"accum": 1.0})
    client.push_many(queue, numbered(12), options=[{"attributes": {"n": number}} for number in range(12)])
    wait_until_ready(client, queue)
    archived(spark, servers, tmp_path / "table", f"^{queue}$")
    [shown] = (
        spark.read.parquet(str(tmp_path / "table"))
        .agg(
            F.countDistinct("offset"),
            F.countDistinct("part"),
            F.max("parts"),
            F.count_if(F.col("attributes")["n"] == F.col("part")),
            F.count_if(F.col("content_type").isNull()),
        )
        .collect()
    )
    assert tuple(shown) == (1, 12, 12, 12, 12)
    assert replay(spark, replayed(servers, tmp_path / "table", queue_prefix="again-")).stored == 12
    again = client.pull_many(f"again-{queue}", 100, 0)
    assert [(one.content, one.attributes) for one in again] == [(m, {"n": n}) for n, m in enumerate(numbered(12))]


def rows_at(spark: SparkSession, table: Path, times: list[datetime], queue: str = "q") -> None:
    """Write a table by day as archive does, with a message at each of these times."""
    rows = [
        {
            "value": b"m%d" % n,
            "queue": queue,
            "offset": n,
            "timestamp": time,
            "day": f"{time:%Y-%m-%d}",
            "priority": n % 3,
        }
        for n, time in enumerate(times)
    ]
    schema = "value binary, queue string, offset bigint, timestamp timestamp, priority int, day string"
    spark.createDataFrame(rows, schema).write.partitionBy("day").parquet(str(table))


NOON = datetime(2026, 11, 3, 12, tzinfo=UTC)


def test_a_window_opens_only_the_files_of_its_days(
    spark: SparkSession, client: Client, servers: str, queue: str, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    rows_at(spark, table, [NOON + DAY * n for n in range(5)], queue)
    for day in ("2026-11-03", "2026-11-07"):
        [file] = (table / f"day={day}").glob("*.parquet")
        file.write_bytes(b"not Parquet")
    window = replayed(servers, table, since=NOON + DAY, until=NOON + 3 * DAY)
    assert plan_replay(spark, window, 10) == Planned([PlannedQueue(queue, 2, 4)], 1, 2, 4, 0)
    assert client.backlog(queue=queue).messages == 0
    assert replay(spark, window) == Replayed(2, 2, 0)
    assert pulled(client, queue) == [b"m1", b"m2"]
    with pytest.raises(PipelineError, match=r"nothing was pushed|day=2026-11-03") as raised:
        replay(spark, replace(window, since=NOON))
    assert raised.value.exit_code == BAD_DATA


EXPRESSIONS = {
    "priority <": ("--where: .*nothing was pushed", USAGE),
    "no_such_column = 1": ("--where: .*no_such_column.*nothing was pushed", USAGE),
    "priority + 1": ("--where: .*nothing was pushed", USAGE),
    "rand() < 0.5": ("--where: the expression selects other rows each time", USAGE),
    "1 / (offset - 3) > 0": ("--where: .*[Dd]ivision by zero.*nothing was pushed", BAD_DATA),
    "cast(string(value) as int) = 1": ("--where: .*nothing was pushed", BAD_DATA),
}


def test_an_expression_that_fails_is_reported_before_anything_is_pushed(
    spark: SparkSession, client: Client, servers: str, queue: str, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    rows_at(spark, table, [NOON + DAY * (n // 3) for n in range(6)], queue)
    (tmp_path / "rows.jsonl").write_text('{"n": 1}\n{"n": 0}\nbad\n')
    for expression, (text, code) in EXPRESSIONS.items():
        settings = replayed(servers, table, where=expression)
        for run in (replay, partial(plan_replay, queues_max=10)):
            with pytest.raises(PipelineError, match=text) as raised:
                run(spark, settings)
            assert raised.value.exit_code == code, expression
    assert client.backlog(queue=queue).messages == 0

    chosen = replayed(servers, table, where=f"priority = 0 and day > '2026-11-03' and queue = '{queue}'")
    assert replay(spark, chosen) == Replayed(1, 1, 0)
    assert pulled(client, queue) == [b"m3"]
    lines = ReplaySettings(
        inputs=[str(tmp_path / "rows.jsonl")],
        form="json",
        access=Access(servers=servers),
        queue=queue,
        where="variant_get(json, '$.n', 'int') > 0",
        skip_bad=True,
    )
    assert replay(spark, lines) == Replayed(1, 1, 1)
    with pytest.raises(PipelineError, match=r"rows\.jsonl, line 3: a row that cannot be read: bad; nothing was pushed"):
        replay(spark, replace(lines, skip_bad=False, where="variant_get(json, '$.n', 'int') > 5"))


def test_a_name_identifies_one_selection_of_rows(
    spark: SparkSession, client: Client, servers: str, queue: str, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    rows_at(spark, table, [NOON + DAY * n for n in range(4)], queue)
    # With a rate one task writes.
    first = replayed(servers, table, name=queue, until=NOON + 2 * DAY, rate=1000.0)
    assert replay(spark, first) == Replayed(2, 2, 0)
    # Other tasks, another order and another rate select the same rows.
    assert replay(spark, replace(first, order_by="value", rate=None)) == Replayed(2, 0, 0)
    assert replay(spark, replace(first, ordered=False, rate=2000.0)) == Replayed(2, 0, 0)
    others = (
        replace(first, until=NOON + 3 * DAY),
        replace(first, where="offset < 2"),
        replace(first, queue_prefix="x"),
        replace(first, queue="other"),
    )
    for other in others:
        with pytest.raises(PipelineError, match=r"has other arguments.*nothing was pushed") as raised:
            replay(spark, other)
        assert raised.value.exit_code == USAGE
    assert pulled(client, queue) == [b"m0", b"m1"]

    # Without a name another selection is another replay, and merged files are the same one.
    nameless = replace(first, name=None)
    assert replay(spark, nameless).stored == 2
    assert replay(spark, replace(nameless, where="offset = 1")).stored == 1
    merged = tmp_path / "merged"
    spark.read.parquet(str(table)).withColumn("day", F.col("day").cast("string")).coalesce(1).write.partitionBy(
        "day"
    ).parquet(str(merged))
    table.rename(tmp_path / "old")
    merged.rename(table)
    assert replay(spark, nameless) == Replayed(2, 0, 0)


def test_foreign_files_are_reported_and_left_unchanged(
    spark: SparkSession, client: Client, servers: str, queue: str, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    push(client, queue, numbered(10))
    table.mkdir()
    (table / "notes.txt").write_text("mine")
    (table / ".hidden").write_text("mine")
    archived(spark, servers, table, f"^{queue}$")
    push(client, queue, numbered(10, "n"))
    archived(spark, servers, table, f"^{queue}$")
    assert (table / "notes.txt").read_text() == "mine"
    again = replayed(servers, table, queue_prefix="again-")
    with pytest.raises(PipelineError, match=r"notes\.txt is not a file of the archive: .*nothing was pushed") as raised:
        replay(spark, again)
    assert raised.value.exit_code == BAD_DATA
    (table / "notes.txt").unlink()
    [hour, *_] = table.glob("hour=*")
    foreign = hour / "foreign.parquet"
    spark.range(3).coalesce(1).write.parquet(str(tmp_path / "other"))
    [part] = (tmp_path / "other").glob("*.parquet")
    part.rename(foreign)
    with pytest.raises(PipelineError, match=r"foreign\.parquet.*nothing was pushed") as raised:
        replay(spark, again)
    assert raised.value.exit_code == BAD_DATA
    foreign.unlink()
    assert replay(spark, again) == Replayed(20, 20, 0)
    with pytest.raises(PipelineError, match="contains a table by hour: use --by hour"):
        archived(spark, servers, table, f"^{queue}$", by="day")


def test_merged_files_keep_columns_that_only_some_have(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    plain = spark.createDataFrame(
        [(b"a", "q", 1, None, {"x": "1"})],
        "value binary, queue string, offset bigint, part int, attributes map<string,string>",
    )
    for number, rows in enumerate((plain, plain.withColumn("decoded", F.create_map(F.lit("k"), F.lit(7))))):
        rows.coalesce(1).write.parquet(str(tmp_path / "written"), mode="overwrite")
        [file] = (tmp_path / "written").glob("*.parquet")
        (table / "day=2026-11-03").mkdir(parents=True, exist_ok=True)
        file.rename(table / "day=2026-11-03" / batch_file_name("q", number))
    storage = Storage(spark, str(table))
    Compaction(spark, storage, period="day", file_bytes=1 << 20).run("q", before=2, small_files=2)
    [merged] = storage.find("day=*/*.parquet")
    found = spark.read.parquet(merged.path)
    assert found.select("value", "attributes.x", "decoded.k").orderBy("k").collect() == [
        (b"a", "1", None),
        (b"a", "1", 7),
    ]


def test_ten_thousand_queues_become_few_files(
    spark: SparkSession, servers: str, new_queue: Callable[[], str], tmp_path: Path
) -> None:
    stem = new_queue()
    count = 10_000
    names = [f"{stem}/{number}" for number in range(count)]

    async def push_each() -> None:
        async with AsyncClient(servers) as client:
            await asyncio.gather(*(client.push(name, b"x") for name in names))

    asyncio.run(push_each())
    table = tmp_path / "table"
    archived(spark, servers, table, f"^{stem}/")
    files = [path for path in table.rglob("*.parquet") if "_staging" not in path.parts]
    assert len(files) <= 2
    assert {path.relative_to(table).parts[0].partition("=")[0] for path in files} == {"hour"}
    found = plan_replay(spark, replayed(servers, table), 3)
    assert (found.queue_count, found.rows, found.size_bytes, len(found.queues)) == (count, count, count, 3)


def test_a_rate_holds_over_all_queues(
    spark: SparkSession, client: Client, servers: str, new_queue: Callable[[], str], tmp_path: Path
) -> None:
    queues = [new_queue() for _ in range(4)]
    lines = [json.dumps({"to": queues[number % 4], "n": number}) for number in range(300)]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    settings = ReplaySettings(
        inputs=[str(tmp_path / "rows.jsonl")],
        form="json",
        access=Access(servers=servers),
        queue_by="to",
        value="n",
        rate=100.0,
    )
    assert replay(spark, settings) == Replayed(300, 300, 0)
    pushed_us: list[int] = []
    for number, queue in enumerate(queues):
        details = client.peek(queue, 1000, details=True).details
        assert details is not None
        pushed_us += details.pushed_us
        assert [int(content) for content in pulled(client, queue)] == list(range(number, 300, 4))
    pushed_us.sort()
    # The last request of each queue is a partial one; a burst is a tenth of a second.
    assert pushed_us[-1] - pushed_us[0] >= 2_800_000
    for first, last in zip(pushed_us, pushed_us[121:], strict=False):
        assert last - first >= 950_000


def test_a_replay_that_failed_half_way_stores_what_is_missing(
    spark: SparkSession, client: Client, servers: str, queue: str, tmp_path: Path
) -> None:
    rows_at(spark, tmp_path / "bad", [NOON], "\x7f")
    with pytest.raises(PipelineError, match="row 1: a queue name with control characters"):
        replay(spark, replayed(servers, tmp_path / "bad"))
    rows_at(spark, tmp_path / "table", [NOON + DAY * n for n in range(3)], queue)
    client.update_props(queue, {"max_items": 2})
    # Requests of one row.
    half = replayed(servers, tmp_path / "table", name=queue, rate=10.0)
    with pytest.raises(PySparkException, match="is full"):
        replay(spark, half)
    with pytest.raises(PipelineError, match="has other arguments"):
        replay(spark, replace(half, where="offset > 0"))
    client.update_props(queue, {"max_items": 10})
    assert replay(spark, replace(half, rate=None, ordered=False)) == Replayed(3, 1, 0)
    assert pulled(client, queue) == [b"m0", b"m1", b"m2"]
