"""Pushes files into queues: each row of an archive, of Parquet, CSV, TSV or JSON lines becomes one message.

A replay of an archive restores everything that a push can set: queue, body, content type, attributes, priority, group,
label and time to live, which starts again; delays have expired.

A repetition under the same name stores only what is missing, while the cluster remembers the job (30 days). The names
of the files and their division by Spark do not matter. One name can only replay the same rows: the selection is part of
the job's name, and a job of the same replay with another selection is an error. By default, a replay is named after its
settings and its files with their sizes and modification times; for an archive, after its messages, so that merging
files does not change the name. If ordered, the rows of a queue are pushed in the order of their files' names and of the
rows in them, in the order in which messages of an archive became ready, or in that of a column.

All rows are read, selected and checked before the first is pushed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the common alias

from ...data_source import register
from ...writing.jobs import Claim
from ..base.failures import BAD_DATA, USAGE, PipelineError, condition, explain
from ..base.storage import Storage
from .replay_rows import BAD, PLACE, found_rows, pushed_columns, refusal
from .replay_settings import Planned, PlannedQueue, Replayed, ReplaySettings

__all__ = ["Planned", "PlannedQueue", "ReplaySettings", "Replayed", "plan_replay", "replay"]

_FAILURES: Final = (PySparkException, Py4JJavaError)
"""The errors that Spark raises; a failure in a task is not always wrapped in another error."""
_TASKS: Final = 32
_BURSTS_PER_S: Final = 10
_REQUEST_ROWS_MAX: Final = 4000
_BAD_ROW: Final = re.compile(r"bad row: (\S+) : (.*?) :", re.DOTALL)
"""The text that `refusal` makes tasks raise: the file, as a URI, and the problem."""


def replay(spark: SparkSession, settings: ReplaySettings) -> Replayed:
    """Push all rows.

    Raises:
        PipelineError: an input cannot be read, a column does not exist, the expression fails, a row cannot become a
            message, or other rows were replayed under the name; nothing was pushed.
        PySparkException, Py4JJavaError: the cluster did not store a row. Pushed messages are kept; a repetition
            continues.
    """
    register(spark)
    found = found_rows(spark, settings)
    application, stem = settings.application(_identity(spark, settings, found))
    access = settings.access.options()
    claim = Claim(access, application, stem)
    if claim.rivals:
        raise PipelineError(
            f"a replay of this name has other arguments: use the same ones, or another --name; or forget it with"
            f" lmq-admin job rm {claim.rivals[0]}; nothing was pushed",
            USAGE,
        )
    counted = Observation("replay")
    is_bad = F.col(BAD).isNotNull()
    rows = found.observe(counted, F.count(F.lit(1)).alias("rows"), F.count_if(is_bad).alias("bad"))
    writer = _in_tasks(_good(rows, settings), settings).select(*pushed_columns(settings)).write.format("lmq")
    writer = writer.mode("append").options(**access, **_pace(settings.rate))
    try:
        writer.option("lmq.application", application).option("lmq.epoch", 0).save()
    except _FAILURES as exc:
        bad_row = _bad_row(spark, settings, str(exc))
        if bad_row is None:
            raise
        raise bad_row from exc
    bad = int(counted.get["bad"])
    return Replayed(int(counted.get["rows"]) - bad, claim.stored_since(), bad)


def plan_replay(spark: SparkSession, settings: ReplaySettings, queues_max: int) -> Planned:
    """Return what `replay` would push, without a cluster.

    Args:
        spark: the session.
        settings: the settings.
        queues_max: maximum number of queues to list.

    Raises:
        PipelineError: see `replay`.
    """
    found = found_rows(spark, settings)
    is_good = F.col(BAD).isNull()
    by_queue = (found if settings.skip_bad else _good(found, settings)).groupBy("queue").agg(
        F.count_if(is_good).alias("rows"),
        F.sum(F.when(is_good, F.octet_length("value")).otherwise(0)).alias("bytes"),
        F.count_if(~is_good).alias("bad"),
    )  # fmt: skip
    by_queue = by_queue.persist()
    some = by_queue.where("rows > 0")
    try:
        total = by_queue.agg(F.count_if(F.col("rows") > 0), *(F.sum(name) for name in ("rows", "bytes", "bad"))).head()
        most = some.orderBy(F.desc("rows"), "queue").limit(queues_max).collect()
    except _FAILURES as exc:
        raise _explain_failure(spark, settings, exc) from exc
    finally:
        by_queue.unpersist()
    count, row_count, size, bad = (0, 0, 0, 0) if total is None else (int(value or 0) for value in total)
    return Planned([PlannedQueue(row["queue"], row["rows"], row["bytes"]) for row in most], count, row_count, size, bad)


def _good(rows: DataFrame, settings: ReplaySettings) -> DataFrame:
    """Return the rows that can become messages; other rows are an error unless they are to be skipped."""
    is_bad = F.col(BAD).isNotNull()
    return rows.where(~is_bad if settings.skip_bad else F.when(is_bad, refusal()).otherwise(F.lit(True)))


def _in_tasks(rows: DataFrame, settings: ReplaySettings) -> DataFrame:
    """Return the rows spread over tasks before any is pushed, so that a bad one ends the replay in time.

    With a rate, one task pushes all, because only it can know what it has pushed.
    """
    if not settings.ordered:
        return rows.repartition(_TASKS if settings.rate is None else 1, *PLACE)
    if settings.rate is not None:
        return rows.repartition(1).sortWithinPartitions("_order", *PLACE)
    return rows.repartition(_TASKS, "queue").sortWithinPartitions("queue", "_order", *PLACE)


def _pace(rate: float | None) -> dict[str, str]:
    """Return the options of a write with this rate, in requests of a tenth of a second."""
    if rate is None:
        return {}
    return {"lmq.rate": str(rate), "lmq.batchSize": str(max(1, min(_REQUEST_ROWS_MAX, int(rate / _BURSTS_PER_S))))}


def _identity(spark: SparkSession, settings: ReplaySettings, rows: DataFrame) -> Sequence[object]:
    """Return what distinguishes the rows from those of other unnamed replays.

    It scans all rows of an archive, or the rows selected by an expression.

    Raises:
        PipelineError: the expression fails on a row, or a row cannot become a message.
    """
    is_archive = settings.form == "archive"
    if is_archive or settings.where is not None:
        figures = [F.count(F.lit(1)), *([F.sum(F.col("_identity").cast("decimal(38,0)"))] if is_archive else [])]
        try:
            found = _good(rows, settings).agg(*figures).head()
        except _FAILURES as exc:
            raise _explain_failure(spark, settings, exc) from exc
        if is_archive:
            return [str(value) for value in found or ()]
    return _file_states(spark, rows)


def _file_states(spark: SparkSession, rows: DataFrame) -> Sequence[object]:
    paths = rows.inputFiles()
    return [list(file) for file in Storage(spark, paths[0]).status(sorted(paths))] if paths else []


def _explain_failure(spark: SparkSession, settings: ReplaySettings, exc: Exception) -> Exception:
    """Return the error for rows that could not be read, selected or checked."""
    bad_row, error = _bad_row(spark, settings, str(exc)), explain(exc)
    if bad_row is not None or error is None:
        return bad_row or exc
    if settings.where is None or error.exit_code == BAD_DATA:
        return error
    return PipelineError(f"--where: {condition(exc) or error}; nothing was pushed", BAD_DATA)


def _bad_row(spark: SparkSession, settings: ReplaySettings, error: str) -> PipelineError | None:
    """Return the error about the first bad row of the file that `error` names; None if the error is about something
    else.
    """
    match = _BAD_ROW.search(error)
    if match is None:
        return None
    file, problem = match[1], match[2]
    # One task for the whole file, so that rows can be counted.
    counting = {"spark.sql.files.maxPartitionBytes": str(1 << 50), "spark.sql.files.openCostInBytes": str(1 << 49)}
    before = {name: str(spark.conf.get(name)) for name in counting}
    try:
        for name, value in counting.items():
            spark.conf.set(name, value)
        rows = found_rows(spark, replace(settings, inputs=[unquote(file)], since=None, until=None, where=None))
        first = rows.where(F.col(BAD).isNotNull()).select(F.min(F.struct("_number", BAD)).alias("first")).head()
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    where = file
    if first is not None and first["first"] is not None:
        number, problem = first["first"]
        where = f"{file}, {'line' if settings.form == 'json' else 'row'} {number + 1}"
    return PipelineError(f"bad row: {where}: {problem}; nothing was pushed (--skip-bad skips such rows)", BAD_DATA)
