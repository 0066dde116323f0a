"""Queues to Parquet: every message once, in directories ``queue=NAME/hour=2026-11-03-14`` by the hour (UTC) at which it was due.

The table has the columns ``offset`` (the message's number in the cluster, unique), ``timestamp``, ``content_type`` and ``value``
as `lmqcluster.spark.schema` tells, and from its directories ``queue`` and ``hour``. Any reader of Parquet takes it as it stands;
Spark makes numbers of queues that are called ``123`` unless ``spark.sql.sources.partitionColumnTypeInference.enabled`` is false.

Each micro-batch is staged in ``_staging`` and then moved into place, one file for each queue and hour, whose name tells query and
micro-batch. So whatever a crash left of a micro-batch is found and replaced when Spark runs it again. Small files are merged
while the query runs, and at its end: see `compaction`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  what everybody calls it
from pyspark.sql.streaming.query import StreamingQuery

from .checkpoint import last_done, query_id
from .compaction import PARTITIONS, STAGING, WRITING, Compaction, batch_file_name
from .source import Source
from .storage import Storage
from .stream import paced, run_stream

__all__ = ["ArchiveSettings", "archive"]

COLUMNS: Final = ("offset", "timestamp", "content_type", "value")
_HOUR_FORMAT: Final = "yyyy-MM-dd-HH"
_QUERY_CHARACTERS: Final = 12


@dataclass(frozen=True, kw_only=True)
class ArchiveSettings:
    """What to archive, and how.

    Attributes:
        source: the queues.
        output: the table's directory.
        checkpoint: where the query keeps its place; default ``_checkpoint`` in `output`.
        trigger_s: seconds from one micro-batch to the next; ``None`` takes what is there now and ends.
        file_bytes: size from which a file is left alone when small ones are merged.
        small_files_max: small files of a queue and hour that start a merge while the query runs.
    """

    source: Source
    output: str
    checkpoint: str | None = None
    trigger_s: float | None = None
    file_bytes: int = 128 * 1024 * 1024
    small_files_max: int = 16

    @property
    def checkpoint_path(self) -> str:
        """`checkpoint`, or its default."""
        return self.checkpoint or f"{self.output.rstrip('/')}/_checkpoint"


def archive(spark: SparkSession, settings: ArchiveSettings, watch: Callable[[StreamingQuery], None]) -> None:
    """Run the query to its end, or until `watch` stops it, then merge small files.

    Args:
        spark: the session.
        settings: what to do.
        watch: is called with the running query and returns when it has ended.

    Raises:
        StreamingQueryException: the query failed. It can be restarted with the same checkpoint.
    """
    table = _Table(spark, settings)
    source = settings.source
    writer = (
        source.stream(spark).writeStream.queryName("archive").option("checkpointLocation", settings.checkpoint_path)
    )
    writer = writer.foreachBatch(paced(table.write, source.rate, source.messages_max))
    query = run_stream(writer, settings.trigger_s, watch)
    table.finish(query.id, last_done(spark, settings.checkpoint_path))


class _Table:
    """The table on disk, as one run of a query writes it."""

    def __init__(self, spark: SparkSession, settings: ArchiveSettings) -> None:
        self._settings = settings
        self._storage = Storage(spark, settings.output)
        self._compaction = Compaction(spark, self._storage, file_bytes=settings.file_bytes)
        self._recovered = False

    def write(self, batch: DataFrame, number: int) -> None:
        """Store one micro-batch, in place of whatever an earlier attempt at it has stored."""
        query = _short_name(query_id(batch))
        if not self._recovered:
            # Only the first micro-batch after a start can have been begun before.
            self._compaction.recover(query)
            self._remove_attempt(query, number)
            self._recovered = True
        staging = f"{self._storage.root}/{STAGING}/{query}-{number}"
        _laid_out(batch).write.mode("overwrite").options(**WRITING).partitionBy(*PARTITIONS).parquet(staging)
        for file in self._storage.find(f"{STAGING}/{query}-{number}/*/*/*.parquet"):
            directory = file.path[len(staging) + 1 :].rpartition("/")[0]
            self._storage.rename(file.path, f"{self._storage.root}/{directory}/{batch_file_name(query, number)}")
        self._storage.delete(staging)
        self._compaction.run(query, before=number, small_files=self._settings.small_files_max)

    def finish(self, query: str, last: int) -> None:
        """Merge what small files there are, now that the query has ended with micro-batch `last`."""
        self._compaction.recover(_short_name(query))
        self._compaction.run(_short_name(query), before=last + 1, small_files=2)

    def _remove_attempt(self, query: str, number: int) -> None:
        for file in self._storage.find(f"*/*/{batch_file_name(query, number)}"):
            self._storage.delete(file.path)


def _laid_out(batch: DataFrame) -> DataFrame:
    """The table's columns, all rows of a queue and hour in one task, in order."""
    # Hours are those of UTC whatever time zone the session has.
    hour = F.date_format(F.to_utc_timestamp("timestamp", F.current_timezone()), _HOUR_FORMAT)
    rows = batch.select(*COLUMNS, "queue", hour.alias("hour"))
    return rows.repartition(*PARTITIONS).sortWithinPartitions(*PARTITIONS, "offset")


def _short_name(query: str) -> str:
    """Enough of a query's id for names of files."""
    return query.replace("-", "")[:_QUERY_CHARACTERS]
