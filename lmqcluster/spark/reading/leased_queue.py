"""All messages of a queue under batch leases, as a data frame, for jobs that remove some of them and keep the others.

A job acknowledges messages by the ids in the column ``message_id``. At the end, all other messages return to their
positions as if they had never been delivered. A killed job holds its messages until its leases expire, or until the
next job of the same name begins and releases them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Final, Self

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ..base.connecting import Cluster
from ..base.options import BATCH_MESSAGES_MAX, Connection, StreamRead
from ..base.schema import read_schema
from .rows import RowMaker
from .slices import Slice, read_slice
from .subscription import LeaseKeeper

__all__ = ["LeasedQueue"]

_BATCHES_MAX: Final = 1_000


class LeasedQueue:
    """The messages of one queue at the start that no other consumer has leased. A context manager."""

    def __init__(self, options: Mapping[str, str], name: str) -> None:
        """Connect.

        Args:
            options: those of a streaming read of the queue.
            name: of the subscription that reserves the messages. A running job of the same name is fenced.

        Raises:
            OptionError: an option is missing, unknown or out of range.
            LmqError: no node can be reached.
        """
        self._options = StreamRead.parse({**options, "lmq.subscription": name})
        self._name = name
        self._slices: list[Slice] = []
        with Cluster(self._options.connection) as cluster:
            cluster.call(lambda client: client.delete_subscription(name))
        self._keeper = LeaseKeeper(self._options.connection, self._options.selection, self._options.lease_s)

    def __enter__(self) -> Self:
        try:
            self._reserve()
        except BaseException:
            self._give_back()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._give_back()

    def _give_back(self) -> None:
        try:
            self._keeper.abandon(self._name)
        finally:
            self._keeper.close()

    @property
    def count(self) -> int:
        """Return how many messages are reserved."""
        return sum(one.end - one.start for one in self._slices)

    def rows(self, spark: SparkSession) -> DataFrame:
        """Return the messages, with all columns of a read. Reading them again has no effect."""
        schema = read_schema(self._options.extras)
        read = _reader(self._slices, self._options.connection, schema)
        return spark.range(0, len(self._slices), 1, max(1, len(self._slices))).mapInArrow(read, schema)

    def _reserve(self) -> None:
        backlog = self._keeper.backlog()
        left = backlog.messages + backlog.held
        for epoch in range(1, _BATCHES_MAX + 1):
            lease = self._keeper.reserve(self._name, epoch, min(max(left, 1), BATCH_MESSAGES_MAX), provisional=False)
            if lease.state != "live":
                return
            self._slices += self._keeper.slices(self._name, epoch, lease.count, self._options.partitions_min)
            left -= lease.count
            if left <= 0:
                return


def _reader(
    slices: list[Slice], connection: Connection, schema: StructType
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for ``mapInArrow`` that turns numbers of slices into their messages."""

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from read_slice(
                    slices[number], connection, RowMaker(schema, explode=False), fail_on_data_loss=True
                )

    return read
