"""Starting streaming queries on machines that are busy.

For each streaming query Spark starts a Python process that runs the reader, and gives it 10 seconds to import everything and to
connect back. That time cannot be set, and a busy machine may not keep it; then the query fails with "Python worker failed to
connect back". Nothing has happened by then, so that the query can simply be started again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["patiently", "start_query"]

logger = logging.getLogger("lmqcluster.spark")

_STARTS_MAX: Final = 10
_NOT_STARTED: Final = "Python worker failed to connect back"
_STARTING: Final = ("Initializing", "Getting offsets from Python")
_POLL_S: Final = 0.05


def start_query(writer: DataStreamWriter, *arguments: Any, **options: Any) -> StreamingQuery:
    """Start a query, again if Spark could not start its reader in time.

    Args:
        writer: everything of the query, its checkpoint included.
        arguments: as for ``writer.start``.
        options: likewise.

    Returns:
        The query, whose reader has started; or which has ended for another reason.
    """
    return patiently(lambda: writer.start(*arguments, **options))


def patiently(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """The same for whatever starts a query; it is called as often as it takes."""
    for number in range(1, _STARTS_MAX):
        query = start()
        if not _was_too_slow(query):
            return query
        logger.warning("Spark could not start the reader in time (start %d of %d)", number, _STARTS_MAX)
    return start()


def _was_too_slow(query: StreamingQuery) -> bool:
    clock = threading.Event()
    while query.isActive and query.lastProgress is None and query.status["message"].startswith(_STARTING):
        clock.wait(_POLL_S)
    error = query.exception()
    return error is not None and _NOT_STARTED in str(error)
