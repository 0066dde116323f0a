"""Archive, replay and migrate against real clusters: each message once, also if a micro-batch is repeated."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lmqcluster import Client
from lmqcluster.spark.pipelines import migrate as migrate_module
from lmqcluster.spark.pipelines.archives.archive import ArchiveSettings, archive
from lmqcluster.spark.pipelines.archives.compaction import Compaction
from lmqcluster.spark.pipelines.base.access import Access
from lmqcluster.spark.pipelines.base.failures import BAD_DATA, USAGE, PipelineError
from lmqcluster.spark.pipelines.base.progress import QueryProgress
from lmqcluster.spark.pipelines.base.source import Source
from lmqcluster.spark.pipelines.base.storage import Storage
from lmqcluster.spark.pipelines.migrate import REMEMBERED_S, MigrateSettings, migrate
from lmqcluster.spark.pipelines.replays.replay import Replayed, ReplaySettings, replay
from lmqcluster.wire.attributes import Attributes
from tests.integration.cluster import Cluster

from .queues import numbered, pulled, push


class Watch:
    """Waits for the end of a query; then has its progress."""

    def __init__(self) -> None:
        self.messages = 0
        self.backlog: int | None = None

    def __call__(self, query: StreamingQuery) -> None:
        query.awaitTermination()
        progress = QueryProgress(query)
        progress.update()
        self.messages, self.backlog = progress.messages, progress.backlog


def parquet_files(table: Path) -> list[Path]:
    """Return the files of a table, without those hidden from its readers."""
    files = (path.relative_to(table) for path in table.rglob("*.parquet"))
    return sorted(path for path in files if not path.parts[0].startswith("_"))


def stored(spark: SparkSession, table: Path, queue: str) -> list[bytes]:
    """Return the values of a queue in a table, in the order of the messages."""
    rows = spark.read.parquet(str(table)).where(f"queue = '{queue}'").orderBy("offset").select("value").collect()
    return [bytes(row["value"]) for row in rows]


class KilledError(Exception):
    """Stands for the end of the process."""


def killed(*_arguments: object, **_named: object) -> None:
    """Raise in place of a function that the process does not live to call."""
    raise KilledError


def test_an_archive_holds_each_message_once_in_few_files(
    spark: SparkSession, client: Client, servers: str, new_queue: Callable[[], str], tmp_path: Path
) -> None:
    first, second = new_queue(), f"{new_queue()}/with space"
    table, watch = tmp_path / "table", Watch()
    pattern = f"^({first}|{second})$"
    settings = ArchiveSettings(
        source=Source(access=Access(servers=servers), pattern=pattern, messages_max=500, partitions_min=2),
        output=str(table),
    )
    contents = numbered(2000)
    for begin in (0, 1000):
        push(client, first, contents[begin : begin + 1000])
        push(client, second, contents[begin : begin + 500])
        archive(spark, settings, watch)
        assert (watch.messages, watch.backlog) == (1500, 0)
    assert stored(spark, table, first) == contents
    assert stored(spark, table, second) == [*contents[:500], *contents[1000:1500]]
    # There were six micro-batches; the hour may have changed.
    files = parquet_files(table)
    assert len(files) == len({path.parent for path in files}) <= 2
    assert all(path.parts[0].startswith("hour=") and len(path.parts) == 2 for path in files)
    assert not any((table / "_staging").iterdir())


def test_a_micro_batch_that_is_archived_again_replaces_its_first_attempt(
    spark: SparkSession, client: Client, servers: str, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, watch = tmp_path / "table", Watch()
    settings = ArchiveSettings(
        source=Source(access=Access(servers=servers), queue=queue, messages_max=200), output=str(table)
    )
    push(client, queue, numbered(500))
    with monkeypatch.context() as patched:
        # The step after the files have been moved to their names.
        patched.setattr(Compaction, "run", killed)
        with pytest.raises(StreamingQueryException, match="KilledError"):
            archive(spark, settings, watch)
    assert stored(spark, table, queue) == numbered(200)
    archive(spark, settings, watch)
    assert stored(spark, table, queue) == numbered(500)


@pytest.mark.parametrize("plan_is_written", [False, True])
def test_an_interrupted_merge_is_discarded_or_finished(
    spark: SparkSession,
    client: Client,
    servers: str,
    queue: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    plan_is_written: bool,
) -> None:
    table, watch = tmp_path / "table", Watch()
    settings = ArchiveSettings(
        source=Source(access=Access(servers=servers), queue=queue, messages_max=100), output=str(table)
    )
    push(client, queue, numbered(300))
    with monkeypatch.context() as patched:
        patched.setattr(
            Compaction if plan_is_written else Storage, "_execute" if plan_is_written else "write_text", killed
        )
        with pytest.raises(KilledError):
            archive(spark, settings, watch)
    assert any((table / "_staging").iterdir())
    assert stored(spark, table, queue) == numbered(300)

    archive(spark, settings, watch)
    assert stored(spark, table, queue) == numbered(300)
    files = parquet_files(table)
    assert len(files) == len({path.parent for path in files})
    assert not any((table / "_staging").iterdir())


def test_a_replayed_archive_keeps_queues_and_order_and_stores_nothing_twice(
    spark: SparkSession, client: Client, servers: str, queue: str, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    contents = [*numbered(500), b"twin", b"twin", b"\xff\x00 not text"]
    push(client, queue, contents)
    client.push_many(queue, [b"a,b", b"twin"], keys=["k1", "k2"], content_types=["text/csv", "text/plain"])
    archive(
        spark,
        ArchiveSettings(
            source=Source(access=Access(servers=servers), queue=queue, messages_max=200), output=str(table)
        ),
        Watch(),
    )
    settings = ReplaySettings(
        inputs=[str(table)], form="archive", access=Access(servers=servers), queue_prefix="again-", ordered=True
    )
    assert replay(spark, settings) == Replayed(len(contents) + 2, len(contents) + 2, 0)
    assert replay(spark, settings) == Replayed(len(contents) + 2, 0, 0)
    found = client.pull_many(f"again-{queue}", 1000)
    assert [one.content for one in found] == [*contents, b"a,b", b"twin"]
    assert [one.content_type for one in found[-3:]] == ["application/x-msgpack", "text/csv", "text/plain"]


CSV = 'origin,flight,note\nEWR,1,"a ""b"", c"\nJFK,2,\nEWR,1,"a ""b"", c"\nEWR,10,\nEWR,9,é\n'


def test_rows_of_csv_become_objects_of_strings(
    spark: SparkSession, client: Client, servers: str, queue: str, tmp_path: Path
) -> None:
    (tmp_path / "flights.csv").write_text(CSV)
    settings = ReplaySettings(
        inputs=[str(tmp_path / "*.csv")],
        form="csv",
        access=Access(servers=servers),
        queue_by="origin",
        queue_prefix=f"{queue}.",
    )
    assert replay(spark, settings).rows == 5
    twin = {"origin": "EWR", "flight": "1", "note": 'a "b", c'}
    numbers = [{"origin": "EWR", "flight": "10", "note": ""}, {"origin": "EWR", "flight": "9", "note": "é"}]
    assert [json.loads(value) for value in pulled(client, f"{queue}.EWR")] == [twin, twin, *numbers]
    assert [json.loads(value) for value in pulled(client, f"{queue}.JFK")] == [
        {"origin": "JFK", "flight": "2", "note": ""}
    ]


JSON_LINES = '{"to": "b", "n": 10}\n\n  {"n": 9, "to": "b", "deep": {"x": [1]}}\n{"to": "b", "n": 10}\n'


def test_lines_of_json_stay_unchanged_or_give_one_column(
    spark: SparkSession, client: Client, servers: str, new_queue: Callable[[], str], tmp_path: Path
) -> None:
    (tmp_path / "rows.jsonl").write_text(JSON_LINES)
    whole, column = new_queue(), new_queue()
    inputs = [str(tmp_path / "rows.jsonl")]
    as_is = ReplaySettings(inputs=inputs, form="json", access=Access(servers=servers), queue=whole, ordered=False)
    assert [replay(spark, as_is) for _ in range(2)] == [Replayed(3, 3, 0), Replayed(3, 0, 0)]
    assert sorted(pulled(client, whole)) == sorted(line.strip().encode() for line in JSON_LINES.splitlines() if line)
    numbers = ReplaySettings(
        inputs=inputs, form="json", access=Access(servers=servers), queue=column, value="n", order_by="n"
    )
    assert replay(spark, numbers).rows == 3
    assert pulled(client, column) == [b"9", b"10", b"10"]


def test_a_bad_row_ends_a_replay_before_anything_is_pushed_or_is_skipped(
    spark: SparkSession, client: Client, servers: str, queue: str, tmp_path: Path
) -> None:
    (tmp_path / "rows.jsonl").write_text('{"n": 1}\n\nno json\n[2]\n{"n": 3}\n')
    inputs = [str(tmp_path / "rows.jsonl")]
    with pytest.raises(PipelineError) as raised:
        replay(spark, ReplaySettings(inputs=inputs, form="json", access=Access(servers=servers), queue=queue))
    assert raised.value.exit_code == BAD_DATA
    assert "rows.jsonl, line 3: a row that cannot be read: no json; nothing was pushed" in str(raised.value)
    assert pulled(client, queue) == []
    skipping = ReplaySettings(inputs=inputs, form="json", access=Access(servers=servers), queue=queue, skip_bad=True)
    done = replay(spark, skipping)
    assert (done.rows, done.bad) == (2, 2)
    assert sorted(pulled(client, queue)) == [b'{"n": 1}', b'{"n": 3}']


def test_a_column_that_does_not_exist_is_named(spark: SparkSession, servers: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    settings = ReplaySettings(
        inputs=[str(tmp_path / "rows.csv")], form="csv", access=Access(servers=servers), queue_by="c"
    )
    with pytest.raises(PipelineError, match="--queue-by: unknown column 'c'; the columns are a, b") as raised:
        replay(spark, settings)
    assert raised.value.exit_code == USAGE


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Another cluster, of one node."""
    with Cluster(1, directory=tmp_path_factory.mktemp("target")) as nodes:
        yield nodes


