"""Streaming writes: each micro-batch is an epoch of the query's job, see `writer`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from ..base.options import Write
from .pushing import Run
from .writer import Written, finish_epoch, write_rows

__all__ = ["StreamWriter"]

# Spark sets these for every task of a streaming query.
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of one query."""

    def __init__(self, options: Write) -> None:
        self._options = options
        self._name = str(uuid.uuid4())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Push the rows of one partition of a micro-batch, on an executor.

        Raises:
            LmqError: the cluster did not store them.
            SchemaError: a value, a queue, a key or an attribute cannot be written.
        """
        run = Run(int(_task_property(_BATCH_ID)), self._name)
        return write_rows(self._options, iterator, f"spark/stream/{_task_property(_QUERY_ID)}", run)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Finish the micro-batch.

        Raises:
            LmqError: other rows of it are stored, or the cluster did not answer.
        """
        # This may be another copy of the writer than that of the tasks.
        for job, run in {(message.job, message.run) for message in messages if isinstance(message, Written)}:
            if run is not None:
                finish_epoch(self._options, job, run, messages)


def _task_property(name: str) -> str:
    context = TaskContext.get()
    value = None if context is None else context.getLocalProperty(name)
    if value is None:
        raise RuntimeError(
            f"lmq: Spark did not set {name!r} for this task, so rows written twice could not be recognised"
        )
    return str(value)
