"""Moves messages: each row acknowledges one message and stores another in its place, atomically.

A message is therefore never in two queues and never in none, whatever process is killed and however often Spark repeats
a task: a repetition finds that the delivery has ended, and moves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]

from lmqcluster import Client, LmqError
from lmqcluster.client import PushOptions

from ..base.connecting import Cluster
from ..base.delivery import packed_attributes, row_options
from ..base.options import Connection
from ..base.texts import message_text

__all__ = ["MOVED_SCHEMA", "SOURCE_COLUMNS", "mover"]

SOURCE_COLUMNS: Final = ("from_queue", "from_id")
"""The queue and the id of the delivery that a row acknowledges; the other columns are those of a write."""
MOVED_SCHEMA: Final = "moved long, gone long"
"""The counts of a task: messages that it has moved, and messages that were no longer leased."""
_MOVES_MAX: Final = 250
_BYTES_MAX: Final = 4 * 1024 * 1024


class _Move(NamedTuple):
    source: str
    delivery: str
    target: str
    value: bytes
    content_type: str | None
    options: PushOptions

    @property
    def size(self) -> int:
        """Return the bytes of its body and its attributes."""
        return len(self.value) + len(packed_attributes(self.options))


def mover(connection: Connection) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for ``mapInArrow`` that moves the rows of a partition in order.

    It raises `LmqError` if the cluster refuses a message or does not answer, and `SchemaError` if a message cannot have
    the attributes of a row; messages already moved stay moved.
    """

    def move(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = _rows(batches)
        first = next(rows, None)
        moved = gone = 0
        if first is not None:
            with Cluster(connection) as cluster:
                for group in _groups(first, rows):
                    done = _move_group(cluster, group)
                    moved, gone = moved + done, gone + len(group) - done
        yield pa.RecordBatch.from_pydict({"moved": [moved], "gone": [gone]})

    return move


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[_Move]:
    for batch in batches:
        names = batch.schema.names
        count = batch.num_rows
        nothing: list[Any] = [None] * count
        types = _texts(batch.column("content_type")) if "content_type" in names else nothing
        options = row_options(batch, {}) or nothing
        sources = (_texts(batch.column(name)) for name in SOURCE_COLUMNS)
        values = batch.column("value").cast(pa.binary()).to_pylist()
        targets = _texts(batch.column("queue"))
        wanted = (option or {} for option in options)
        yield from map(_Move, *sources, targets, values, types, wanted)


def _texts(column: Any) -> list[str | None]:
    return [None if text is None else message_text(text) for text in column.to_pylist()]


def _groups(first: _Move, rows: Iterator[_Move]) -> Iterator[list[_Move]]:
    """Yield the groups of rows that form one transaction each."""
    group, size = [first], first.size
    for row in rows:
        row_size = row.size
        if len(group) >= _MOVES_MAX or size + row_size > _BYTES_MAX:
            yield group
            group, size = [], 0
        group.append(row)
        size += row_size
    yield group


def _move_group(cluster: Cluster, group: list[_Move]) -> int:
    """Move messages, except those that are no longer leased; return how many."""
    try:
        cluster.call(lambda client: _transact(client, group))
    except LmqError as exc:
        if exc.code != "lease_lost":
            raise
        if len(group) == 1:
            return 0
        middle = len(group) // 2
        return _move_group(cluster, group[:middle]) + _move_group(cluster, group[middle:])
    return len(group)


def _transact(client: Client, group: list[_Move]) -> None:
    with client.transaction() as transaction:
        for one in group:
            transaction.push(one.target, one.value, content_type=one.content_type, **one.options)
            transaction.done(one.source, one.delivery)
