"""Event journals as a stream: every line once while nodes write and files are truncated, damaged or deleted; windows as
in `report`.
"""

from __future__ import annotations

import gzip
import json
import time
import zlib
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StringType, StructField, StructType

from lmqcluster import Client
from lmqcluster.spark.base.errors import OptionError
from lmqcluster.spark.pipelines.base.storage import Storage
from lmqcluster.spark.pipelines.reports import watch as watch_module
from lmqcluster.spark.pipelines.reports.report import ReportSettings, report
from lmqcluster.spark.pipelines.reports.watch import Thresholds, WatchSettings, watch
from lmqcluster.spark.reading.journal_source import JournalReader, JournalSource
from tests.integration.cluster import Cluster, wait_for

from .queues import numbered, push
from .test_pipeline_report import delivery, event
from .test_pipeline_tables import Watch, killed

NAME = "events-20261103T150000.000000Z-{}.jsonl.gz"
ALL = ReadAllAvailable()


def member(*lines: str) -> bytes:
    """Return the lines that a node appends at once."""
    return gzip.compress("".join(f"{line}\n" for line in lines).encode())


def append(folder: Path, data: bytes, node: str = "n1") -> Path:
    """Write to the file of a node."""
    path = folder / NAME.format(node)
    with path.open("ab") as file:
        file.write(data)
    return path


