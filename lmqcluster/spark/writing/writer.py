"""Batch and streaming writes: each row becomes one message, however often Spark runs a task and however it divides the
rows.

A write is a *job* at the cluster, and the rows that one of its tasks writes to one queue are a *stream* of that job:
see `pushing`. The driver chooses the names when it plans the write, so they are the same for all tasks and their
repetitions.

A write that may be repeated as a whole is an *epoch* of a job: a micro-batch of a streaming write, whose job is named
by the query's id from its checkpoint; or a batch write with the options ``lmq.application`` and ``lmq.epoch``, for
example in ``foreachBatch``. Each attempt is a *run*. The cluster recognises rows that earlier runs have stored by their
digests, whatever task sends them. Spark's commit finishes the epoch if exactly its rows are stored, and fails
otherwise; the source is settled after that. For a finished epoch, the cluster keeps the number of rows and the sum of
their digests; a repetition with the same rows stores nothing, one with other rows fails. While an epoch is open, the
cluster keeps 16 bytes for each row. It forgets a job that was not used for 30 days.

A batch write without these options is a job that ends when Spark commits or aborts it, so its tasks may be repeated,
but not the write. The cluster keeps 16 bytes for each row of a task that is not known to have ended. A worker process
reports the end of a task when Spark gives it the next one, which proves that Spark knows of the end.

One case can still store rows twice: in a batch write without a name, a speculative copy of a task that begins only when
the write is committed.

A write that fails leaves the pushed messages in the queues.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from lmqcluster import LmqError
from lmqcluster.client import PushOptions

from ..base.connecting import Cluster
from ..base.delivery import row_options
from ..base.errors import SchemaError
from ..base.options import Write
from ..base.texts import message_text
from .pushing import Pusher, Run, Stream, finish

__all__ = ["BatchWriter", "Written", "application_job", "finish_epoch", "write_rows"]

logger = logging.getLogger("lmqcluster.spark")

_ended: dict[str, list[Stream]] = {}
"""By job: the streams of tasks that this worker process has ended."""


def application_job(application: str) -> str:
    """Return the job of batch writes with this ``lmq.application``."""
    return f"spark/application/{application}"


@dataclass
class Written(WriterCommitMessage):
    """The report of a task to the driver.

    Attributes:
        job: the job of the task.
        run: for a job that writes in epochs.
        rows: number of its rows without idempotency keys.
        digests: the sum of their digests modulo 2**128.
        streams: the stored streams.
    """

    job: str
    run: Run | None
    rows: int
    digests: int
    streams: list[Stream]


class BatchWriter(DataSourceArrowWriter):
    """Writes one data frame."""

    def __init__(self, options: Write) -> None:
        self._options = options
        name = str(uuid.uuid4())
        self._job = f"spark/batch/{name}" if options.application is None else application_job(options.application)
        self._run = Run(options.epoch, name) if options.application is not None else None

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Push the rows of one partition, on an executor.

        Raises:
            LmqError: the cluster did not store them.
            SchemaError: a value, a queue, a key or an attribute cannot be written.
        """
        return write_rows(self._options, iterator, self._job, self._run)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """End the job, or, if the application may repeat the write, finish the epoch.

        Raises:
            LmqError: other rows of the epoch are stored, or the cluster did not answer.
        """
        if self._run is None:
            self.abort(messages)
        else:
            finish_epoch(self._options, self._job, self._run, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """End a job without a name, which is never continued."""
        if self._run is not None or not messages:
            return
        try:
            with Cluster(self._options.connection) as cluster:
                cluster.call(lambda client: client.end_jobs([self._job]))
        except LmqError as exc:
            # All rows are stored, so the write does not fail.
            logger.warning("end of write %s not recorded, the cluster keeps it for 30 days: %s", self._job, exc)


def _partition() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def write_rows(options: Write, batches: Iterator[pa.RecordBatch], job: str, run: Run | None) -> Written:
    """Push all rows of a partition."""
    first = next(batches, None)
    if first is None:
        return Written(job, run, 0, 0, [])
    with Pusher(options, job, _partition(), run) as pusher:
        if run is None:
            finish(pusher.cluster, job, _ended.pop(job, []))
            _ended.clear()
        for batch in chain((first,), batches):
            _push(batch, options, pusher)
    if run is None:
        _ended[job] = pusher.streams
    return Written(job, run, pusher.rows, pusher.digests, pusher.streams)


def finish_epoch(options: Write, job: str, run: Run, messages: list[WriterCommitMessage | None]) -> None:
    """Finish the epoch of a run with the reports of its tasks."""
    written = [message for message in messages if isinstance(message, Written)]
    rows, digests = sum(one.rows for one in written), sum(one.digests for one in written) % (1 << 128)
    with Cluster(options.connection) as cluster:
        try:
            # Perhaps no task had a row.
            cluster.call(lambda client: client.begin_epoch(job, *run))
            cluster.call(lambda client: client.finish_epoch(job, *run, rows, digests.to_bytes(16, "big")))
        except LmqError as exc:
            if exc.code != "epoch_conflict":
                raise
            text = (
                f"{exc.message}. The write {job!r} must have the same rows whenever it is repeated. For other rows, use"
                f" another 'lmq.application' or 'lmq.epoch', or for a streaming query a new checkpoint; or end the job to"
                f" store all rows again: lmq-admin job rm {job}"
            )
            raise LmqError(exc.code, text, retryable=False, outcome=exc.outcome) from exc


def _push(batch: pa.RecordBatch, options: Write, pusher: Pusher) -> None:
    if options.queue is not None:
        _push_rows(batch, options.queue, options.delivery, pusher)
        return
    queues = batch.column("queue")
    _check_no_null(queues, "queue")
    for name in pc.unique(queues).to_pylist():
        _push_rows(batch.filter(pc.equal(queues, name)), message_text(name), options.delivery, pusher)


def _push_rows(batch: pa.RecordBatch, queue: str, delivery: PushOptions, pusher: Pusher) -> None:
    values = batch.column("value")
    _check_no_null(values, "value")
    names = batch.schema.names
    keys: list[bytes | None] | None = None
    if "idempotency_key" in names:
        keys = _bytes(batch.column("idempotency_key"))
        if b"" in keys:
            raise SchemaError("lmq: column 'idempotency_key' contains an empty key: write null if a row has none")
    types: list[str | None] | None = None
    if "content_type" in names:
        types = [None if kind is None else message_text(kind) for kind in batch.column("content_type").to_pylist()]
    pusher.add(queue, _bytes(values), keys, types, row_options(batch, delivery))


def _bytes(column: Any) -> list[Any]:
    # Arrow strings are UTF-8, so this copies nothing.
    values: list[Any] = column.cast(pa.binary()).to_pylist()
    return values


def _check_no_null(column: Any, name: str) -> None:
    if column.null_count:
        raise SchemaError(
            f"lmq: column {name!r} contains {column.null_count} null(s), which cannot be written: filter them out"
        )
