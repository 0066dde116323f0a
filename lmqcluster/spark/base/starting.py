"""Starts streaming queries on busy machines.

For each streaming query, Spark starts a Python process for the reader, and gives it 10 seconds to import everything and
to connect back. This timeout is fixed, and a busy machine may exceed it; then the query fails with "Python worker
failed to connect back". At that point nothing has happened, so the query can be started again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["retry_start", "start_query"]

logger = logging.getLogger("lmqcluster.spark")

_STARTS_MAX: Final = 10
_NOT_STARTED: Final = "Python worker failed to connect back"
_STARTING: Final = ("Initializing", "Getting offsets from Python")
_POLL_S: Final = 0.05


def start_query(writer: DataStreamWriter, *arguments: Any, **options: Any) -> StreamingQuery:
    """Start a query, and retry if Spark could not start its reader in time.

    Args:
        writer: the complete query, including its checkpoint.
        arguments: for ``writer.start``.
        options: for ``writer.start``.

    Returns:
        The query, whose reader has started; or which has ended for another reason.
    """
    return retry_start(lambda: writer.start(*arguments, **options))


def retry_start(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query with `start`, and retry if Spark could not start its reader in time."""
    for number in range(1, _STARTS_MAX):
        query = start()
        if not _was_too_slow(query):
            return query
        logger.warning("reader start timed out (attempt %d of %d)", number, _STARTS_MAX)
    return start()


def _was_too_slow(query: StreamingQuery) -> bool:
    clock = threading.Event()
    while query.isActive and query.lastProgress is None and query.status["message"].startswith(_STARTING):
        clock.wait(_POLL_S)
    error = query.exception()
    return error is not None and _NOT_STARTED in str(error)
