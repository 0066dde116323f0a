"""Moves queues to another cluster: a streaming query that reads under batch leases and writes micro-batches as epochs.

A message is removed from the source only after it is stored at the target, so none is lost whatever process is killed.
Work in progress is resumed when the query is restarted, as the same epoch of the same application: no message is
duplicated while the target remembers it, see `REMEMBERED_S`. A later restart is refused, unless
`MigrateSettings.accept_doubles` accepts that the interrupted micro-batch may be stored twice.

Queue names, everything that a push can set, and the order by queue are kept, see `push_columns`. Times to live start again. A
compound message arrives as the list of its contents. Messages leased by other consumers are moved when they return to
their queue.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the common alias
from pyspark.sql.streaming.query import StreamingQuery

from .base.access import Access
from .base.checkpoint import interrupted_batch, query_id
from .base.failures import BAD_DATA, PipelineError
from .base.push_columns import push_columns
from .base.source import Source
from .base.stream import limit_rate, run_stream

__all__ = ["REMEMBERED_S", "MigrateSettings", "migrate"]

REMEMBERED_S: Final = 30 * 86_400.0
"""How long a cluster remembers an unused job, in seconds."""
_TASKS: Final = 8


@dataclass(frozen=True, kw_only=True)
class MigrateSettings:
    """The settings of a migration.

    Attributes:
        source: the queues.
        target: the other cluster.
        checkpoint: the query's checkpoint.
        trigger_s: seconds between micro-batches; ``None`` processes the current messages and ends.
        queue_prefix: prefix for the names of queues at the target.
        accept_doubles: whether to continue even if an interrupted micro-batch may be forgotten.
    """

    source: Source
    target: Access
    checkpoint: str
    trigger_s: float | None = None
    queue_prefix: str = ""
    accept_doubles: bool = False


def migrate(spark: SparkSession, settings: MigrateSettings, watch: Callable[[StreamingQuery], None]) -> None:
    """Run the query to its end, or until `watch` stops it.

    Args:
        spark: the session.
        settings: the settings.
        watch: called with the running query; returns when it has ended.

    Raises:
        PipelineError: the restart is too late, see above.
        StreamingQueryException: the query failed. It can be restarted with the same checkpoint.
    """
    if not settings.accept_doubles:
        _check_in_time(spark, settings.checkpoint)

    source = replace(settings.source, attributes=True, delivery=True)
    writes = _Writes(settings)
    writer = source.stream(spark).writeStream.queryName("migrate").option("checkpointLocation", settings.checkpoint)
    writer = writer.foreachBatch(limit_rate(writes.write, source.rate, source.messages_max))
    run_stream(writer, settings.trigger_s, watch)


class _Writes:
    """The micro-batches of one run, each of which is an epoch at the target."""

    def __init__(self, settings: MigrateSettings) -> None:
        self._settings = settings

    def write(self, batch: DataFrame, number: int) -> None:
        """Store one micro-batch, or the rest of it after an earlier attempt."""
        _write(batch, self._settings, number)


def _write(batch: DataFrame, settings: MigrateSettings, epoch: int) -> None:
    queue = F.concat(F.lit(settings.queue_prefix), F.col("queue"))
    messages = batch.select(*push_columns(queue), "offset")
    # One task for each queue keeps its order.
    in_order = messages.repartition(_TASKS, "queue").sortWithinPartitions("queue", "offset")
    writer = in_order.write.format("lmq").mode("append").options(**settings.target.options())
    writer.option("lmq.application", f"migrate/{query_id(batch)}").option("lmq.epoch", epoch).save()


def _check_in_time(spark: SparkSession, checkpoint: str) -> None:
    left = interrupted_batch(spark, checkpoint)
    if left is None:
        return
    age_s = time.time() - left.planned_s
    if age_s > REMEMBERED_S:
        raise PipelineError(
            f"the checkpoint {checkpoint} has an unfinished micro-batch, number {left.batch}, begun {age_s / 86_400:.0f} days"
            f" ago: its messages could be stored twice, because the target remembers it for only {REMEMBERED_S / 86_400:g}"
            " days; compare the queues, then continue with --accept-doubles",
            BAD_DATA,
        )
