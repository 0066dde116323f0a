"""Batch and streaming writes: rows become messages, each once, however often Spark runs a task, and however it divides the rows.

A write is a *job* at the cluster, and what one of its tasks writes to one queue is a *stream* of that job: see `pushing`. The
driver makes the names when it plans the write, so that all tasks and their repetitions have the same.

A write that may be repeated as a whole is an *epoch* of a job: a micro-batch of a streaming write, whose job goes by the query's
id, which its checkpoint keeps; or a batch write with the options ``lmq.application`` and ``lmq.epoch``, for example in
``foreachBatch``. Each attempt is a *run*. The cluster recognises rows that earlier runs have stored by their digests, in
whatever task they come. Spark's commit finishes the epoch, if exactly its rows are stored, and fails otherwise; a source is
settled after that. Of a finished epoch the cluster keeps the number of rows and the sum of their digests, with which a
repetition is compared: it stores nothing, and fails if its rows are others. While an epoch is open it keeps 16 bytes for each
row. It forgets a job that has not been used for 30 days.

A batch write without these options is a job that ends when Spark commits or aborts it, so that its tasks may be repeated, but not
the write. The cluster keeps 16 bytes for each row of a task that is not known to have ended. A worker process tells it of the
end of a task when it takes on another one, which Spark gives it when it knows of the end of the first.

What is left over can store rows twice: in a batch write without a name, a speculative copy of a task that only begins when the
write is committed.

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
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from lmqcluster import LmqError
from lmqcluster.client import PushOptions

from .connecting import Cluster
from .delivery import row_options
from .errors import SchemaError
from .options import Write
from .pushing import Headers, Pusher, Run, Stream, finish
from .texts import message_text

__all__ = ["BatchWriter", "Written", "application_job", "finish_epoch", "kept_headers", "write_rows"]

logger = logging.getLogger("lmqcluster.spark")

_OURS: Final = "x-lmq-"
"""How the headers begin that a read adds."""

_ended: dict[str, list[Stream]] = {}
"""By job: the streams of tasks that this worker process has ended."""


def application_job(application: str) -> str:
    """Return the job of batch writes with this ``lmq.application``."""
    return f"spark/application/{application}"


@dataclass
class Written(WriterCommitMessage):
    """What a task tells the driver.

    Attributes:
        job: what it was a part of.
        run: of a job that writes in epochs.
        rows: how many rows without idempotency keys it had.
        digests: the sum of their digests modulo 2**128.
        streams: what has been stored of them.
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
            LmqError: the cluster did not take them.
            SchemaError: a value, a queue or a key cannot be written.
        """
        return write_rows(self._options, iterator, self._job, self._run)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Let the cluster forget the job, or if the application may repeat the write, finish the epoch.

        Raises:
            LmqError: other rows are stored of the epoch, or the cluster did not answer.
        """
        if self._run is None:
            self.abort(messages)
        else:
            finish_epoch(self._options, self._job, self._run, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Let the cluster forget a job without a name, which is never taken up again."""
        if self._run is not None or not messages:
            return
        try:
            with Cluster(self._options.connection) as cluster:
                cluster.call(lambda client: client.end_jobs([self._job]))
        except LmqError as exc:
            # All rows are stored: this is no reason to fail the write.
            logger.warning("the cluster remembers the write %s for 30 days: %s", self._job, exc)


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
    """Finish the epoch of a run whose tasks have told what they had."""
    written = [message for message in messages if isinstance(message, Written)]
    rows, digests = sum(one.rows for one in written), sum(one.digests for one in written) % (1 << 128)
    with Cluster(options.connection) as cluster:
        try:
            # No task may have had a row.
            cluster.call(lambda client: client.begin_epoch(job, *run))
            cluster.call(lambda client: client.finish_epoch(job, *run, rows, digests.to_bytes(16, "big")))
        except LmqError as exc:
            if exc.code != "epoch_conflict":
                raise
            text = (
                f"{exc.message}. The write {job!r} must have the same rows whenever it is repeated. If these are other rows, give"
                f" them another 'lmq.application' or 'lmq.epoch', or a streaming query a new checkpoint; or end the job, so that"
                f" all rows are stored again: lmq-admin job rm {job}"
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
            raise SchemaError("lmq: column 'idempotency_key' holds an empty key: write null where a row has none")
    types: list[str | None] | None = None
    if "content_type" in names:
        types = [None if kind is None else message_text(kind) for kind in batch.column("content_type").to_pylist()]
    headers = list(map(kept_headers, batch.column("headers").to_pylist())) if "headers" in names else None
    pusher.add(queue, _bytes(values), keys, types, headers, row_options(batch, delivery))


def kept_headers(headers: list[tuple[str, str | None]] | None) -> Headers:
    """The headers of a row without those that a read adds, in the order of their names, in which Spark does not keep them."""
    kept = [(name, value or "") for name, value in headers or () if not name.lower().startswith(_OURS)]
    return sorted((message_text(name), message_text(value)) for name, value in kept)


def _bytes(column: Any) -> list[Any]:
    # Strings are UTF-8 in Arrow already, so that this copies nothing.
    values: list[Any] = column.cast(pa.binary()).to_pylist()
    return values


def _check_no_null(column: Any, name: str) -> None:
    if column.null_count:
        raise SchemaError(
            f"lmq: column {name!r} holds {column.null_count} null(s), which cannot be written: filter them out"
        )
