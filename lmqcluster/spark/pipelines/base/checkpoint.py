"""Reads the checkpoint of a streaming query from outside: the planned and the completed micro-batches."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from .storage import Storage

__all__ = ["Interrupted", "interrupted_batch", "last_completed", "query_id"]


class Interrupted(NamedTuple):
    """A micro-batch that was planned but not finished, and the time of its planning, in seconds since the Unix epoch."""

    batch: int
    planned_s: float


def query_id(batch: DataFrame) -> str:
    """Return the id of the query that a ``foreachBatch`` function works for; restarted queries keep it."""
    found = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    if found is None:
        raise RuntimeError("Spark did not say which query this micro-batch belongs to")
    return found


def last_completed(spark: SparkSession, checkpoint: str) -> int:
    """Return the number of the last completed micro-batch, -1 if there is none."""
    return max(_read_log(spark, checkpoint, "commits"), default=-1)


def interrupted_batch(spark: SparkSession, checkpoint: str) -> Interrupted | None:
    """Return the micro-batch that the query will run again, if there is one."""
    planned = _read_log(spark, checkpoint, "offsets")
    if not planned:
        return None
    last = max(planned)
    return Interrupted(last, planned[last]) if last > last_completed(spark, checkpoint) else None


def _read_log(spark: SparkSession, checkpoint: str, log: str) -> dict[int, float]:
    files = Storage(spark, checkpoint).find(f"{log}/*")
    return {int(file.name): file.written_s for file in files if file.name.isdigit()}
