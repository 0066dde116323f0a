"""Logs failures of the commands that a node proposes for itself."""

from __future__ import annotations

from typing import Any, Final

from ...wire.errors import LmqError
from .proposer import PendingCommand

__all__ = ["log_failure"]

_EXPECTED: Final = ("no_leader", "shutting_down", "unknown_outcome")
"""No leader is logged elsewhere, and an outcome is unknown without one, or when the node stops."""


def log_failure(log: Any, event: str, pending: PendingCommand, error: LmqError) -> None:
    """Log that a command failed, which is a warning unless it is expected.

    Args:
        log: the logger.
        event: the text.
        pending: the command, which its sender repeats.
        error: why it failed.
    """
    report = log.debug if error.code in _EXPECTED else log.warning
    report(event, what=pending.command.op.name.lower(), reason=error.message)
