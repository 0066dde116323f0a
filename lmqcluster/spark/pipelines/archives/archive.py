"""Archives queues to Parquet: every message once, in directories by the time (UTC) at which it became ready.

The directories are ``hour=2026-11-03-14``, or ``day=2026-11-03``. The table has all columns of
`lmqcluster.spark.base.schema` except the delivery's id, and the partition column. The parts of a compound message, each of
which one push has stored, are separate rows: `replay` can restore everything. A directory contains the rows of all
queues, sorted by queue and ``offset``, so that readers of one queue can skip the rest by Parquet's statistics, and no
queue's name becomes a file name.

Each micro-batch is staged in ``_staging`` and then moved into place, one file for each directory, named by query and
micro-batch. So the remains of a crashed micro-batch are found and replaced when Spark runs it again. Small files are
merged during the query and at its end: see `compaction`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Final, Literal, Protocol

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the common alias
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from ...base.schema import Extras, read_schema
from ..base.checkpoint import last_completed, query_id
from ..base.failures import CONFIGURATION, USAGE, PipelineError
from ..base.quarantine import DECODED, Decoding, Quarantine
from ..base.source import Source
from ..base.storage import Storage
from ..base.stream import limit_rate, run_stream
from .compaction import STAGING, WRITING, Compaction, batch_file_name, sort_rows

__all__ = ["PERIODS", "SCHEMA", "ArchiveSettings", "Period", "archive", "period_of"]

Period = Literal["hour", "day"]
PERIODS: Final[dict[Period, str]] = {"hour": "yyyy-MM-dd-HH", "day": "yyyy-MM-dd"}
"""The partition columns, and the format of their values."""
SCHEMA: Final = StructType(
    [field for field in read_schema(Extras(attributes=True, delivery=True)) if field.name != "message_id"]
)
"""The columns of the files."""
_QUERY_CHARACTERS: Final = 12


@dataclass(frozen=True, kw_only=True)
class ArchiveSettings:
    """The settings of an archive.

    Attributes:
        source: the queues.
        output: the table's directory.
        by: the period of a directory, the hour or the day at which messages became ready.
        checkpoint: the query's checkpoint; default ``_checkpoint`` in `output`.
        trigger_s: seconds between micro-batches; ``None`` processes the current messages and ends.
        file_bytes: size from which a file is not merged any more.
        small_files_max: number of small files in a directory that starts a merge during the query.
        form: ``parquet`` or ``delta``.
        decoding: how values are decoded into an additional column; None to keep them unchanged.
    """

    source: Source
    output: str
    by: Period = "hour"
    checkpoint: str | None = None
    trigger_s: float | None = None
    file_bytes: int = 128 * 1024 * 1024
    small_files_max: int = 16
    form: str = "parquet"
    decoding: Decoding | None = None

    @property
    def checkpoint_path(self) -> str:
        """Return `checkpoint`, or its default."""
        return self.checkpoint or f"{self.output.rstrip('/')}/_checkpoint"


def archive(spark: SparkSession, settings: ArchiveSettings, watch: Callable[[StreamingQuery], None]) -> None:
    """Run the query to its end, or until `watch` stops it, then merge small files.

    Args:
        spark: the session.
        settings: the settings.
        watch: called with the running query; returns when it has ended.

    Raises:
        PipelineError: the table has another partitioning, a schema cannot be used, or a package of the table is not
            installed.
        StreamingQueryException: the query failed. It can be restarted with the same checkpoint.
    """
    table: _Table = _delta_table(spark, settings) if settings.form == "delta" else _ParquetTable(spark, settings)
    source = replace(settings.source, attributes=True, delivery=True, explode=True)
    good: _Good = _all_good if settings.decoding is None else _decode_batch(settings.decoding, source)

    def write(batch: DataFrame, number: int) -> None:
        with good(batch, number) as rows:
            table.write(_laid_out(rows, settings.by), query_id(batch), number)

    writer = (
        source.stream(spark).writeStream.queryName("archive").option("checkpointLocation", settings.checkpoint_path)
    )
    writer = writer.foreachBatch(limit_rate(write, source.rate, source.messages_max))
    query = run_stream(writer, settings.trigger_s, watch)
    table.finish(query.id, last_completed(spark, settings.checkpoint_path))


class _Table(Protocol):
    """A table, as one run of a query writes it."""

    def write(self, rows: DataFrame, query: str, number: int) -> None:
        """Store a micro-batch of a query; replace what an earlier attempt has stored."""

    def finish(self, query: str, last: int) -> None:
        """Merge the small files, after the query has ended with micro-batch `last`."""


_Good = Callable[[DataFrame, int], AbstractContextManager[DataFrame]]
"""Yields the rows of a micro-batch for the table, in a block that stores them."""


@contextmanager
def _all_good(batch: DataFrame, _number: int) -> Iterator[DataFrame]:
    yield batch


def _decode_batch(decoding: Decoding, source: Source) -> _Good:
    decoding.check(source)
    return Quarantine(decoding, source.access).good


def _delta_table(spark: SparkSession, settings: ArchiveSettings) -> _Table:
    if find_spec("deltalake") is None:
        raise PipelineError("Delta's writer is not installed: install lmqcluster with the extra delta", CONFIGURATION)
    return _DeltaTable(spark, settings)


class _DeltaTable:
    """A Delta table."""

    def __init__(self, spark: SparkSession, settings: ArchiveSettings) -> None:
        self._path = Storage(spark, settings.output).root
        self._settings = settings

    def write(self, rows: DataFrame, query: str, number: int) -> None:
        """See `_Table`."""
        from .delta import append_once  # noqa: PLC0415  an optional package

        append_once(rows, self._path, application=query, version=number, partition_by=[self._settings.by])

    def finish(self, _query: str, _last: int) -> None:
        """See `_Table`."""
        from .delta import merge_files  # noqa: PLC0415  an optional package

        merge_files(self._path, self._settings.file_bytes)


class _ParquetTable:
    """Parquet files in directories."""

    def __init__(self, spark: SparkSession, settings: ArchiveSettings) -> None:
        self._settings = settings
        self._storage = Storage(spark, settings.output)
        self._compaction = Compaction(spark, self._storage, period=settings.by, file_bytes=settings.file_bytes)
        self._recovered = False
        for other in PERIODS.keys() - {settings.by}:
            if self._storage.find(f"{other}=*/*.parquet"):
                raise PipelineError(
                    f"{settings.output} contains a table by {other}: use --by {other}, or another --output", USAGE
                )

    def write(self, rows: DataFrame, query: str, number: int) -> None:
        """See `_Table`."""
        query = _short_name(query)
        if not self._recovered:
            # Only the first micro-batch after a start can be a repetition.
            self._compaction.recover(query)
            self._remove_attempt(query, number)
            self._recovered = True
        staging = f"{self._storage.root}/{STAGING}/{query}-{number}"
        rows.write.mode("overwrite").options(**WRITING).partitionBy(self._settings.by).parquet(staging)
        for file in self._storage.find(f"{STAGING}/{query}-{number}/*/*.parquet"):
            directory = file.path[len(staging) + 1 :].rpartition("/")[0]
            self._storage.rename(file.path, f"{self._storage.root}/{directory}/{batch_file_name(query, number)}")
        self._storage.delete(staging)
        self._compaction.run(query, before=number, small_files=self._settings.small_files_max)

    def finish(self, query: str, last: int) -> None:
        """See `_Table`."""
        self._compaction.recover(_short_name(query))
        self._compaction.run(_short_name(query), before=last + 1, small_files=2)

    def _remove_attempt(self, query: str, number: int) -> None:
        for file in self._storage.find(f"{self._settings.by}=*/{batch_file_name(query, number)}"):
            self._storage.delete(file.path)


def _laid_out(rows: DataFrame, by: Period) -> DataFrame:
    decoded = [DECODED] if DECODED in rows.columns else []
    return sort_rows(rows.select(*SCHEMA.fieldNames(), *decoded, period_of(F.col("timestamp"), by).alias(by)), by)


def period_of(time: Column, by: Period) -> Column:
    """Return the hour or the day (UTC) of a time in the format of directory names, whatever the session's time zone."""
    return F.date_format(F.to_utc_timestamp(time, F.current_timezone()), PERIODS[by])


def _short_name(query: str) -> str:
    """Return enough of a query's id for file names."""
    return query.replace("-", "")[:_QUERY_CHARACTERS]