def test_a_repeated_migration_moves_each_message_once(
    spark: SparkSession,
    client: Client,
    servers: str,
    target: Cluster,
    queue: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checkpoint, watch = tmp_path / "checkpoint", Watch()
    settings = MigrateSettings(
        source=Source(access=Access(servers=servers), queue=queue, messages_max=200, partitions_min=2),
        target=Access(servers=target[0].rpc),
        checkpoint=str(checkpoint),
        queue_prefix="moved-",
    )
    push(client, queue, numbered(500))
    write = migrate_module._write

    def write_and_die(*arguments: Any) -> None:
        write(*arguments)
        raise KilledError

    def interrupted_run() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(migrate_module, "_write", write_and_die)
            with pytest.raises(StreamingQueryException, match="KilledError"):
                migrate(spark, settings, watch)

    interrupted_run()
    migrate(spark, settings, watch)
    assert client.backlog(queue=queue).messages == 0

    # A restart at a time when the other cluster may have forgotten the job is refused, unless duplicates are accepted.
    push(client, queue, [b"last"])
    interrupted_run()
    [planned] = checkpoint.glob("offsets/3")
    long_ago = time.time() - REMEMBERED_S - 60
    os.utime(planned, (long_ago, long_ago))
    with pytest.raises(PipelineError, match="--accept-doubles"):
        migrate(spark, settings, watch)
    migrate(spark, replace(settings, accept_doubles=True), watch)
    with Client(target[0].rpc) as other:
        assert pulled(other, f"moved-{queue}") == [*numbered(500), b"last"]

    attributes: Attributes = {"text": "7", "n": 7, "share": 0.5, "raw": b"\xff"}
    client.push(queue, {"not": "bytes"}, priority=7, group="tenant", label="order-1", ttl=3600.0, attributes=attributes)
    client.push_many(queue, [b"a,b"], keys=["typed"], content_types=["text/csv"])
    migrate(spark, settings, watch)
    with Client(target[0].rpc) as other:
        details = other.peek(f"moved-{queue}", 10, details=True).details
        assert details is not None
        ends = zip(details.expires_us, details.pushed_us, strict=True)
        assert sorted(0 if end_us is None else end_us - pushed_us for end_us, pushed_us in ends) == [0, 3_600_000_000]
        found = other.pull_many(f"moved-{queue}", 10)
        assert [(one.content, one.content_type) for one in found] == [
            (b"a,b", "text/csv"),
            ({b"not": b"bytes"}, "application/x-msgpack"),
        ]
        assert [(one.priority, one.group, one.label, one.attributes) for one in found] == [
            (0, None, None, {}),
            (7, "tenant", "order-1", attributes),
        ]
