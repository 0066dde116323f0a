"""Batch and streaming writes: rows become messages, each once, however often Spark runs a task and however late.

A write is a *job* at the cluster, and what one of its tasks writes to one queue is a *stream* of that job: see `pushing`. The
name of the job is made on the driver, for a batch write when it is planned, so that all tasks and their repetitions have the
same; a streaming write goes by the query's id, which its checkpoint keeps, and the number of the micro-batch. The option
``lmq.writeId`` sets the name: with it also a batch write that the application repeats stores nothing twice, for example in
``foreachBatch``, where ``f"{name}-{epoch_id}"`` does.

The cluster keeps what it knows of a job until the job is ended, or has not been used for 30 days. A batch write ends its own
when Spark commits or aborts it; a micro-batch is ended when Spark commits the next one, whose planning proves that the
first one is in Spark's commit log. A job that was named with ``lmq.writeId`` is not ended: a repetition within 30 days stores
only what is missing, and nothing at all of a partition that was written to its end.

While a job goes on the cluster also keeps 8 bytes for each row of a task that is not known to have ended. A worker process tells
it of the end of a task when it takes on another one, which Spark gives it when it knows of the end of the first; the driver
tells it of all others when the write is committed.

A repetition has to cut the rows into the same partitions: partition 3 is compared with what partition 3 has stored. What is
left over can store rows twice: a speculative copy of a task that only begins when the write is committed.

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
from lmqcluster.client import PushOptions

from .connecting import Cluster
from .delivery import row_options
from .errors import SchemaError
from .options import Write
from .pushing import Headers, Pusher, Stream, finish

__all__ = ["BatchWriter", "StreamWriter", "Written", "named_job"]

logger = logging.getLogger("lmqcluster.spark")

# Spark sets these for every task of a streaming query.
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
_OURS: Final = "x-lmq-"
"""How the headers begin that a read adds."""
_FINISH_MAX: Final = 1000
"""Most streams whose notes a commit drops one by one."""

_ended: dict[str, list[Stream]] = {}
"""By job: the streams of tasks that this worker process has ended."""


def named_job(write_id: str) -> str:
    """The job of a batch write with this ``lmq.writeId``."""
    return f"spark/write/{write_id}"


@dataclass
class Written(WriterCommitMessage):
    """What a task tells the driver: how many rows it had, what has become of them, and for which query it was, if any."""

    rows: int
    streams: list[Stream]
    query_id: str | None = None


class BatchWriter(DataSourceArrowWriter):
    """Writes one data frame."""

    def __init__(self, options: Write) -> None:
        self._options = options
        self._job = f"spark/batch/{uuid.uuid4()}" if options.write_id is None else named_job(options.write_id)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Push the rows of one partition, on an executor.

        Raises:
            LmqError: the cluster did not take them.
            SchemaError: a value, a queue or a key cannot be written.
        """
        return _write(self._options, iterator, self._job)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Let the cluster forget the job, or if the application may repeat it, all but its positions."""
        if self._options.write_id is None:
            self.abort(messages)
        else:
            _tell(self._options, self._job, _streams(messages), ended=None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Let the cluster forget a job without a name, which is never taken up again."""
        if self._options.write_id is None and messages:
            _tell(self._options, self._job, [], ended=self._job)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of one query."""

    def __init__(self, options: Write) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Push the rows of one partition of a micro-batch, on an executor.

        Raises:
            LmqError: the cluster did not take them.
            SchemaError: a value, a queue or a key cannot be written.
        """
        query_id, batch_id = self._options.write_id or _task_property(_QUERY_ID), int(_task_property(_BATCH_ID))
        written = _write(self._options, iterator, _stream_job(query_id, batch_id))
        written.query_id = query_id
        return written

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Let the cluster forget the micro-batch before this one, and all but the positions of this one."""
        for query_id in {message.query_id for message in messages if isinstance(message, Written)}:
            if query_id is not None:
                done, before = _stream_job(query_id, batchId), _stream_job(query_id, batchId - 1)
                _tell(self._options, done, _streams(messages), ended=before)


def _stream_job(query_id: str, batch_id: int) -> str:
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


def _write(options: Write, batches: Iterator[pa.RecordBatch], job: str) -> Written:
    """Push all rows of a partition."""
    first = next(batches, None)
    if first is None:
        return Written(0, [])
    rows = 0
    with Pusher(options, job, _partition()) as pusher:
        finish(pusher.cluster, job, _ended.pop(job, []))
        _ended.clear()
        for batch in chain((first,), batches):
            _push(batch, options, pusher)
            rows += batch.num_rows
    _ended[job] = pusher.streams
    return Written(rows, pusher.streams)


def _streams(messages: list[WriterCommitMessage | None]) -> list[Stream]:
    return [stream for message in messages if isinstance(message, Written) for stream in message.streams]


def _tell(options: Write, job: str, done: list[Stream], *, ended: str | None) -> None:
    """Let the cluster know what it need not remember any more: notes of streams that are done, and a job that has ended."""
    if not done and ended is None:
        return
    try:
        with Cluster(options.connection) as cluster:
            if ended is not None:
                cluster.call(lambda client: client.end_jobs([ended]))
            finish(cluster, job, done[:_FINISH_MAX])
    except LmqError as exc:
        # All rows are stored: this is no reason to fail the write.
        logger.warning("the cluster remembers more of the write %s than it need: %s", job, exc)


def _push(batch: pa.RecordBatch, options: Write, pusher: Pusher) -> None:
    if options.queue is not None:
        _push_rows(batch, options.queue, options.delivery, pusher)
        return
    queues = batch.column("queue")
    _check_no_null(queues, "queue")
    for name in pc.unique(queues).to_pylist():
        _push_rows(batch.filter(pc.equal(queues, name)), name, options.delivery, pusher)


def _push_rows(batch: pa.RecordBatch, queue: str, delivery: PushOptions, pusher: Pusher) -> None:
    values = batch.column("value")
    _check_no_null(values, "value")
    names = batch.schema.names
    keys: list[bytes | None] | None = None
    if "idempotency_key" in names:
        keys = _bytes(batch.column("idempotency_key"))
        if b"" in keys:
            raise SchemaError("lmq: column 'idempotency_key' holds an empty key: write null where a row has none")
    types: list[str | None] | None = batch.column("content_type").to_pylist() if "content_type" in names else None
    headers = list(map(_kept, batch.column("headers").to_pylist())) if "headers" in names else None
    pusher.add(queue, _bytes(values), keys, types, headers, row_options(batch, delivery))


def _kept(headers: list[tuple[str, str | None]] | None) -> Headers:
    """The headers of a row without those that a read adds, in the order of their names, in which Spark does not keep them."""
    return sorted((name, value or "") for name, value in headers or () if not name.lower().startswith(_OURS))


def _bytes(column: Any) -> list[Any]:
    # Strings are UTF-8 in Arrow already, so that this copies nothing.
    values: list[Any] = column.cast(pa.binary()).to_pylist()
    return values


def _check_no_null(column: Any, name: str) -> None:
    if column.null_count:
        raise SchemaError(
            f"lmq: column {name!r} holds {column.null_count} null(s), which cannot be written: filter them out"
        )
