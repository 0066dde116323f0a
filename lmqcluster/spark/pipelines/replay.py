"""Files into queues: each row of Parquet, CSV, TSV or JSON lines becomes one message.

A repetition under the same name stores only what is missing, for as long as the cluster remembers the job (30 days). Neither the
names of the files nor how Spark divides them matters. Without a name of its own a replay is called after its settings, its
files, their sizes and when they were last written. Ordered, the rows of a queue are pushed in the order of their files' names and
of the rows in them, or in that of a column.

All rows are read and checked before the first is pushed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import unquote

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812  what everybody calls it
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from lmqcluster.wire.limits import MESSAGE_BYTES_MAX, NAME_BYTES_MAX

from ..data_source import register
from ..jobs import stored_rows
from .access import Access
from .failures import BAD_DATA, USAGE, PipelineError, unreadable
from .storage import Storage, StoredFile

__all__ = ["ReplaySettings", "Replayed", "replay"]

_TASKS: Final = 32
_UNREADABLE: Final = "_unreadable"
_LINE: Final = "_line"
_PLACE: Final = ("_file", "_block", "_number")
_BAD_ROW: Final = re.compile(r"bad row: (\S+) : (.*?) :", re.DOTALL)
"""What `_refusal` makes tasks say: the file, as a URI, and the problem."""


@dataclass(frozen=True)
class Replayed:
    """What became of the rows.

    Attributes:
        rows: how many could become messages.
        stored: how many of them were stored now; an earlier replay of the same name has stored the others.
        bad: how many could not become messages.
    """

    rows: int
    stored: int
    bad: int


@dataclass(frozen=True, kw_only=True)
class ReplaySettings:
    """What to push where.

    Attributes:
        inputs: files, directories or globs.
        form: one of ``parquet``, ``csv``, ``tsv`` and ``json`` (lines).
        access: the cluster.
        queue: the queue for all rows.
        queue_by: or the column whose value names the queue of a row.
        queue_prefix: what stands before that value.
        value: the column whose value is the message; ``None`` for the whole row as a JSON object.
        content_type: the column that holds the content types of the messages; ``None`` for none.
        order_by: the column to push in the order of, within each queue; ``None`` for the order of the files.
        ordered: whether the rows of a queue keep an order at all; without, many tasks push to one queue.
        skip_bad: whether rows that cannot become messages are left out instead of ending the replay.
        name: names the replay; ``None`` for a name made of the other settings and the files.
    """

    inputs: Sequence[str]
    form: str
    access: Access
    queue: str | None = None
    queue_by: str | None = None
    queue_prefix: str = ""
    value: str | None = None
    content_type: str | None = None
    order_by: str | None = None
    ordered: bool = True
    skip_bad: bool = False
    name: str | None = None

    def application(self, files: Sequence[StoredFile]) -> str:
        """The name under which the rows are written."""
        what: list[object] = [self.name]
        if self.name is None:
            what = [list(self.inputs), self.form, self.queue, self.queue_by, self.queue_prefix, self.value]
            what += [list(file) for file in files]
        return f"replay:{hashlib.sha256(json.dumps(what).encode()).hexdigest()}"


def replay(spark: SparkSession, settings: ReplaySettings) -> Replayed:
    """Push all rows.

    Raises:
        PipelineError: an input cannot be read, a column does not exist, or a row cannot become a message and nothing was pushed.
        PySparkException: the cluster did not take a row, and what was pushed stays: a repetition goes on from there.
    """
    register(spark)
    found = _rows(spark, settings)
    application = settings.application(_files(spark, found))
    counted = Observation("replay")
    is_bad = F.col("problem").isNotNull()
    rows = found.observe(counted, F.count(F.lit(1)).alias("rows"), F.count_if(is_bad).alias("bad"))
    # The rows are spread over tasks before any is pushed, so that a bad one ends the replay in time.
    rows = rows.where(~is_bad) if settings.skip_bad else rows.where(F.when(is_bad, _refusal()).otherwise(F.lit(True)))
    if settings.ordered:
        rows = rows.repartition(_TASKS, "queue").sortWithinPartitions("queue", "_order", *_PLACE)
    else:
        rows = rows.repartition(_TASKS, "queue", "value", "content_type")
    access = settings.access.options()
    before = stored_rows(access, application)
    writer = rows.select("queue", "value", "content_type").write.format("lmq").mode("append").options(**access)
    try:
        writer.option("lmq.application", application).option("lmq.epoch", 0).save()
    except PySparkException as exc:
        bad_row = _bad_row(spark, settings, str(exc))
        if bad_row is None:
            raise
        raise bad_row from exc
    bad = int(counted.get["bad"])
    return Replayed(int(counted.get["rows"]) - bad, stored_rows(access, application) - before, bad)


def _rows(spark: SparkSession, settings: ReplaySettings) -> DataFrame:
    """All rows with what is wrong with them, if anything."""
    try:
        return _INPUTS[settings.form](spark, settings).withColumn("problem", _problem())
    except AnalysisException as exc:
        raise unreadable(", ".join(settings.inputs), exc) from exc


def _files(spark: SparkSession, rows: DataFrame) -> list[StoredFile]:
    paths = rows.inputFiles()
    return Storage(spark, paths[0]).status(sorted(paths)) if paths else []


def _bad_row(spark: SparkSession, settings: ReplaySettings, error: str) -> PipelineError | None:
    """The first bad row of the file that an error names, with its number; None if the error is about something else."""
    told = _BAD_ROW.search(error)
    if told is None:
        return None
    file, problem = told[1], told[2]
    # One task for the whole file, so that rows can be counted.
    counting = {"spark.sql.files.maxPartitionBytes": str(1 << 50), "spark.sql.files.openCostInBytes": str(1 << 49)}
    before = {name: str(spark.conf.get(name)) for name in counting}
    try:
        for name, value in counting.items():
            spark.conf.set(name, value)
        rows = _rows(spark, replace(settings, inputs=[unquote(file)]))
        first = rows.where("problem IS NOT NULL").select(F.min("_number").alias("number")).head()
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    where = file
    if first is not None and first["number"] is not None:
        kind = "line" if settings.form == "json" else "row"
        where = f"{file}, {kind} {first['number'] + 1}"
    return PipelineError(f"bad row: {where}: {problem}; nothing was pushed (--skip-bad leaves such rows out)", BAD_DATA)


def _problem() -> Column:
    """Why a row cannot become a message; null if it can."""
    queue, value = F.col("queue"), F.octet_length("value")
    return (
        F.when(
            F.col(_UNREADABLE).isNotNull(),
            F.concat(F.lit("a row that cannot be read: "), F.left(_UNREADABLE, F.lit(200))),
        )
        .when(queue.isNull() | (queue == ""), F.lit("a row without a value in the column that names the queue"))
        .when(F.octet_length(queue) > NAME_BYTES_MAX, F.lit(f"a queue name of more than {NAME_BYTES_MAX} bytes"))
        .when(queue.rlike(r"[\x00-\x1f\x7f]"), F.lit("a queue name with control characters"))
        .when(value.isNull(), F.lit("a row without a value in the column that is to be the message"))
        .when(value > MESSAGE_BYTES_MAX, F.lit(f"a message of more than {MESSAGE_BYTES_MAX} bytes"))
    )


def _refusal() -> Column:
    return F.raise_error(F.concat(F.lit("bad row: "), "_file", F.lit(" : "), "problem", F.lit(" :"))).cast("boolean")


def _parquet(spark: SparkSession, settings: ReplaySettings) -> DataFrame:
    # Names of directories are texts: a queue called 123 must not become a number.
    spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    rows = spark.read.parquet(*settings.inputs)
    _check_columns(settings, rows.columns)
    whole = F.to_json(F.struct("*"), {"ignoreNullFields": "false"})
    order = F.col(_quoted(settings.order_by)) if settings.order_by is not None else F.lit(0)
    return _messages(rows, settings, lambda name: F.col(_quoted(name)), whole, F.lit(None).cast("string"), order)


def _csv(spark: SparkSession, settings: ReplaySettings) -> DataFrame:
    # A quote within quotes is doubled, as everywhere but in Spark.
    reader = (
        spark.read.option("header", "true").option("escape", '"').option("sep", "\t" if settings.form == "tsv" else ",")
    )
    columns = reader.csv(list(settings.inputs)).columns
    _check_columns(settings, columns)
    schema = StructType([StructField(name, StringType()) for name in (*columns, _UNREADABLE)])
    rows = (
        reader.schema(schema)
        .option("mode", "PERMISSIVE")
        .option("columnNameOfCorruptRecord", _UNREADABLE)
        .option("enforceSchema", "false")
        .csv(list(settings.inputs))
    )
    texts = {name: F.coalesce(F.col(_quoted(name)), F.lit("")).alias(name) for name in columns}
    whole = F.to_json(F.struct(*texts.values()))
    order = _text_order(settings, texts.__getitem__)
    return _messages(rows, settings, texts.__getitem__, whole, F.col(_UNREADABLE), order)


def _json(spark: SparkSession, settings: ReplaySettings) -> DataFrame:
    # Lines stay as they are; only what names the queue or makes the message is looked up in them.
    lines = spark.read.text(list(settings.inputs)).withColumnRenamed("value", _LINE)
    lines = lines.select("*", "_metadata", F.monotonically_increasing_id().alias("_number")).where("trim(_line) <> ''")
    parsed = F.try_parse_json(_LINE)
    is_object = F.coalesce(F.schema_of_variant(parsed).startswith("OBJECT"), F.lit(False))

    def field(name: str) -> Column:
        return F.try_variant_get(parsed, f"$['{name}']", "string")

    unreadable = F.when(~is_object, F.col(_LINE))
    return _messages(lines, settings, field, F.trim(_LINE), unreadable, _text_order(settings, field))


_INPUTS: Final = {"parquet": _parquet, "csv": _csv, "tsv": _csv, "json": _json}


def _messages(
    rows: DataFrame,
    settings: ReplaySettings,
    column: Callable[[str], Column],
    whole: Column,
    unreadable: Column,
    order: Column,
) -> DataFrame:
    """Queue, value and place of every row of any kind of input."""
    if settings.queue is not None:
        queue = F.lit(settings.queue)
    else:
        named = column(settings.queue_by or "").cast("string")
        queue = F.when(named != "", F.concat(F.lit(settings.queue_prefix), named))
    value = whole if settings.value is None else column(settings.value)
    kind = F.lit(None).cast("string") if settings.content_type is None else column(settings.content_type)
    number = F.col("_number") if "_number" in rows.columns else F.monotonically_increasing_id()
    place = (F.col("_metadata.file_path"), F.col("_metadata.file_block_start"), number)
    return rows.select(
        queue.alias("queue"),
        value.alias("value"),
        kind.alias("content_type"),
        unreadable.alias(_UNREADABLE),
        order.alias("_order"),
        *(part.alias(name) for part, name in zip(place, _PLACE, strict=True)),
    ).transform(_value_as_bytes)


def _value_as_bytes(rows: DataFrame) -> DataFrame:
    kind = rows.schema["value"].dataType
    if isinstance(kind, BinaryType):
        return rows
    is_nested = kind.typeName() in ("struct", "array", "map", "variant")
    return rows.withColumn("value", (F.to_json("value") if is_nested else F.col("value").cast("string")).cast("binary"))


def _text_order(settings: ReplaySettings, column: Callable[[str], Column]) -> Column:
    """Numbers in the order of numbers, before texts in that of their characters."""
    if settings.order_by is None:
        return F.lit(0)
    text = column(settings.order_by)
    number = text.try_cast("double")
    return F.struct(number.isNull(), number, text)


def _check_columns(settings: ReplaySettings, columns: Sequence[str]) -> None:
    wanted = {"--queue-by": settings.queue_by, "--value": settings.value, "--order-by": settings.order_by}
    for option, name in wanted.items():
        if name is not None and name not in columns:
            raise PipelineError(f"{option}: there is no column {name!r}; there are {', '.join(columns)}", USAGE)


def _quoted(name: str | None) -> str:
    return "`" + (name or "").replace("`", "``") + "`"
