"""Running a streaming query to its end."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["run_stream"]


def run_stream(
    writer: DataStreamWriter, trigger_s: float | None, watch: Callable[[StreamingQuery], None]
) -> StreamingQuery:
    """Start a query, watch it, stop it.

    Args:
        writer: everything of the query but its trigger.
        trigger_s: seconds from one micro-batch to the next; ``None`` takes what is there now and ends.
        watch: is called with the running query and returns when it has ended.

    Raises:
        StreamingQueryException: the query failed. It can be restarted with the same checkpoint.
    """
    if trigger_s is None:
        triggered = writer.trigger(availableNow=True)
    else:
        triggered = writer.trigger(processingTime=f"{round(trigger_s * 1000)} milliseconds")
    query = triggered.start()
    try:
        watch(query)
    finally:
        query.stop()
    error = query.exception()
    if error is not None:
        raise error
    return query
