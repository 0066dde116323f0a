"""Batch and streaming writes: rows become messages, each once, however often Spark runs a task.

The name of the write is made on the driver, for a batch write when it is planned, so that all tasks and their repetitions have
the same; a streaming write goes by the query's id, which its checkpoint keeps, and the number of the micro-batch. See `keys` for
how rows are told from each other. The option ``lmq.writeId`` sets the name: with it also a batch write that the application
repeats stores nothing twice, for example in ``foreachBatch``, where ``f"{name}-{epoch_id}"`` does.

The cluster keeps the keys of a task of a batch write until the worker process takes on another task, which Spark gives it when it
knows of the end of the first one, or until Spark commits the write; so a write may have more rows than the cluster can keep
keys, about two million. It keeps those of a micro-batch until Spark commits the next one, whose
planning proves that the first one is in Spark's commit log. Keys that have not been used for 10 minutes are forgotten all
the same: a task that is run again after a longer pause, a query that is restarted later than that in the middle of a
micro-batch, and a speculative copy of a task that goes on after the commit can store rows twice. Keys of a write that
was named with ``lmq.writeId``, and those of a column ``idempotency_key`` are kept for 5 to 10 minutes.

A write that fails leaves what it has pushed in the queues.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from lmqcluster import LmqError

from .connecting import Cluster
from .errors import SchemaError
from .options import Write
from .pushing import Pusher

__all__ = ["BatchWriter", "StreamWriter", "Written"]

logger = logging.getLogger("lmqcluster.spark")

_ended: dict[str, list[str]] = {}
"""By write: the scopes of tasks that this worker process has ended."""

# Spark sets these for every task of a streaming query.
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"


@dataclass
class Written(WriterCommitMessage):
    """What a task tells the driver: how many rows it pushed, under keys of which scope, and for a micro-batch its query's id."""

    rows: int
    scope: str
    query_id: str | None = None


class BatchWriter(DataSourceArrowWriter):
    """Writes one data frame."""

    def __init__(self, options: Write) -> None:
        self._options = options
        self._write_id = options.write_id or str(uuid.uuid4())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Push the rows of one partition, on an executor.

        Raises:
            LmqError: the cluster did not take them.
            SchemaError: a value or a queue is null.
        """
        scope = f"spark/batch/{self._write_id}/{_partition()}"
        may_repeat = self._options.write_id is not None
        rows = _write(self._options, iterator, scope, [] if may_repeat else _ended.pop(self._write_id, []))
        if not may_repeat:
            _ended.setdefault(self._write_id, []).append(scope)
        return Written(rows, scope)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Let the cluster forget the keys, unless the application may repeat the write."""
        if self._options.write_id is None:
            scopes = [message.scope for message in messages if isinstance(message, Written)]
            if scopes:
                _forget(self._options, scopes)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of one query."""

    def __init__(self, options: Write) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Push the rows of one partition of a micro-batch, on an executor.

        Raises:
            LmqError: the cluster did not take them.
            SchemaError: a value or a queue is null.
        """
        query_id, batch_id = self._options.write_id or _task_property(_QUERY_ID), int(_task_property(_BATCH_ID))
        scope = _stream_scope(query_id, batch_id)
        return Written(_write(self._options, iterator, scope, []), scope, query_id)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Let the cluster forget the keys of the micro-batch before this one."""
        queries = {message.query_id for message in messages if isinstance(message, Written)}
        for query_id in queries:
            if query_id is not None:
                _forget(self._options, [_stream_scope(query_id, batchId - 1)])


def _stream_scope(query_id: str, batch_id: int) -> str:
    return f"spark/stream/{query_id}/{batch_id}"


def _task_property(name: str) -> str:
    context = TaskContext.get()
    value = None if context is None else context.getLocalProperty(name)
    if value is None:
        raise RuntimeError(
            f"lmq: Spark did not set {name!r} for this task, so that rows written twice could not be told"
        )
    return str(value)


def _partition() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _write(options: Write, batches: Iterator[pa.RecordBatch], scope: str, ended: list[str]) -> int:
    """Push all rows of a partition, and let go of scopes that have ended; returns how many rows."""
    first = next(batches, None)
    if first is None:
        return 0
    # Applications choose keys so that any client can repeat them, which a scope would prevent.
    key_scope = None if "idempotency_key" in first.schema.names else scope
    rows = 0
    with Pusher(options, (scope, str(_partition())), key_scope) as pusher:
        pusher.forget(ended)
        for batch in chain((first,), batches):
            _push(batch, options.queue, pusher)
            rows += batch.num_rows
    return rows


def _forget(options: Write, scopes: list[str]) -> None:
    try:
        with Cluster(options.connection) as cluster:
            cluster.client.forget_keys(scopes)
    except LmqError as exc:
        # All rows are stored: this is no reason to fail the write.
        logger.warning("keys of %s stay until they have not been used for 10 minutes: %s", scopes[:1], exc)


def _push(batch: pa.RecordBatch, queue: str | None, pusher: Pusher) -> None:
    if queue is not None:
        _push_rows(batch, queue, pusher)
        return
    queues = batch.column("queue")
    _check_no_null(queues, "queue")
    for name in pc.unique(queues).to_pylist():
        _push_rows(batch.filter(pc.equal(queues, name)), name, pusher)


def _push_rows(batch: pa.RecordBatch, queue: str, pusher: Pusher) -> None:
    values = batch.column("value")
    _check_no_null(values, "value")
    names = batch.schema.names
    keys: list[bytes | None] | None = _bytes(batch.column("idempotency_key")) if "idempotency_key" in names else None
    types: list[str | None] | None = batch.column("content_type").to_pylist() if "content_type" in names else None
    pusher.add(queue, _bytes(values), keys, types)


def _bytes(column: Any) -> list[Any]:
    # Strings are UTF-8 in Arrow already, so that this copies nothing.
    values: list[Any] = column.cast(pa.binary()).to_pylist()
    return values


def _check_no_null(column: Any, name: str) -> None:
    if column.null_count:
        raise SchemaError(
            f"lmq: column {name!r} holds {column.null_count} null(s), which cannot be written: filter them out"
        )
