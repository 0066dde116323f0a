"""Batch reads: they look at the messages of queues, those under lease excepted, and leave them where they are.

One task reads a queue, in the order of `offset`; it ends where it finds no more. Nothing is taken out: Spark does not tell a
source when the result of a batch query is safe, and reads as much or as little, and as often, as a plan asks for. What takes
messages out is a streaming query with ``trigger(availableNow=True)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from lmqcluster import LmqError
from lmqcluster.client import BatchColumns

from .connecting import Cluster, selection_errors
from .options import BatchRead
from .rows import RowMaker

__all__ = ["PeekReader"]

_PEEK_MESSAGES: Final = 10_000
"""Messages per request: as many as there may be, because a node goes through all that has no place in a backlog for each."""


@dataclass
class _Queue(InputPartition):
    """What one task reads."""

    name: str


class PeekReader(DataSourceReader):
    """Reads without taking."""

    def __init__(self, options: BatchRead, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """A task for each queue."""
        return [_Queue(name) for name in self._options.selection.queues]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a queue, on an executor.

        Raises:
            OptionError: the cluster refuses the queue's name.
            LmqError: the cluster did not answer.
        """
        if not isinstance(partition, _Queue):
            raise TypeError(f"not a queue: {partition!r}")
        rows = RowMaker(self._schema, explode=self._options.explode)
        with Cluster(self._options.connection) as cluster:
            position: int | None = 0
            while position is not None:
                messages = self._page(cluster, partition.name, position, details=rows.details)
                position = None if messages is None else messages.next
                if messages:
                    yield rows.batch(messages)

    def _page(self, cluster: Cluster, queue: str, position: int, *, details: bool) -> BatchColumns | None:
        try:
            with selection_errors(self._options.selection):
                return cluster.call(lambda client: client.peek(queue, _PEEK_MESSAGES, position, details=details))
        except LmqError as exc:
            # As for other reads, a queue that does not exist yet is an empty one.
            if exc.code == "queue_not_found":
                return None
            raise
