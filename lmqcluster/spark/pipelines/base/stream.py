"""Runs a streaming query to its end."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ...base.starting import start_query
from ...writing.pacing import Pace

__all__ = ["limit_rate", "run_stream"]


def run_stream(
    writer: DataStreamWriter, trigger_s: float | None, watch: Callable[[StreamingQuery], None]
) -> StreamingQuery:
    """Start a query, watch it, stop it.

    Args:
        writer: the query without its trigger.
        trigger_s: seconds between micro-batches; ``None`` processes the current messages and ends.
        watch: called with the running query; returns when it has ended.

    Raises:
        StreamingQueryException: the query failed. It can be restarted with the same checkpoint.
    """
    if trigger_s is None:
        triggered = writer.trigger(availableNow=True)
    else:
        triggered = writer.trigger(processingTime=f"{round(trigger_s * 1000)} milliseconds")
    query = start_query(triggered)
    try:
        watch(query)
    finally:
        query.stop()
    error = query.exception()
    if error is not None:
        raise error
    return query


def limit_rate(
    function: Callable[[DataFrame, int], None], rate: float | None, messages_max: int
) -> Callable[[DataFrame, int], None]:
    """Return a ``foreachBatch`` function that limits the rate of messages, counting every micro-batch as a full one."""
    if rate is None:
        return function
    pace = Pace(rate)

    def held_back(batch: DataFrame, number: int) -> None:
        pace.wait()
        pace.passed(messages_max)
        function(batch, number)

    return held_back
