"""Sends the node's log to `logging`, where pytest shows it with a failed test."""

from __future__ import annotations

import structlog

__all__ = ["log_through_logging"]


def log_through_logging() -> None:
    """Send structlog's events to `logging`, unless the program has configured structlog itself.

    By default structlog prints to standard output, which a test may inspect.
    """
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
