"""Dead letters: what failed, why and how often, by queue and hour; and the return of messages, edited or unchanged.

Inspection removes nothing. A returned message is acknowledged and stored in the other queue atomically, see
`lmqcluster.spark.writing.moving`. Messages that are not selected return to their positions.

Conditions and expressions are Spark's SQL over these columns:

| column                                        | meaning                                                                      |
|-----------------------------------------------|------------------------------------------------------------------------------|
| queue, offset                                 | the queue that the message is in, and its number there                       |
| reason                                        | ``exhausted`` or ``expired``; null for a message that a client has pushed here |
| origin                                        | the queue that it comes from; null likewise                                  |
| failed_at                                     | when the cluster moved it                                                    |
| deliveries, pushed_at                         | how often it was delivered before, and when it was first pushed              |
| value, text                                   | the body; the same as text, null if it is not UTF-8                          |
| content_type, attributes, attribute_types,    | as for reads                                                                 |
| priority, group, label                        |                                                                              |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the common alias
from pyspark.sql.types import DataType, DecimalType, NullType

from lmqcluster.wire.limits import MESSAGE_BYTES_MAX, NAME_BYTES_MAX

from ..base.attributes import ATTRIBUTE_COLUMNS, attributes_problem
from ..base.errors import SchemaError
from ..base.options import StreamRead
from ..base.schema import check_write_schema
from ..base.texts import text_bytes
from ..data_source import register
from ..reading.leased_queue import LeasedQueue
from ..writing.moving import MOVED_SCHEMA, SOURCE_COLUMNS, mover
from .base.access import Access
from .base.failures import BAD_DATA, USAGE, PipelineError, condition

__all__ = ["DeadLetters", "Edits", "Redriven", "Sample", "letters", "preview", "redrive", "store", "summary"]

_KEPT: Final = ("value", "content_type", *ATTRIBUTE_COLUMNS, "priority", "group", "label")
_NULLS: Final = {
    **dict.fromkeys(ATTRIBUTE_COLUMNS, "map<string,string>"),
    "priority": "int",
    "delay": "double",
    "ttl": "double",
}
"""The types of columns that are not strings."""
_SECONDS_MAX: Final = 1_000_000_000
_TASKS: Final = 8
_SAMPLES: Final = 10
_SAMPLE_CHARACTERS: Final = 200


@dataclass(frozen=True, kw_only=True)
class DeadLetters:
    """The selected dead letters.

    Attributes:
        access: the cluster.
        queues: names of the dead-letter queues.
        where: a condition; None for all.
    """

    access: Access
    queues: Sequence[str]
    where: str | None = None


@dataclass(frozen=True, kw_only=True)
class Edits:
    """Changes to the messages that are returned.

    Attributes:
        to: the queue that all go to; None for the one that each came from.
        values: an expression for each changed column: one that `letters` keeps, ``delay`` or ``ttl``.
        lease_s: seconds for which the messages stay reserved if this process is killed.
    """

    to: str | None = None
    values: Mapping[str, str]
    lease_s: float = 600.0


@dataclass(frozen=True)
class Redriven:
    """The result for the messages of a queue.

    Attributes:
        queue: its name.
        selected: number of messages that the condition selects.
        moved: number of messages that were sent, or would be.
        unplaced: number of messages without an origin, which are kept unless `Edits.to` names a queue.
        gone: number of messages no longer reserved when they were to be sent: an earlier attempt of the task has sent
            them, or their leases had expired.
        kept: number of messages left.
    """

    queue: str
    selected: int
    moved: int
    unplaced: int
    gone: int
    kept: int


@dataclass(frozen=True)
class Sample:
    """A message before and after the edit, with truncated bodies."""

    queue: str
    offset: int
    to: str
    before: str
    after: str


def letters(spark: SparkSession, settings: DeadLetters) -> DataFrame:
    """Return the selected messages that are not leased, unordered, with the columns above.

    Raises:
        PipelineError: the condition is invalid.
    """
    register(spark)
    _check_names(settings.queues)
    options = settings.access.options() | {"subscribe": ",".join(settings.queues)}
    read = spark.read.format("lmq").options(**options, includeAttributes="true", includeDelivery="true").load()
    return _select(_describe(read), settings.where)


def summary(found: DataFrame, rows_max: int) -> list[dict[str, Any]]:
    """Count messages by queue, origin, reason and hour; the latest hours first, at most `rows_max` rows."""
    hour = F.date_trunc("hour", F.coalesce("failed_at", "pushed_at"))
    rows = (
        found.groupBy("queue", "origin", "reason", hour.alias("hour"))
        .agg(
            F.count("*").alias("messages"),
            F.max("deliveries").alias("deliveries_max"),
            F.sum(F.octet_length("value")).alias("bytes"),
            F.min("offset").alias("first_offset"),
        )
        .orderBy(F.desc("hour"), "queue", "origin", "reason")
        .limit(rows_max)
        .withColumn("hour", F.date_format("hour", "yyyy-MM-dd'T'HH:00'Z'"))
    )
    with _sql_errors("--where"):
        return [row.asDict() for row in rows.collect()]


def store(found: DataFrame, output: str, form: str) -> None:
    """Write messages as a table, ``parquet`` or ``json``, one directory for each hour; `output` must be new.

    Raises:
        PipelineError: the directory already exists.
    """
    hour = F.date_format(F.coalesce("failed_at", "pushed_at"), "yyyy-MM-dd-HH")
    rows = found.withColumn("hour", hour).repartition("hour").sortWithinPartitions("hour", "queue", "offset")
    if form == "json":
        rows = rows.withColumn("value", F.base64("value"))
    try:
        rows.write.partitionBy("hour").format(form).save(output)
    except AnalysisException as exc:
        if exc.getCondition() != "PATH_ALREADY_EXISTS":
            raise
        raise PipelineError(f"{output} already exists: choose a new directory", USAGE) from exc


def preview(spark: SparkSession, settings: DeadLetters, edits: Edits) -> tuple[list[Redriven], list[Sample]]:
    """Return what `redrive` would do, and some sample messages; removes nothing.

    Raises:
        PipelineError: see `redrive`.
    """
    rows = letters(spark, DeadLetters(access=settings.access, queues=settings.queues))
    chosen = _select(rows, settings.where)
    edited = _edit(chosen, edits).persist(StorageLevel.DISK_ONLY)
    try:
        totals = {row["queue"]: row["count"] for row in rows.groupBy("queue").count().collect()}
        found = []
        for queue in settings.queues:
            selected, unplaced = _check(edited.where(F.col("from_queue") == queue), queue)
            moved, total = selected - unplaced, totals.get(queue, 0)
            found.append(Redriven(queue, selected, moved, unplaced, 0, total - moved))
        return found, _samples(chosen, edited)
    finally:
        edited.unpersist()


def redrive(spark: SparkSession, settings: DeadLetters, edits: Edits, queue: str) -> Redriven:
    """Return the selected messages of one queue, edited; in order as far as they go to the same queue.

    All messages of the queue are reserved during the redrive. None is sent before all selected ones have been edited
    and checked.

    Raises:
        PipelineError: the condition or an expression is invalid or fails, or an edited message cannot be sent. Nothing
            was sent.
        PySparkException: the cluster refused a message or did not answer. Messages sent so far have left the queue; all
            others are in their positions. The same command continues.
    """
    if edits.to == queue:
        raise PipelineError(f"messages cannot be returned to the queue that they are in, {queue!r}", USAGE)
    register(spark)
    _check_names([queue])
    options = settings.access.options() | {"subscribe": queue, "lmq.lease": str(edits.lease_s)}
    options |= {"includeAttributes": "true", "includeDelivery": "true"}
    connection = StreamRead.parse(options).connection
    with LeasedQueue(options, _subscription(queue)) as leased:
        if not leased.count:
            return Redriven(queue, 0, 0, 0, 0, 0)
        # Cached, so that what was checked is what is sent, even if an expression is not deterministic.
        edited = _edit(_select(_describe(leased.rows(spark)), settings.where), edits)
        edited = edited.persist(StorageLevel.DISK_ONLY)
        try:
            selected, unplaced = _check(edited, queue)
            rows = (
                edited.where("queue is not null").repartition(_TASKS, "queue").sortWithinPartitions("queue", "offset")
            )
            rows = rows.drop("offset", "problem")
            counts = rows.mapInArrow(mover(connection), MOVED_SCHEMA).groupBy().sum().head()
        finally:
            edited.unpersist()
        moved, gone = (0, 0) if counts is None else (counts[0] or 0, counts[1] or 0)
        return Redriven(queue, selected, moved, unplaced, gone, leased.count - moved)


def _subscription(queue: str) -> str:
    """Return the subscription with which all jobs reserve the messages of a queue."""
    name = f"dead-letters/{queue}"
    return name if len(name.encode()) <= NAME_BYTES_MAX else f"dead-letters/{sha256(queue.encode()).hexdigest()}"


def _check_names(queues: Sequence[str]) -> None:
    for queue in queues:
        if "," in queue or queue != queue.strip() or not queue:
            raise PipelineError(
                f"a queue with the name {queue!r} cannot be read: the name is empty, or contains commas or blanks",
                USAGE,
            )


def _describe(read: DataFrame) -> DataFrame:
    """Return the columns that conditions and expressions can use."""
    text = F.try_validate_utf8(F.col("value").cast("string"))
    return read.select(
        "queue",
        "offset",
        F.col("origin.reason").alias("reason"),
        F.col("origin.queue").alias("origin"),
        F.col("origin.at").alias("failed_at"),
        F.coalesce("origin.deliveries", "delivery").alias("deliveries"),
        F.coalesce("origin.pushed_at", "pushed_at").alias("pushed_at"),
        *_KEPT,
        text.alias("text"),
        "message_id",
    )


def _select(rows: DataFrame, where: str | None) -> DataFrame:
    if where is None:
        return rows
    try:
        return rows.where(F.expr(where))
    except AnalysisException as exc:
        raise PipelineError(f"--where {where!r}: {condition(exc)}", USAGE) from exc


def _edit(rows: DataFrame, edits: Edits) -> DataFrame:
    """Return the messages to send, with the problem of each, if any."""
    to = F.col("origin") if edits.to is None else F.lit(edits.to)
    columns = {name: F.col(f"`{name}`") for name in _KEPT}
    for name, expression in edits.values.items():
        try:
            # Nested in another function, so that one expression cannot make several rows of a message.
            edited = F.coalesce(F.expr(expression))
            kind = rows.select(edited.alias(name), "offset").schema[name].dataType
        except AnalysisException as exc:
            raise PipelineError(f"--set {name}={expression}: {condition(exc)}", USAGE) from exc
        columns[name] = _cast(edited, kind, name)
    sent = [to.alias("queue"), *(column.alias(name) for name, column in columns.items())]
    sources = [F.col(name).alias(alias) for name, alias in zip(("queue", "message_id"), SOURCE_COLUMNS, strict=True)]
    edited_rows = rows.select(*sources, "offset", *sent)
    try:
        check_write_schema(edited_rows.drop(*SOURCE_COLUMNS).schema, queue_option=False)
    except SchemaError as exc:
        raise PipelineError(f"--set: {exc}", USAGE) from exc
    problem = _problem(edited_rows)
    if not edits.values.keys().isdisjoint(ATTRIBUTE_COLUMNS):
        problem = F.coalesce(problem, F.udf(attributes_problem, "string", useArrow=False)(*ATTRIBUTE_COLUMNS))
    return edited_rows.withColumn("problem", problem)


def _cast(edited: Column, kind: DataType, name: str) -> Column:
    """Return the expression, cast if its type is SQL's null or decimal: no column has these."""
    if isinstance(kind, NullType):
        return edited.cast(_NULLS.get(name, "string"))
    return edited.cast("double") if isinstance(kind, DecimalType) else edited