def lines_between(reader: JournalReader, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    """Return the lines that the tasks of a micro-batch read."""
    pieces = reader.partitions(start, end)
    return [line for piece in pieces for batch in reader.read(piece) for line in batch.column(0).to_pylist()]


# --- the source, called as Spark calls it
# ---------------------------------------------------------------------------------


def test_appended_lines_are_read_once_and_a_member_cut_anywhere_waits(tmp_path: Path) -> None:
    reader = JournalReader(tmp_path)
    assert reader.latestOffset({}, ALL) == {}
    append(tmp_path, member("a", "b"))
    append(tmp_path, member("x"), "n2")
    first = reader.latestOffset({}, ALL)
    assert lines_between(reader, {}, first) == ["a", "b", "x"]
    assert reader.latestOffset(first, ALL) == first
    whole = member("c", "d")
    begun = (tmp_path / NAME.format("n1")).read_bytes()
    for end in range(len(whole)):
        (tmp_path / NAME.format("n1")).write_bytes(begun + whole[:end])
        assert reader.latestOffset(first, ALL) == first
    (tmp_path / NAME.format("n1")).write_bytes(begun + whole)
    # Another process, from the checkpoint.
    reader = JournalReader(tmp_path)
    second = reader.latestOffset(json.loads(json.dumps(first)), ALL)
    assert lines_between(reader, first, second) == ["c", "d"]
    # Later data does not change a planned micro-batch.
    append(tmp_path, member("e"))
    assert lines_between(reader, first, second) == ["c", "d"]


def test_a_damaged_member_is_one_bad_line_and_later_ones_are_read(tmp_path: Path) -> None:
    damaged = bytearray(member("lost" * 100))
    damaged[20] ^= 0xFF
    append(tmp_path, member("a") + bytes(damaged) + member("b") + b"no gzip at all" + member("c"))
    reader = JournalReader(tmp_path)
    found = lines_between(reader, {}, reader.latestOffset({}, ALL))
    assert [line for line in found if line in {"a", "b", "c"}] == ["a", "b", "c"]
    assert 1 <= len(found) - 3 <= 3
    assert not any("lost" in line for line in found)


def test_hostile_lines_and_members_are_bounded(tmp_path: Path) -> None:
    packer = zlib.compressobj(9, wbits=31)
    bomb = (
        b"".join(packer.compress(b" " * (1 << 20)) for _ in range(256)) + packer.compress(b"\nafter\n") + packer.flush()
    )
    append(tmp_path, bomb + member("\x00\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), "z"))
    reader = JournalReader(tmp_path)
    long, after, _odd, last = lines_between(reader, {}, reader.latestOffset({}, ALL))
    assert (len(long), after, last) == (64 * 1024, "after", "z")


def test_a_deleted_file_is_reported_and_the_others_are_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    gone = append(tmp_path, member("gone"))
    append(tmp_path, member("kept"), "n2")
    reader = JournalReader(tmp_path)
    end = reader.latestOffset({}, ALL)
    gone.unlink()
    assert lines_between(reader, {}, end) == ["kept"]
    assert "events missing" in caplog.text
    assert reader.latestOffset(end, ALL) == end
    append(tmp_path, member("more"), "n2")
    following = reader.latestOffset(end, ALL)
    assert set(following) == {NAME.format("n2")}
    assert lines_between(reader, end, following) == ["more"]


def test_available_now_ends_where_the_files_ended_and_a_micro_batch_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmqcluster.spark.reading.journal_source._BATCH_BYTES", 1)
    for line in ("a", "b"):
        append(tmp_path, member(line))
    reader = JournalReader(tmp_path)
    reader.prepareForTriggerAvailableNow()
    append(tmp_path, member("later"))
    start: dict[str, Any] = {}
    read = []
    while (end := reader.latestOffset(start, ALL)) != start:
        read.append(lines_between(reader, start, end))
        start = end
    assert read == [["a"], ["b"]]


def test_a_missing_folder_is_named() -> None:
    schema = StructType([StructField("value", StringType())])
    for options in ({}, {"path": "/nowhere/at/all"}):
        with pytest.raises(OptionError, match="path"):
            JournalSource(options).streamReader(schema)


# --- windows
# --------------------------------------------------------------------------------------------------------------


def lines_of(events: list[dict[str, Any] | str]) -> bytes:
    """Return a member of these events."""
    return member(*(one if isinstance(one, str) else json.dumps(one) for one in events))


FIRST: list[dict[str, Any] | str] = [
    event("push", 0, count=10, bytes=100),
    '{"time": "2026-11-03T15:00:01.000000Z", "event": "pu',
    "no json",
    *(delivery(10, number, number / 10) for number in range(1, 5)),
    event("ack", 20, id="id-1", ok=True),
    event("put_back", 21, id="id-2", ok=True),
    event("withdraw", 30, count=2),
    event("move", 31, count=1, to="other"),
    delivery(70, 9, 5, redelivery=True, retry_remaining=0),
    event("nack", 71, id="id-9", ok=True),
    event("push", 100, queue="<i>&\x1b", count=1, bytes=1),
]


def settings_of(tmp_path: Path, **more: Any) -> WatchSettings:
    """Return a watch with small thresholds."""
    (tmp_path / "journal").mkdir(exist_ok=True)
    thresholds = Thresholds(open=5, wait_p99_s=3, redelivered_share=0.5, drops=0)
    return WatchSettings(
        journal=str(tmp_path / "journal"), checkpoint=str(tmp_path / "checkpoint"), output=str(tmp_path / "table"),
        thresholds=thresholds, **more,
    )  # fmt: skip


def test_windows_are_shown_once_with_the_figures_of_report_and_alerts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(tmp_path)
    journal = tmp_path / "journal"
    shown: list[dict[str, Any]] = []
    append(journal, lines_of(FIRST))
    watch(spark, settings, shown.extend, Watch())
    # Events go to 15:01:40, so that the minute from 15:01 has not ended.
    assert [(row["window"].minute, row["queue"], row["open"]) for row in shown] == [(0, "other", 1), (0, "q", 6)]
    first = shown[-1]
    assert (first["arrivals"], first["deliveries"], first["redeliveries"], first["drops"]) == (10, 3, 0, 0)
    assert (first["wait_p50_s"], first["wait_max_s"]) == pytest.approx((0.3, 0.4))
    assert first["alerts"] == ["open 6.0 > 5"]
    # The same as a report on the same minute.
    minute = [one for one in FIRST if isinstance(one, dict) and one["time"] < "2026-11-03T15:01"]
    (tmp_path / "minute.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in minute))
    [entry] = report(spark, ReportSettings(journals=[str(tmp_path / "minute.jsonl")]))["queues"]
    assert {name: first[name] for name in ("arrivals", "deliveries", "redeliveries", "drops")} == {
        name: entry[name] for name in ("arrivals", "deliveries", "redeliveries", "drops")
    }
    assert {f"wait_{name}_s": entry["waiting_s"][name] for name in ("p50", "p99", "max")} == {
        name: first[name] for name in ("wait_p50_s", "wait_p99_s", "wait_max_s")
    }

    # The process ends before the state of the second micro-batch is written; another node's journal is late.
    append(journal, lines_of([event("ack", 65, id="id-3", ok=True)]), "n2")
    append(journal, lines_of([event("push", 200, count=3, bytes=3)]))
    with monkeypatch.context() as patched:
        patched.setattr(Storage, "write_text", killed)
        with pytest.raises(StreamingQueryException, match="KilledError"):
            watch(spark, settings, shown.extend, Watch())
    shown.clear()
    watch(spark, settings, shown.extend, Watch())
    assert [(row["window"].minute, row["queue"], row["open"]) for row in shown] == [(1, "<i>&\x1b", 1), (1, "q", 4)]
    assert shown[-1]["alerts"] == ["wait p99 5.0 > 3", "redelivered share 1.0 > 0.5", "drops 1.0 > 0"]
    append(journal, lines_of([event("push", 400, queue="other", count=1, bytes=1)]))
    watch(spark, settings, shown.extend, Watch())
    assert (shown[-1]["window"].minute, shown[-1]["queue"], shown[-1]["open"]) == (3, "q", 7)
    table = spark.read.parquet(str(tmp_path / "table"))
    keys = [(row["window"].minute, row["queue"]) for row in table.orderBy("window", "queue").collect()]
    assert keys == [(0, "other"), (0, "q"), (1, "<i>&\x1b"), (1, "q"), (3, "q")]


def test_state_that_later_windows_do_not_need_is_forgotten(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "_KEPT_S", 60)
    settings = settings_of(tmp_path, lease_s=60.0)
    shown: list[dict[str, Any]] = []
    for minute in range(0, 50, 10):
        append(tmp_path / "journal", lines_of([event("push", minute * 60, count=1, bytes=1)]))
        watch(spark, settings, shown.extend, Watch())
    assert [row["open"] for row in shown] == [1, 2, 3, 4]
    state = tmp_path / "checkpoint" / "watch"
    assert len(list((state / "events").glob("batch=*"))) <= 2
    assert len(list((state / "state").glob("*.json"))) <= 2


def test_the_journal_of_a_node_that_writes(spark: SparkSession, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    settings = settings_of(tmp_path, window_s=1, delay_s=0.0)
    reader = JournalReader(journal)
    shown: list[dict[str, Any]] = []

    def is_written(queue: str) -> bool:
        return any(f'"{queue}"' in line for line in lines_between(reader, {}, reader.latestOffset({}, ALL)))

    with (
        Cluster(1, directory=tmp_path, arguments=("--event-journal", str(journal))) as cluster,
        Client(cluster.rpc_addresses) as client,
    ):
        for turn in (1, 2):
            push(client, "busy", numbered(5))
            assert all(message.ack() for message in client.pull_many("busy", 4, 5))
            # A later event shows that the second of the earlier ones is over.
            time.sleep(1.1)
            push(client, f"later-{turn}", [b"x"])
            wait_for(lambda turn=turn: is_written(f"later-{turn}"), "the journal")  # type: ignore[misc]
            watch(spark, settings, shown.extend, Watch())
    rows = [row for row in shown if row["queue"] == "busy"]
    assert (sum(row["arrivals"] for row in rows), sum(row["deliveries"] for row in rows)) == (10, 8)
    assert rows[-1]["open"] == 2
    assert all(0 <= row["wait_p50_s"] <= row["wait_p99_s"] for row in rows if row["deliveries"])
