"""Decoding archives: good rows in the table, bad ones in the quarantine, each once under repetitions; and
Delta tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from lmqcluster import Client
from lmqcluster.spark.pipelines.archives import archive as archive_module
from lmqcluster.spark.pipelines.archives import delta
from lmqcluster.spark.pipelines.archives.archive import ArchiveSettings, archive
from lmqcluster.spark.pipelines.base.access import Access
from lmqcluster.spark.pipelines.base.failures import USAGE, PipelineError
from lmqcluster.spark.pipelines.base.quarantine import Decoding
from lmqcluster.spark.pipelines.base.source import Source
from lmqcluster.wire.attributes import Attributes

from .queues import numbered, push
from .test_decoding import AVRO, DATUM, avro_bytes
from .test_pipeline_tables import KilledError, Watch, killed

NUMBERS = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def settings_of(servers: str, queue: str, table: Path, **more: Any) -> ArchiveSettings:
    """Return an archive of a queue in micro-batches of 40 messages."""
    source = Source(access=Access(servers=servers), queue=queue, messages_max=40, partitions_min=2)
    return ArchiveSettings(source=source, output=str(table), **more)


def die_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Replace a function so that the process ends after the first call."""
    calls = [0]

    def call_and_die(*arguments: Any, **named: Any) -> Any:
        result = function(*arguments, **named)
        calls[0] += 1
        if calls[0] == 1:
            raise KilledError
        return result

    return call_and_die


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_bad_rows_are_quarantined_once_with_their_reasons_and_good_ones_are_decoded(
    spark: SparkSession, client: Client, servers: str, queue: str, tmp_path: Path, form: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    bad, table = f"{queue}.bad", tmp_path / "table"
    decoding = Decoding(form="json", schema=json.dumps(NUMBERS), quarantine=bad)
    settings = settings_of(servers, queue, table, form=form, decoding=decoding)
    values = [b'{"n": %d}' % number if number % 5 else b'{"n": "%d"}' % number for number in range(100)]
    push(client, queue, values)
    client.push(queue, b"\xff", label="mine", priority=4, group="g")
    # Once after the bad rows are stored, and once after the good ones are.
    name = "_ParquetTable" if form == "parquet" else "_DeltaTable"
    for patch in (killed, die_once(getattr(archive_module, name).write)):
        with monkeypatch.context() as patched:
            patched.setattr(getattr(archive_module, name), "write", patch)
            with pytest.raises(StreamingQueryException, match="KilledError"):
                archive(spark, settings, Watch())
    archive(spark, settings, Watch())
    assert client.backlog(queue=queue).messages == 0

    if form == "parquet":
        rows = [row.asDict(recursive=True) for row in spark.read.parquet(str(table)).orderBy("offset").collect()]
    else:
        rows = sorted(DeltaTable(str(table)).to_pyarrow_table().to_pylist(), key=lambda row: row["offset"])
    assert [bytes(row["value"]) for row in rows] == [value for number, value in enumerate(values) if number % 5]
    assert [row["decoded"] for row in rows] == [{"n": number} for number in range(100) if number % 5]
    assert {row["queue"] for row in rows} == {queue}
    read = spark.read.format("lmq").options(**Access(servers=servers).options(), subscribe=bad)
    found = read.options(includeAttributes="true", includeDelivery="true").load().orderBy("offset").collect()
    assert [bytes(row["value"]) for row in found] == [*values[::5], b"\xff"]
    reasons = [row["attributes"]["quarantine_reason"] for row in found]
    assert reasons == ["$.n: is a string, not an integer"] * 20 + ["is not UTF-8 at byte 0"]
    assert {row["attributes"]["quarantine_queue"] for row in found} == {queue}
    assert len({row["attributes"]["quarantine_offset"] for row in found}) == 21
    assert [(row["label"], row["priority"], row["group"]) for row in found][-1] == ("mine", 4, "g")


def test_the_reasons_join_the_attributes_of_a_message_if_there_is_room(
    spark: SparkSession, client: Client, servers: str, queue: str, tmp_path: Path
) -> None:
    decoding = Decoding(form="json", schema=json.dumps(NUMBERS), quarantine=f"{queue}.bad")
    attributes: list[Attributes] = [
        {"n": 1, "raw": b"\xff"},
        {"quarantine_reason": b"old", "quarantine_offset": "old"},
        {f"n{number}": number for number in range(61)},
        {f"n{number}": number for number in range(62)},
        {"quarantine_offset": "old", "large": "x" * 10_100},
        {"large": bytes(10_200)},
    ]
    for number, one in enumerate(attributes):
        client.push(queue, b"%d" % number, attributes=one)
    archive(spark, settings_of(servers, queue, tmp_path / "table", decoding=decoding), Watch())
    found = client.pull_many(f"{queue}.bad", 10, 0)
    assert [one.content for one in found] == [b"%d" % number for number in range(6)]
    offset = found[0].attributes["quarantine_offset"]
    assert isinstance(offset, int)
    reasons = [
        {
            "quarantine_reason": "$: is an integer, not an object",
            "quarantine_queue": queue,
            "quarantine_offset": offset + number,
        }
        for number in range(3)
    ]
    assert [one.attributes for one in found[:3]] == [{**attributes[number], **reasons[number]} for number in range(3)]
    assert [one.attributes for one in found[3:]] == attributes[3:]


def test_avro_is_decoded(spark: SparkSession, client: Client, servers: str, queue: str, tmp_path: Path) -> None:
    decoding = Decoding(form="avro", schema=json.dumps(AVRO), quarantine=f"{queue}.bad")
    datum = avro_bytes(AVRO, DATUM)
    push(client, queue, [datum, datum[:-1]])
    archive(spark, settings_of(servers, queue, tmp_path / "table", decoding=decoding), Watch())
    [row] = spark.read.parquet(str(tmp_path / "table")).collect()
    assert (row["decoded"]["id"], row["decoded"]["lines"][0]["count"], row["decoded"]["tags"]) == (-5, 3, {"a": 0.5})
    [bad] = client.pull_many(f"{queue}.bad", 10, 0)
    assert bad.content == datum[:-1]


def test_an_archive_that_begins_to_decode_keeps_its_contents(
    spark: SparkSession, client: Client, servers: str, queue: str, tmp_path: Path
) -> None:
    settings = settings_of(servers, queue, tmp_path / "table")
    push(client, queue, [b'{"n": 1}'])
    archive(spark, settings, Watch())
    push(client, queue, [b'{"n": 2}'])
    decoding = Decoding(form="json", schema=json.dumps(NUMBERS), quarantine=f"{queue}.bad")
    archive(spark, settings_of(servers, queue, tmp_path / "table", decoding=decoding), Watch())
    rows = spark.read.option("mergeSchema", "true").parquet(str(tmp_path / "table")).orderBy("offset").collect()
    assert [row["decoded"] and row["decoded"]["n"] for row in rows] == [None, 2], (
        "the merge of small files lost a column"
    )


def test_a_quarantine_that_would_be_read_again_and_bad_schemas_are_refused(
    spark: SparkSession, servers: str, queue: str, tmp_path: Path
) -> None:
    access = Access(servers=servers)
    decoding = Decoding(form="json", schema=json.dumps(NUMBERS), quarantine="bad")
    for source in (Source(access=access, queue="a, bad"), Source(access=access, pattern="^b")):
        with pytest.raises(PipelineError, match="would read its own messages") as raised:
            archive(spark, ArchiveSettings(source=source, output=str(tmp_path), decoding=decoding), Watch())
        assert raised.value.exit_code == USAGE
    for form, schema in (("json", "{"), ("avro", '"thing"'), ("json", " " * (1 << 21))):
        decoding = Decoding(form=form, schema=schema, quarantine="bad")
        with pytest.raises(PipelineError, match=f"the {form} schema") as raised:
            archive(spark, settings_of(servers, queue, tmp_path, decoding=decoding), Watch())
        assert raised.value.exit_code == USAGE


def test_a_delta_table_has_each_message_once_and_refuses_a_second_writer(
    spark: SparkSession, client: Client, servers: str, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "table"
    settings = settings_of(servers, queue, table, form="delta")
    push(client, queue, numbered(100))
    archive(spark, settings, Watch())
    push(client, queue, numbered(20, "later"))
    archive(spark, settings, Watch())
    found = DeltaTable(str(table))
    values = [row["value"] for row in sorted(found.to_pyarrow_table().to_pylist(), key=lambda row: row["offset"])]
    assert values == [*numbered(100), *numbered(20, "later")]
    assert len(found.file_uris()) <= 2, "small files are merged, by hour"

    rows = spark.createDataFrame([("q", "h", 1)], "queue string, hour string, n int")
    path = f"file:{tmp_path}/other"
    append = partial(delta.append_once, rows, path, application="app", partition_by=["hour"])
    assert [append(version=number) for number in (0, 1, 1, 0, 2)] == [
        True, True, False, False, True,
    ]  # fmt: skip
    stale = DeltaTable(str(tmp_path / "other"))
    assert append(version=3)
    monkeypatch.setattr(delta, "_existing", lambda _uri: stale)
    with pytest.raises(CommitFailedError):
        append(version=3)
    assert DeltaTable(str(tmp_path / "other")).to_pyarrow_table().num_rows == 4