def _problem(rows: DataFrame) -> Column:
    """Return the reason why a message cannot be sent; null if it can."""
    size = F.octet_length("value")
    problem = F.when(F.col("value").isNull(), F.lit("its value is null"))
    problem = problem.when(size > MESSAGE_BYTES_MAX, F.lit(f"its value has more than {MESSAGE_BYTES_MAX} bytes"))
    kind = text_bytes(F.col("content_type"))
    problem = problem.when(kind > 4096, F.lit("its content type has more than 4096 bytes"))
    problem = problem.when(~F.col("priority").between(-(1 << 31), (1 << 31) - 1), F.lit("its priority exceeds 32 bits"))
    for name in ("group", "label"):
        length = text_bytes(F.col(f"`{name}`"))
        problem = problem.when(
            ~length.between(1, NAME_BYTES_MAX), F.lit(f"its {name} must have 1 to {NAME_BYTES_MAX} bytes")
        )
    for name in {"delay", "ttl"}.intersection(rows.columns):
        # In Spark's order, NaN is greater than all numbers.
        fits = (F.col(name) > 0) & (F.col(name) <= _SECONDS_MAX)
        problem = problem.when(~fits, F.lit(f"its {name} must be above 0 and at most {_SECONDS_MAX} seconds"))
    return problem


