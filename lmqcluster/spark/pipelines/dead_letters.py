"""Dead letters: what failed, why and how often, by queue and hour; and sending it back, edited or as it is.

To look takes nothing. What is sent back is acknowledged in the same step of the cluster that stores it in the other queue, see
`lmqcluster.spark.moving`. Messages that are not selected go back to their places.

Conditions and expressions are Spark's SQL over these columns:

| column                                        | meaning                                                                      |
|-----------------------------------------------|------------------------------------------------------------------------------|
| queue, offset                                 | the queue that the message is in, and its number there                       |
| reason                                        | ``exhausted`` or ``expired``; null for a message that a client has pushed here |
| origin                                        | the queue that it comes from; null likewise                                  |
| failed_at                                     | when the cluster moved it                                                    |
| deliveries, pushed_at                         | how often it was delivered before, and when it was first pushed              |
| value, text                                   | the body; the same as text, null if it is not UTF-8                          |
| content_type, headers, priority, group, label | as for reads                                                                 |
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
from pyspark.sql import functions as F  # noqa: N812  what everybody calls it
from pyspark.sql.types import DataType, DecimalType, NullType

from lmqcluster.wire.limits import MESSAGE_BYTES_MAX, NAME_BYTES_MAX

from ..data_source import register
from ..errors import SchemaError
from ..leased_queue import LeasedQueue
from ..moving import MOVED_SCHEMA, SOURCE_COLUMNS, mover
from ..options import StreamRead
from ..schema import check_write_schema
from ..texts import text_bytes
from .access import Access
from .failures import BAD_DATA, USAGE, PipelineError, condition

__all__ = ["DeadLetters", "Edits", "Redriven", "Sample", "letters", "preview", "redrive", "store", "summary"]

_KEPT: Final = ("value", "content_type", "headers", "priority", "group", "label")
_NULLS: Final = {"headers": "map<string,string>", "priority": "int", "delay": "double", "ttl": "double"}
"""The types of columns that are not strings."""
_SECONDS_MAX: Final = 1_000_000_000
_TASKS: Final = 8
_SAMPLES: Final = 10
_SAMPLE_CHARACTERS: Final = 200


@dataclass(frozen=True, kw_only=True)
class DeadLetters:
    """The messages in question.

    Attributes:
        access: the cluster.
        queues: the names of the queues that hold them.
        where: a condition; None for all.
    """

    access: Access
    queues: Sequence[str]
    where: str | None = None


@dataclass(frozen=True, kw_only=True)
class Edits:
    """How messages change on their way.

    Attributes:
        to: the queue to which all go; None for the one that each comes from.
        values: an expression for each column that changes: one that `letters` keeps, ``delay`` or ``ttl``.
        lease_s: seconds for which the messages stay reserved if this process is killed.
    """

    to: str | None = None
    values: Mapping[str, str]
    lease_s: float = 600.0


@dataclass(frozen=True)
class Redriven:
    """The outcome for the messages of a queue.

    Attributes:
        queue: its name.
        selected: how many the condition selects.
        moved: how many of them were sent, or would be.
        unplaced: how many come from no queue, so that they stay unless `Edits.to` names one.
        gone: how many were no longer reserved when their turn came: an earlier attempt of the same task has sent them, or their
            lease had ended.
        kept: how many messages are left.
    """

    queue: str
    selected: int
    moved: int
    unplaced: int
    gone: int
    kept: int


@dataclass(frozen=True)
class Sample:
    """A message as it is and as it would be sent, bodies cut after some characters."""

    queue: str
    offset: int
    to: str
    before: str
    after: str


def letters(spark: SparkSession, settings: DeadLetters) -> DataFrame:
    """Return the selected messages that nobody has under lease, in no particular order, with the columns above.

    Raises:
        PipelineError: the condition is none.
    """
    register(spark)
    _check_names(settings.queues)
    options = settings.access.options() | {"subscribe": ",".join(settings.queues)}
    read = spark.read.format("lmq").options(**options, includeHeaders="true", includeDelivery="true").load()
    return _selected(_described(read), settings.where)


def summary(found: DataFrame, rows_max: int) -> list[dict[str, Any]]:
    """Count messages by queue, origin, reason and hour; the latest hours first, `rows_max` rows at most."""
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
        PipelineError: there is such a directory already.
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
        raise PipelineError(f"{output} exists already: name a directory that does not", USAGE) from exc


def preview(spark: SparkSession, settings: DeadLetters, edits: Edits) -> tuple[list[Redriven], list[Sample]]:
    """Say what `redrive` would do, and show some of the messages; takes nothing.

    Raises:
        PipelineError: as `redrive`.
    """
    rows = letters(spark, DeadLetters(access=settings.access, queues=settings.queues))
    chosen = _selected(rows, settings.where)
    edited = _edited(chosen, edits).persist(StorageLevel.DISK_ONLY)
    try:
        totals = {row["queue"]: row["count"] for row in rows.groupBy("queue").count().collect()}
        found = []
        for queue in settings.queues:
            selected, unplaced = _checked(edited.where(F.col("from_queue") == queue), queue)
            moved, total = selected - unplaced, totals.get(queue, 0)
            found.append(Redriven(queue, selected, moved, unplaced, 0, total - moved))
        return found, _samples(chosen, edited)
    finally:
        edited.unpersist()


def redrive(spark: SparkSession, settings: DeadLetters, edits: Edits, queue: str) -> Redriven:
    """Send the selected messages of one queue back, edited; in their order, as far as they go to one queue.

    All messages of the queue are reserved meanwhile. None is sent before all that are selected have been edited and checked.

    Raises:
        PipelineError: the condition or an expression is none, or fails; or a message cannot be sent as it is edited. Nothing was
            sent.
        PySparkException: the cluster refused a message or gave no answer. What was sent by then has left the queue; everything
            else is in its place. The same command goes on.
    """
    if edits.to == queue:
        raise PipelineError(f"messages cannot be sent back to the queue in which they are, {queue!r}", USAGE)
    register(spark)
    _check_names([queue])
    options = settings.access.options() | {"subscribe": queue, "lmq.lease": str(edits.lease_s)}
    options |= {"includeHeaders": "true", "includeDelivery": "true"}
    connection = StreamRead.parse(options).connection
    with LeasedQueue(options, _subscription(queue)) as leased:
        if not leased.count:
            return Redriven(queue, 0, 0, 0, 0, 0)
        # Kept, so that what was checked is what is sent, also where an expression differs each time.
        edited = _edited(_selected(_described(leased.rows(spark)), settings.where), edits)
        edited = edited.persist(StorageLevel.DISK_ONLY)
        try:
            selected, unplaced = _checked(edited, queue)
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
    """Return the name under which all jobs reserve the messages of a queue."""
    name = f"dead-letters/{queue}"
    return name if len(name.encode()) <= NAME_BYTES_MAX else f"dead-letters/{sha256(queue.encode()).hexdigest()}"


def _check_names(queues: Sequence[str]) -> None:
    for queue in queues:
        if "," in queue or queue != queue.strip() or not queue:
            raise PipelineError(
                f"a queue with the name {queue!r} cannot be read: it is empty, or has commas or blanks", USAGE
            )


def _described(read: DataFrame) -> DataFrame:
    """The columns that conditions and expressions know."""
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


def _selected(rows: DataFrame, where: str | None) -> DataFrame:
    if where is None:
        return rows
    try:
        return rows.where(F.expr(where))
    except AnalysisException as exc:
        raise PipelineError(f"--where {where!r}: {condition(exc)}", USAGE) from exc


def _edited(rows: DataFrame, edits: Edits) -> DataFrame:
    """The messages to be sent, with what is wrong with them, if anything."""
    to = F.col("origin") if edits.to is None else F.lit(edits.to)
    columns = {name: F.col(f"`{name}`") for name in _KEPT}
    for name, expression in edits.values.items():
        try:
            # Within another function, so that one expression cannot make several rows of a message.
            edited = F.coalesce(F.expr(expression))
            kind = rows.select(edited.alias(name), "offset").schema[name].dataType
        except AnalysisException as exc:
            raise PipelineError(f"--set {name}={expression}: {condition(exc)}", USAGE) from exc
        columns[name] = _typed(edited, kind, name)
    sent = [to.alias("queue"), *(column.alias(name) for name, column in columns.items())]
    sources = [F.col(name).alias(alias) for name, alias in zip(("queue", "message_id"), SOURCE_COLUMNS, strict=True)]
    edited_rows = rows.select(*sources, "offset", *sent)
    try:
        check_write_schema(edited_rows.drop(*SOURCE_COLUMNS).schema, queue_option=False)
    except SchemaError as exc:
        raise PipelineError(f"--set: {exc}", USAGE) from exc
    return edited_rows.withColumn("problem", _problem(edited_rows))


def _typed(edited: Column, kind: DataType, name: str) -> Column:
    """The expression, cast where its type is that of SQL's null or of its numbers with a point: no column is written as such."""
    if isinstance(kind, NullType):
        return edited.cast(_NULLS.get(name, "string"))
    return edited.cast("double") if isinstance(kind, DecimalType) else edited


