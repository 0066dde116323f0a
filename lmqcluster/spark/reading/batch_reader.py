"""Batch reads: they return the messages of queues except leased ones, and leave them in the queues.

When a read is planned, each queue is divided into ranges of offsets of nearly equal size, one for each task, up to the
newest message at that time. A message keeps its offset while it stays in its queue, so a message that no consumer pulls
in between is read exactly once. A message pushed after the planning is not read. A message pulled or leased before its
range is read is missing.

Nothing is removed: Spark does not tell a source when the result of a batch query is safe, and reads as much, and as
often, as a plan requires. To remove messages, use a streaming query with ``trigger(availableNow=True)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from lmqcluster import Client, LmqError
from lmqcluster.client import BatchColumns

from ..base.connecting import Cluster, Contact, selection_errors
from ..base.options import BatchRead, Connection
from ..base.read_scope import Interval, ReadScope
from .rows import RowMaker

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

__all__ = ["PeekReader", "spread"]

T = TypeVar("T")
_Fetch = Callable[[int, int], BatchColumns | None]
"""Returns a page of up to a number of messages from a sequence on; None if the queue does not exist any more."""

_PEEK_MESSAGES: Final = 10_000
"""Messages per request: the maximum, because for each request a node scans everything without an index in the backlog."""
_FIRST_MESSAGES: Final = 100
"""Messages of a task's first request. Each further request has `_GROWTH` times as many: a query with a limit reads few
pages.
"""
_GROWTH: Final = 4
_RANGE_BYTES: Final = 64 << 20
"""Size of a task, with 300 bytes for each message: large enough that its start, about 10 ms of processor time, is
cheap.
"""


@dataclass
class _Range(InputPartition):
    """The part of a queue that one task reads: the messages with these sequences that became ready at these times."""

    number: int
    queue: str
    start: int
    end: int
    times_us: Interval
    contact: Contact | None = None


class PeekReader(DataSourceReader):
    """Reads without removing messages."""

    def __init__(self, options: BatchRead, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._wanted = ReadScope(options.selection.queues)

    @property
    def pushFilters(self) -> _PushFilters:  # noqa: N802
        """Accept the filters of the query; Spark calls this if ``spark.sql.python.filterPushdown.enabled`` is set."""
        return _PushFilters(self)

    def narrow(self, filters: Iterable[Filter]) -> list[Filter]:
        """Narrow the read by the filters; return those that Spark has to apply itself."""
        # Only Spark 4.1 and newer has filters and calls this.
        from ..base.pushdown import narrow_scope  # noqa: PLC0415

        self._wanted, unsupported = narrow_scope(self._wanted, filters)
        return unsupported

    def partitions(self) -> Sequence[InputPartition]:
        """Return the ranges of the queues, in order.

        Raises:
            OptionError: the cluster refuses a queue's name.
            LmqError: the cluster did not answer.
        """
        ranges: list[InputPartition] = []
        if self._wanted.queues:
            with Cluster(self._options.connection) as cluster:
                for queue in self._wanted.queues:
                    ranges += self._ranges(cluster, queue)
        # Spark replaces an empty list by a partition of its making.
        return ranges or [_Range(0, "", 0, 0, Interval())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range, on an executor.

        Raises:
            OptionError: the cluster refuses the queue's name.
            LmqError: the cluster did not answer.
        """
        if not isinstance(partition, _Range):
            raise TypeError(f"not a range of a queue: {partition!r}")
        if partition.start < partition.end:
            rows = RowMaker(self._schema, explode=self._options.explode)
            with Cluster(spread(self._options.connection, partition.number), partition.contact) as cluster:
                for messages in _pages(partition.start, self._fetcher(cluster, partition, rows)):
                    if messages:
                        yield rows.batch(messages)

    def _ranges(self, cluster: Cluster, queue: str) -> Iterator[_Range]:
        bounds = self._call(
            cluster, lambda client: client.peek_ranges(queue, _RANGE_BYTES, self._options.partitions_min)
        )
        for number, (start, end) in enumerate(pairwise(bounds or ())):
            offsets = Interval(start, end).within(self._wanted.offsets)
            if offsets.start is not None and offsets.end is not None and offsets.start < offsets.end:
                yield _Range(number, queue, offsets.start, offsets.end, self._wanted.times_us, cluster.contact())

    def _fetcher(self, cluster: Cluster, part: _Range, rows: RowMaker) -> _Fetch:
        def fetch(position: int, count: int) -> BatchColumns | None:
            return self._call(
                cluster,
                lambda client: client.peek(
                    part.queue,
                    count,
                    position,
                    end_sequence=part.end,
                    due_from_us=part.times_us.start,
                    due_to_us=part.times_us.end,
                    details=rows.details,
                    bodies=rows.bodies,
                ),
            )

        return fetch

    def _call(self, cluster: Cluster, function: Callable[[Client], T]) -> T | None:
        try:
            with selection_errors(self._options.selection):
                return cluster.call(function)
        except LmqError as exc:
            # A queue that does not exist is an empty one, as for other reads.
            if exc.code == "queue_not_found":
                return None
            raise


def spread(connection: Connection, number: int) -> Connection:
    """Return a connection that starts with a different node for each task, to spread concurrent tasks."""
    servers = connection.servers.split(",")
    first = number % len(servers)
    return replace(connection, servers=",".join(servers[first:] + servers[:first]))


class _PushFilters:
    """The method that Spark calls as ``pushFilters``, if its setting allows it.

    Spark refuses a reader that overrides ``pushFilters`` while ``spark.sql.python.filterPushdown.enabled`` is unset,
    which is the default. It detects the override by ``__func__``, which here is that of the base class. A read works
    either way: without filters, Spark applies all of them itself.
    """

    def __init__(self, reader: PeekReader) -> None:
        self._reader = reader
        # Spark 4.0 has no such method and does not check.
        self.__func__ = getattr(DataSourceReader, "pushFilters", None)

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        return self._reader.narrow(filters)


def _pages(start: int, fetch: _Fetch) -> Iterator[BatchColumns]:
    """Yield the messages from a sequence on, a page at a time.

    Once pages have their full size, the next one is requested while the current one is used. Before that, Spark may
    soon have enough.
    """
    count, position = _FIRST_MESSAGES, start
    with ThreadPoolExecutor(1, "lmq-read") as reader:
        coming: Future[BatchColumns | None] | None = None
        while True:
            page = fetch(position, count) if coming is None else coming.result()
            if page is None:
                return
            is_full, count = count == _PEEK_MESSAGES, min(count * _GROWTH, _PEEK_MESSAGES)
            coming = reader.submit(fetch, page.next, count) if is_full and page.next is not None else None
            yield page
            if page.next is None:
                return
            position = page.next