def _check(edited: DataFrame, queue: str) -> tuple[int, int]:
    """Count the messages, and those without a destination.

    Raises:
        PipelineError: a message cannot be sent, or an expression fails.
    """
    bad = F.when(F.col("problem").isNotNull() & F.col("queue").isNotNull(), F.struct("offset", "problem"))
    with _sql_errors("--where or --set"):
        row = edited.agg(F.count("*"), F.count_if(F.col("queue").isNull()), F.min(bad)).head()
    if row is None:
        return 0, 0
    if row[2] is not None:
        offset, problem = row[2]
        raise PipelineError(f"message {offset} of {queue!r} cannot be sent: {problem}; nothing was sent", BAD_DATA)
    return row[0], row[1]


@contextmanager
def _sql_errors(option: str) -> Iterator[None]:
    """Name the option in errors that expressions cause in the block, which only reads."""
    try:
        yield
    except PySparkException as exc:
        if (reason := condition(exc)) is None:
            raise
        raise PipelineError(f"{option} fails: {reason}; nothing was sent", BAD_DATA) from exc


def _samples(before: DataFrame, edited: DataFrame) -> list[Sample]:
    rows = edited.where("queue is not null").orderBy("from_queue", "offset").limit(_SAMPLES)
    old = before.select("offset", F.col("value").alias("old"))
    found = rows.select("from_queue", "offset", "queue", "value").join(old, "offset").orderBy("offset").collect()
    return [
        Sample(row["from_queue"], row["offset"], row["queue"], _shorten(row["old"]), _shorten(row["value"]))
        for row in found
    ]


def _shorten(value: bytes | str) -> str:
    text = (
        value if isinstance(value, str) else bytes(value[: 4 * _SAMPLE_CHARACTERS]).decode("utf-8", "backslashreplace")
    )
    return text[:_SAMPLE_CHARACTERS]