def _problem(rows: DataFrame) -> Column:
    """Why a message cannot be sent; null if it can."""
    size = F.octet_length("value")
    problem = F.when(F.col("value").isNull(), F.lit("its value is null"))
    problem = problem.when(size > MESSAGE_BYTES_MAX, F.lit(f"its value has more than {MESSAGE_BYTES_MAX} bytes"))
    kind = text_bytes(F.col("content_type"))
    problem = problem.when(kind > 4096, F.lit("its content type has more than 4096 bytes"))
    problem = problem.when(~F.col("priority").between(-(1 << 31), (1 << 31) - 1), F.lit("its priority has not 32 bits"))
    for name in ("group", "label"):
        length = text_bytes(F.col(f"`{name}`"))
        problem = problem.when(
            ~length.between(1, NAME_BYTES_MAX), F.lit(f"its {name} has not 1 to {NAME_BYTES_MAX} bytes")
        )
    for name in {"delay", "ttl"}.intersection(rows.columns):
        # In Spark's order NaN is above all numbers.
        fits = (F.col(name) > 0) & (F.col(name) <= _SECONDS_MAX)
        problem = problem.when(~fits, F.lit(f"its {name} is not above 0 and at most {_SECONDS_MAX} seconds"))
    return problem


def _checked(edited: DataFrame, queue: str) -> tuple[int, int]:
    """Count the messages, and those without a queue to go to.

    Raises:
        PipelineError: one cannot be sent, or an expression fails.
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
    """Errors that expressions cause in the block, which only reads, name the option."""
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
        Sample(row["from_queue"], row["offset"], row["queue"], _shown(row["old"]), _shown(row["value"]))
        for row in found
    ]


def _shown(value: bytes | str) -> str:
    text = (
        value if isinstance(value, str) else bytes(value[: 4 * _SAMPLE_CHARACTERS]).decode("utf-8", "backslashreplace")
    )
    return text[:_SAMPLE_CHARACTERS]
