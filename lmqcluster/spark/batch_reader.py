"""Batch reads: they look at the messages of queues, those under lease excepted, and leave them where they are.

When a read is planned, each queue is divided into ranges of offsets of nearly equal size, one for each task, up to the newest
message that the cluster has then. A message keeps its offset as long as it stays in its queue, so that one that nobody takes
meanwhile is read exactly once. One that comes after the planning is not read. One that is taken or leased before its range is
read is missing.

Nothing is taken out: Spark does not tell a source when the result of a batch query is safe, and reads as much or as little, and
as often, as a plan asks for. What takes messages out is a streaming query with ``trigger(availableNow=True)``.
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

from .connecting import Cluster, Contact, selection_errors
from .options import BatchRead, Connection
from .rows import RowMaker
from .wanted import Interval, Wanted

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

__all__ = ["PeekReader", "spread"]

T = TypeVar("T")
_Fetch = Callable[[int, int], BatchColumns | None]
"""Returns the page from a sequence on with so many messages, None if the queue is gone."""

_PEEK_MESSAGES: Final = 10_000
"""Messages per request: as many as there may be, because a node goes through all that has no place in a backlog for each."""
_FIRST_MESSAGES: Final = 100
"""Messages of a task's first request. Each next one has `_GROWTH` times as many: a query with a limit reads few pages."""
_GROWTH: Final = 4
_RANGE_BYTES: Final = 64 << 20
"""Size of a task, with 300 bytes for each message: enough to make its start cheap, which takes some 10 ms of processor time."""


@dataclass
class _Range(InputPartition):
    """The part of a queue that one task reads: the messages with these sequences that became due at these times."""

    number: int
    queue: str
    start: int
    end: int
    times_us: Interval
    contact: Contact | None = None


class PeekReader(DataSourceReader):
    """Reads without taking."""

    def __init__(self, options: BatchRead, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._wanted = Wanted(options.selection.queues)

    @property
    def pushFilters(self) -> _PushFilters:  # noqa: N802
        """Called by Spark with the filters of the query, if ``spark.sql.python.filterPushdown.enabled`` is set."""
        return _PushFilters(self)

    def narrow(self, filters: Iterable[Filter]) -> list[Filter]:
        """Read only what passes the filters; returns those that Spark has to apply itself."""
        # Only Spark 4.1 and newer has filters, and calls this.
        from .pushdown import narrowed  # noqa: PLC0415

        self._wanted, unsupported = narrowed(self._wanted, filters)
        return unsupported

    def partitions(self) -> Sequence[InputPartition]:
        """Ranges of the queues, in order.

        Raises:
            OptionError: the cluster refuses a queue's name.
            LmqError: the cluster did not answer.
        """
        ranges: list[InputPartition] = []
        if self._wanted.queues:
            with Cluster(self._options.connection) as cluster:
                for queue in self._wanted.queues:
                    ranges += self._ranges(cluster, queue)
        # For an empty list Spark makes up a partition of its own.
        return ranges or [_Range(0, "", 0, 0, Interval())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a range, on an executor.

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
            # As for other reads, a queue that does not exist is an empty one.
            if exc.code == "queue_not_found":
                return None
            raise


def spread(connection: Connection, number: int) -> Connection:
    """Return a connection that begins with another node than those of the tasks before and after, which run beside this one."""
    servers = connection.servers.split(",")
    first = number % len(servers)
    return replace(connection, servers=",".join(servers[first:] + servers[:first]))


class _PushFilters:
    """The method that Spark calls as ``pushFilters``, if its setting allows it.

    Spark refuses to read with a reader that overrides ``pushFilters`` while ``spark.sql.python.filterPushdown.enabled`` is not
    set, which is the default: by ``__func__`` it sees that of the base class. A read works either way, as without filters Spark
    applies all of them itself.
    """

    def __init__(self, reader: PeekReader) -> None:
        self._reader = reader
        # Spark 4.0 has no such method, and does not ask.
        self.__func__ = getattr(DataSourceReader, "pushFilters", None)

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        return self._reader.narrow(filters)


def _pages(start: int, fetch: _Fetch) -> Iterator[BatchColumns]:
    """The messages from a sequence on, a page at a time.

    Where pages have their full size, the next one is on its way while one is used. Before that, Spark may soon have enough.
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
