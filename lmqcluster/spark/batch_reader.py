"""Batch reads.

`PeekReader` (``mode`` = ``peek``, the default) looks at the messages of one queue, those under lease excepted, and leaves them
where they are. One task reads, in the order of `offset`; it ends where it finds no more.

`DrainReader` (``mode`` = ``drain``) takes out as many messages as are ready when the read is planned. Each task reserves its
share under a batch lease of its own when it starts, and settles it when Spark has all its rows. A task that fails before reads
the same messages when it is run again. This is not exactly once: Spark does not tell a source when the result of a batch
query is safe. What fails after a task has ended, such as the write that follows, loses the rows of that task; use a streaming
query with Trigger.AvailableNow where that matters. A task that is run again after it had ended fails with `DataLossError` rather
than yield nothing (with ``failOnDataLoss`` = false it yields nothing and logs that). Spark runs tasks twice also for one
query, where it looks at rows before it moves them: ``sort``, ``repartitionByRange``, a join of a data frame with itself. So cache
a drained data frame before doing anything but writing it. A read that does not take all rows, such as ``show()``, gives back
those of tasks it does not finish when ``lmq.lease`` (here 3600 s by default) is over, if not at once.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from lmqcluster import Client, LmqError
from lmqcluster.client import BatchColumns

from .backlog import ready_messages
from .connecting import connect, selection_errors
from .errors import DataLossError
from .options import BatchRead
from .rows import RowMaker
from .slices import Slice, cut, lease_lost, pages

__all__ = ["DrainReader", "PeekReader"]

logger = logging.getLogger("lmqcluster.spark")

_EPOCH: Final = 1
_UNKNOWN_MESSAGES: Final = 10_000
_PEEK_MESSAGES: Final = 10_000
"""Messages per request: as many as there may be, because a node goes through the whole queue for each."""


class PeekReader(DataSourceReader):
    """Reads without taking."""

    def __init__(self, options: BatchRead, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002  there is one
        """The rows of the queue, on an executor.

        Raises:
            OptionError: the cluster refuses the queue's name.
            LmqError: the cluster did not answer.
        """
        queue = self._options.selection.queue
        if queue is None:
            raise ValueError("a pattern cannot be peeked into")
        rows = RowMaker(self._schema, explode=self._options.explode)
        client = connect(self._options.connection)
        try:
            position = 0
            while messages := self._page(client, queue, position):
                position = messages.sequences[-1] + 1
                yield rows.batch(messages)
        finally:
            client.close(0)

    def _page(self, client: Client, queue: str, position: int) -> BatchColumns | None:
        try:
            with selection_errors(self._options.selection):
                return client.peek(queue, _PEEK_MESSAGES, position)
        except LmqError as exc:
            # As for other reads, a queue that does not exist yet is an empty one.
            if exc.code == "queue_not_found":
                return None
            raise


@dataclass
class Share(InputPartition):
    """What one task drains: up to `count` messages, under a subscription of its own."""

    subscription: str
    count: int


class DrainReader(DataSourceReader):
    """Reads and takes."""

    def __init__(self, options: BatchRead, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Shares of what is ready now.

        Raises:
            OptionError: the cluster refuses the queue's name or the pattern.
            LmqError: the cluster did not answer.
        """
        client = connect(self._options.connection)
        try:
            ready = ready_messages(client, self._options.selection, if_unknown=_UNKNOWN_MESSAGES)
        finally:
            client.close(0)
        name = f"spark-drain-{uuid.uuid4()}"
        return [
            Share(f"{name}-{index}", end - start)
            for index, (start, end) in enumerate(cut(ready, self._options.partitions_min))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one share, on an executor.

        Raises:
            DataLossError: the share was drained before, or its lease expired while it was read.
            LmqError: the cluster did not answer.
        """
        if not isinstance(partition, Share):
            raise TypeError(f"not a share of a drain: {partition!r}")
        if not partition.count:
            return
        client = connect(self._options.connection)
        try:
            yield from self._drain(client, partition)
        finally:
            client.close(0)

    def _drain(self, client: Client, share: Share) -> Iterator[pa.RecordBatch]:
        options = self._options
        lease = client.reserve_batch(
            share.subscription, _EPOCH, **options.selection.arguments(), count=share.count, lease_s=options.lease_s
        )
        if lease.state == "settled":
            self._lose(_drained(share))
        if lease.state == "expired":
            self._lose(lease_lost(share.subscription, _EPOCH, "it is expired"))
        if lease.state != "live":
            return
        rows = RowMaker(self._schema, explode=options.explode)
        try:
            for messages in pages(client, Slice(share.subscription, _EPOCH, 0, lease.count)):
                yield rows.batch(messages)
        except GeneratorExit:
            # Spark wants no more rows.
            client.abandon_batches(share.subscription)
            raise
        if client.settle_batches(share.subscription, _EPOCH):
            self._lose(lease_lost(share.subscription, _EPOCH, "it expired while it was read"))

    def _lose(self, loss: DataLossError) -> None:
        if self._options.fail_on_data_loss:
            raise loss
        logger.warning("%s Skipped.", loss)


def _drained(share: Share) -> DataLossError:
    return DataLossError(
        f"lmq: a task that had drained its messages (subscription {share.subscription!r}) was run again, and they are gone. "
        "A drained data frame can be used once: cache it or write it somewhere, or read with Trigger.AvailableNow. Set the "
        "option 'failOnDataLoss' to false to go on without them."
    )
