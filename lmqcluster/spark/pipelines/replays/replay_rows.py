"""Reads rows of files as messages to push, with the problem of each row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the common alias
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from lmqcluster.wire.limits import MESSAGE_BYTES_MAX, NAME_BYTES_MAX

from ...base.texts import text_bytes
from ..archives.archive import PERIODS, SCHEMA, period_of
from ..base.failures import BAD_DATA, USAGE, PipelineError, condition, unreadable
from ..base.push_columns import PUSHED, push_columns
from ..base.storage import Storage
from .replay_settings import ReplaySettings

__all__ = ["BAD", "PLACE", "found_rows", "pushed_columns", "refusal"]

BAD: Final = "_problem"
"""The column with the reason why a row cannot become a message; null if it can."""
PLACE: Final = ("_file", "_block", "_number")
"""The columns with the location of a row."""
_UNREADABLE: Final = "_unreadable"
_LINE: Final = "line"
_JSON: Final = "json"
_OTHERS: Final = ("value", "queue")


def found_rows(spark: SparkSession, settings: ReplaySettings) -> DataFrame:
    """Return the rows that the settings select: the columns to push, `BAD`, ``_order`` and `PLACE`.

    Raises:
        PipelineError: an input cannot be read, a column does not exist, or the expression is invalid.
    """
    try:
        return _INPUTS[settings.form](spark, settings).withColumn(BAD, _problem())
    except AnalysisException as exc:
        raise unreadable(", ".join(settings.inputs), exc) from exc


def pushed_columns(settings: ReplaySettings) -> tuple[str, ...]:
    """Return the columns that a push sets."""
    return PUSHED if settings.form == "archive" else _OTHERS


def refusal() -> Column:
    """Return an expression that raises an error with the file and the problem of a bad row."""
    return F.raise_error(F.concat(F.lit("bad row: "), "_file", F.lit(" : "), BAD, F.lit(" :"))).cast("boolean")


def _problem() -> Column:
    queue, value = F.col("queue"), F.octet_length("value")
    return (
        F.when(
            F.col(_UNREADABLE).isNotNull(),
            F.concat(F.lit("a row that cannot be read: "), F.left(_UNREADABLE, F.lit(200))),
        )
        .when(queue.isNull() | (queue == ""), F.lit("a row without a value in the column that names the queue"))
        .when(text_bytes(queue) > NAME_BYTES_MAX, F.lit(f"a queue name of more than {NAME_BYTES_MAX} bytes"))
        .when(queue.rlike(r"[\x00-\x1f\x7f]"), F.lit("a queue name with control characters"))
        .when(value.isNull(), F.lit("a row without a value in the column of the message"))
        .when(value > MESSAGE_BYTES_MAX, F.lit(f"a message of more than {MESSAGE_BYTES_MAX} bytes"))
    )


# --- selecting rows -----------------------------------------------------------------------------------------------


def _select(rows: DataFrame, settings: ReplaySettings) -> DataFrame:
    """Return the rows for which ``--where`` is true, and those that cannot be read.

    Raises:
        PipelineError: the expression is malformed, has unknown columns or another type, or is not deterministic.
    """
    if settings.where is None:
        return rows
    try:
        wanted = F.expr(settings.where)
        chosen = rows.where(wanted)
        if _UNREADABLE in rows.columns:
            chosen = rows.where(F.when(F.col(_UNREADABLE).isNotNull(), F.lit(True)).otherwise(wanted))
    except (AnalysisException, ParseException) as exc:
        raise PipelineError(f"--where: {condition(exc)}; nothing was pushed", USAGE) from exc
    if not _is_deterministic(chosen):
        raise PipelineError(
            "--where: the expression selects other rows each time, so a repetition could not continue; nothing was pushed",
            USAGE,
        )
    return chosen


def _is_deterministic(chosen: DataFrame) -> bool:
    """Return whether the condition of a frame that was just filtered has one result for a row."""
    jvm_frame: Any = chosen._jdf
    plan = jvm_frame.queryExecution().analyzed()
    while plan.getClass().getSimpleName() == "Project":
        plan = plan.child()
    return bool(plan.condition().deterministic())


def _in_window(rows: DataFrame, settings: ReplaySettings) -> DataFrame:
    """Return the rows of the time window; files of other hours or days are not opened."""
    time = F.col("timestamp")
    if settings.since is not None:
        rows = rows.where(time >= F.lit(settings.since))
    if settings.until is not None:
        rows = rows.where(time < F.lit(settings.until))
    for period in PERIODS:
        if period not in rows.columns:
            continue
        if settings.since is not None:
            rows = rows.where(F.col(period) >= period_of(F.lit(settings.since), period))
        if settings.until is not None:
            last = settings.until - timedelta(microseconds=1)
            rows = rows.where(F.col(period) <= period_of(F.lit(last), period))
    return rows


# --- kinds of files -----------------------------------------------------------------------------------------------


def _archive(spark: SparkSession, settings: ReplaySettings) -> DataFrame:
    for path in settings.inputs:
        _check_archive(spark, path)
    # Spark must not infer a date from a day.
    spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    read = spark.read.schema(SCHEMA).parquet(*settings.inputs)
    rows = _select(_in_window(read, settings), settings)
    _check_columns(settings, rows.columns)
    queue = _queue(settings, lambda name: F.col(_quote(name)))
    order = F.struct("timestamp", "offset", "part") if settings.order_by is None else F.col(_quote(settings.order_by))
    place = (F.col("_metadata.file_path"), F.col("_metadata.file_block_start"), F.monotonically_increasing_id())
    return rows.select(
        *push_columns(queue),
        F.lit(None).cast("string").alias(_UNREADABLE),
        order.alias("_order"),
        F.xxhash64(F.struct("queue", "offset", "part")).alias("_identity"),
        *(column.alias(name) for column, name in zip(place, PLACE, strict=True)),
    )


def _check_archive(spark: SparkSession, path: str) -> None:
    """Refuse a directory with files that `archive` did not write."""
    if set("*?[{") & set(path):
        return
    storage = Storage(spark, path)
    tables = [period for period in PERIODS if storage.find(f"{period}=*/*.parquet")]
    if not tables:
        return
    if len(tables) > 1:
        raise PipelineError(
            f"{path} is partitioned both by hour and by day: name the directories; nothing was pushed", BAD_DATA
        )
    for file in (*storage.find("*"), *storage.find("*/*")):
        directory, _, name = file.path.removeprefix(f"{storage.root}/").rpartition("/")
        if directory.startswith(("_", ".")) or name.startswith(("_", ".")):
            continue
        if not (directory.partition("=")[0] in tables and name.endswith(".parquet")):
            raise PipelineError(
                f"{file.path} is not a file of the archive: move it away, or name the directories to replay; nothing was pushed",
                BAD_DATA,
            )


def _parquet(spark: SparkSession, settings: ReplaySettings) -> DataFrame:
    # Spark must not infer a number from the name of a queue such as 123.
    spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    rows = spark.read.parquet(*settings.inputs)
    _check_columns(settings, rows.columns)
    rows = _select(rows, settings)
    whole = F.to_json(F.struct("*"), {"ignoreNullFields": "false"})
    order = F.col(_quote(settings.order_by)) if settings.order_by is not None else F.lit(0)
    return _messages(rows, settings, lambda name: F.col(_quote(name)), whole, F.lit(None).cast("string"), order)


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
    texts = {name: F.coalesce(F.col(_quote(name)), F.lit("")).alias(name) for name in columns}
    whole = F.to_json(F.struct(*texts.values()))
    order = _text_order(settings, texts.__getitem__)
    return _messages(_select(rows, settings), settings, texts.__getitem__, whole, F.col(_UNREADABLE), order)


def _json(spark: SparkSession, settings: ReplaySettings) -> DataFrame:
    # Lines are pushed unchanged; only fields that name the queue, form the message or select it are extracted.
    lines = spark.read.text(list(settings.inputs)).withColumnRenamed("value", _LINE)
    lines = lines.select("*", "_metadata", F.monotonically_increasing_id().alias("_number"))
    parsed = F.try_parse_json(_LINE)
    is_object = F.coalesce(F.schema_of_variant(parsed).startswith("OBJECT"), F.lit(False))
    lines = lines.where(f"trim({_LINE}) <> ''").select(
        "*", parsed.alias(_JSON), F.when(~is_object, F.col(_LINE)).alias(_UNREADABLE)
    )

    def field(name: str) -> Column:
        return F.try_variant_get(F.col(_JSON), f"$['{name}']", "string")

    order = _text_order(settings, field)
    return _messages(_select(lines, settings), settings, field, F.trim(_LINE), F.col(_UNREADABLE), order)


_INPUTS: Final = {"archive": _archive, "parquet": _parquet, "csv": _csv, "tsv": _csv, "json": _json}


def _messages(
    rows: DataFrame,
    settings: ReplaySettings,
    column: Callable[[str], Column],
    whole: Column,
    unreadable_row: Column,
    order: Column,
) -> DataFrame:
    """Return queue, value and location of every row of any kind of input."""
    queue = _queue(settings, column)
    value = whole if settings.value is None else column(settings.value)
    number = F.col("_number") if "_number" in rows.columns else F.monotonically_increasing_id()
    place = (F.col("_metadata.file_path"), F.col("_metadata.file_block_start"), number)
    return rows.select(
        queue.alias("queue"),
        value.alias("value"),
        unreadable_row.alias(_UNREADABLE),
        order.alias("_order"),
        *(part.alias(name) for part, name in zip(place, PLACE, strict=True)),
    ).transform(_value_as_bytes)


def _queue(settings: ReplaySettings, column: Callable[[str], Column]) -> Column:
    if settings.queue is not None:
        return F.lit(settings.queue)
    named = column(settings.queue_by or "queue").cast("string")
    return F.when(named != "", F.concat(F.lit(settings.queue_prefix), named))


def _value_as_bytes(rows: DataFrame) -> DataFrame:
    kind = rows.schema["value"].dataType
    if isinstance(kind, BinaryType):
        return rows
    is_nested = kind.typeName() in ("struct", "array", "map", "variant")
    return rows.withColumn("value", (F.to_json("value") if is_nested else F.col("value").cast("string")).cast("binary"))


def _text_order(settings: ReplaySettings, column: Callable[[str], Column]) -> Column:
    """Order numbers numerically, before texts in the order of their characters."""
    if settings.order_by is None:
        return F.lit(0)
    text = column(settings.order_by)
    number = text.try_cast("double")
    return F.struct(number.isNull(), number, text)


def _check_columns(settings: ReplaySettings, columns: Sequence[str]) -> None:
    wanted = {"--queue-by": settings.queue_by, "--value": settings.value, "--order-by": settings.order_by}
    for option, name in wanted.items():
        if name is not None and name not in columns:
            raise PipelineError(f"{option}: unknown column {name!r}; the columns are {', '.join(columns)}", USAGE)


def _quote(name: str | None) -> str:
    return "`" + (name or "").replace("`", "``") + "`"
