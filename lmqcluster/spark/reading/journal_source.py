"""The data source ``lmq_journal``: the lines of event journals as a stream, each once, while nodes write them.

Nodes append complete gzip members to their files. A micro-batch ends at the end of a member in each file. An incomplete
member, which is being written or whose machine failed, waits until it is complete. Spark's own file source reads a file
once, and so would miss appended data.

The driver and the executors must see the folder under the same path. The only option is ``path``.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StringType, StructField, StructType

from ..base.errors import OptionError

__all__ = ["JournalReader", "JournalSource", "register_journal"]

logger = logging.getLogger("lmqcluster.spark")

_FILES: Final = "events-*.jsonl.gz"
_GZIP: Final = 31
"""The code of the gzip format in `zlib`."""
_MAGIC: Final = b"\x1f\x8b\x08"
_CHUNK_BYTES: Final = 64 * 1024
_OUT_BYTES: Final = 1024 * 1024
_LINE_BYTES_MAX: Final = 64 * 1024
"""Far more than an event has; a longer line is truncated, so that it is not an event."""
_ROWS: Final = 10_000
_BATCH_BYTES: Final = 32 * 1024 * 1024
"""Compressed bytes after which a micro-batch is full."""


@dataclass
class _Piece(InputPartition):
    """The part of a file that one task reads: complete members."""

    path: str
    start: int
    end: int


class JournalSource(DataSource):
    """Event journals as a source of Spark."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "lmq_journal"

    def schema(self) -> StructType:
        """Return the schema: one column, the line."""
        return StructType([StructField("value", StringType())])

    def streamReader(self, schema: StructType) -> JournalReader:  # noqa: ARG002, N802
        """Return the reader for ``spark.readStream``.

        Raises:
            OptionError: ``path`` is missing or does not name a folder.
        """
        path = self.options.get("path")
        if path is None or not Path(path).is_dir():
            raise OptionError("path", f"must name the folder of event journals, not {path!r}")
        return JournalReader(Path(path))


class JournalReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one query. An offset maps the name of each file to the position up to which it was read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._until: dict[str, int] | None = None
        """With Trigger.AvailableNow: the sizes of the files at the start."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the start of a query without a checkpoint: the beginning of all files."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit: all available, but `_BATCH_BYTES` end a micro-batch."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read the files up to their current sizes."""
        self._until = {path.name: path.stat().st_size for path in self._paths()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802
        """Return the ends of the last complete members, or `start` if nothing is new."""
        ends: dict[str, int] = {}
        left = _BATCH_BYTES
        for path in self._paths():
            begin = int(start.get(path.name, 0))
            until = None if self._until is None else self._until.get(path.name, 0)
            ends[path.name] = end = _last_end(path, begin, until, left)
            left -= end - begin
        # Files deleted by the node are forgotten, but only when there is something new.
        return ends if any(end > start.get(name, 0) for name, end in ends.items()) else start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return a task for each file."""
        return [
            _Piece(str(self._folder / name), int(start.get(name, 0)), int(position))
            for name, position in end.items()
            if position > start.get(name, 0)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the lines of some members, on an executor; an empty line in place of a damaged member."""
        if not isinstance(partition, _Piece):
            raise TypeError(f"not a piece of a journal: {partition!r}")
        lines: list[str] = []
        try:
            for line in _lines(partition):
                lines.append(line)
                if len(lines) >= _ROWS:
                    yield _batch(lines)
                    lines = []
        except FileNotFoundError:
            logger.warning("event journal deleted before it was read, events missing: %s", partition.path)
        if lines:
            yield _batch(lines)

    def _paths(self) -> list[Path]:
        return sorted(self._folder.glob(_FILES))


def register_journal(spark: SparkSession) -> None:
    """Register ``format("lmq_journal")`` in a session."""
    spark.dataSource.register(JournalSource)


def _batch(lines: list[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": lines})


def _last_end(path: Path, start: int, until: int | None, left: int) -> int:
    """Return the end of the last complete member, or of the first one that ends at least `left` bytes after `start`."""
    end = start
    try:
        with path.open("rb") as file:
            while end - start < left:
                following = _member_end(file, end)
                if following is None or (until is not None and following > until):
                    break
                end = following
    except FileNotFoundError:
        # Deleted since the listing, so nothing of it can be read.
        return start
    return end


def _member_end(file: BinaryIO, start: int) -> int | None:
    """Return the end of the member that begins at a position; None if it is incomplete.

    The end of a damaged member is the beginning of the next.
    """
    file.seek(start)
    unpacker = zlib.decompressobj(_GZIP)
    try:
        while chunk := file.read(_CHUNK_BYTES):
            for _data in _unpack(unpacker, chunk):
                pass
            if unpacker.eof:
                return file.tell() - len(unpacker.unused_data)
    except zlib.error:
        return _next_member(file, start + 1)
    return None


def _next_member(file: BinaryIO, start: int) -> int | None:
    """Return the next position where a member may begin."""
    file.seek(start)
    tail, position = b"", start
    while chunk := file.read(_CHUNK_BYTES):
        found = (tail + chunk).find(_MAGIC)
        if found >= 0:
            return position - len(tail) + found
        position += len(chunk)
        tail = (tail + chunk)[-len(_MAGIC) + 1 :]
    return None


def _unpack(unpacker: Any, chunk: bytes) -> Iterator[bytes]:
    """Yield the contents of a chunk in parts of bounded size, whatever the compression ratio."""
    while chunk and not unpacker.eof:
        yield unpacker.decompress(chunk, _OUT_BYTES)
        chunk = unpacker.unconsumed_tail


def _lines(piece: _Piece) -> Iterator[str]:
    with Path(piece.path).open("rb") as file:
        position = piece.start
        while position < piece.end:
            end = _member_end(file, position)
            if end is None:
                break
            file.seek(position)
            try:
                yield from _member_lines(file.read(end - position))
            except zlib.error:
                yield ""
            position = end


def _member_lines(data: bytes) -> Iterator[str]:
    unpacker = zlib.decompressobj(_GZIP)
    rest = b""
    for part in _unpack(unpacker, data):
        *whole, rest = (rest + part).split(b"\n")
        yield from map(_text, whole)
        # The discarded rest is not needed: a line this long is not an event.
        rest = rest[: _LINE_BYTES_MAX + 1]
    if rest:
        yield _text(rest)


def _text(line: bytes) -> str:
    return line[:_LINE_BYTES_MAX].decode("utf-8", "replace")
