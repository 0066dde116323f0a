"""Queues from one cluster to another: a streaming query that reads under batch leases and writes with idempotency keys.

A message is removed from the source only after it is stored at the target, so none is lost whatever is killed. What was under way
is written again when the query is restarted, under the same keys (query and message number), so none is doubled as long as the
target still knows them: at least `KEYS_S` after the push. A restart that comes later is refused, unless `MigrateSettings.
accept_doubles` says that the micro-batch in question may come twice.

Names of queues, bodies, content types and their order by queue stay; a compound message arrives as the list of its contents, and
headers that hooks have kept are lost. Messages that others hold under lease are moved when they come back to their queue.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  what everybody calls it
from pyspark.sql.streaming.query import StreamingQuery

from .access import Access
from .checkpoint import interrupted, query_id
from .failures import BAD_DATA, PipelineError
from .source import Source
from .stream import paced, run_stream

__all__ = ["KEYS_S", "MigrateSettings", "migrate"]

KEYS_S: Final = 300.0
"""How long a cluster promises to remember a key, in seconds."""


@dataclass(frozen=True, kw_only=True)
class MigrateSettings:
    """What to move where.

    Attributes:
        source: the queues.
        target: the other cluster.
        checkpoint: where the query keeps its place.
        trigger_s: seconds from one micro-batch to the next; ``None`` takes what is there now and ends.
        queue_prefix: what to put before the names of queues at the target.
        accept_doubles: whether to go on although keys of an interrupted micro-batch may be forgotten.
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
        settings: what to do.
        watch: is called with the running query and returns when it has ended.

    Raises:
        PipelineError: the restart comes too late, see above.
        StreamingQueryException: the query failed. It can be restarted with the same checkpoint.
    """
    if not settings.accept_doubles:
        _check_in_time(spark, settings.checkpoint)

    source = settings.source
    writer = source.stream(spark).writeStream.queryName("migrate").option("checkpointLocation", settings.checkpoint)
    writer = writer.foreachBatch(
        paced(lambda batch, _number: _write(batch, settings), source.rate, source.messages_max)
    )
    run_stream(writer, settings.trigger_s, watch)


def _write(batch: DataFrame, settings: MigrateSettings) -> None:
    key = F.concat(F.lit(f"{query_id(batch)}:"), F.col("offset"))
    queue = F.concat(F.lit(settings.queue_prefix), F.col("queue"))
    messages = batch.select(key.alias("idempotency_key"), queue.alias("queue"), "value", "content_type", "offset")
    # One task for each queue keeps its order.
    in_order = messages.repartition("queue").sortWithinPartitions("queue", "offset")
    in_order.write.format("lmq").mode("append").options(**settings.target.options()).save()


def _check_in_time(spark: SparkSession, checkpoint: str) -> None:
    left = interrupted(spark, checkpoint)
    if left is None:
        return
    age_s = time.time() - left.planned_s
    if age_s > KEYS_S:
        raise PipelineError(
            f"the checkpoint {checkpoint} has an unfinished micro-batch, number {left.batch}, begun {age_s:.0f} s ago: what was"
            f" written of it would be written again, since the target knows keys for {KEYS_S:g} s only; compare the queues, then"
            " go on with --accept-doubles",
            BAD_DATA,
        )
