"""Tasks of the cluster that move the messages of a queue, such as dead letters, without further calls of a client.

A task moves messages to another queue, which must exist. Without one, each message goes back to the queue that it came from,
if the cluster has moved it; others stay. A rate is the maximum number of messages a second. A queue has at most one
running task: ``conflict`` may be the answer because of an earlier attempt.
"""

from __future__ import annotations

from typing import Any

from .transport.replies import mapping, name_text
from .transport.requests import Name, name_bytes

__all__ = ["move_task_options", "move_task_rows"]


def move_task_options(to: Name | None, rate: int | None) -> dict[str, Any]:
    """Return the options of a new task."""
    options: dict[str, Any] = {} if rate is None else {"rate": rate}
    return options if to is None else {**options, "to": name_bytes(to)}


def move_task_rows(rows: list[dict[bytes, Any]]) -> list[dict[str, Any]]:
    """Decode tasks."""
    return [_row(row) for row in rows]


def _row(row: dict[bytes, Any]) -> dict[str, Any]:
    """Decode a task; it has no destination if the client's token does not cover it."""
    if b"to" not in row:
        return mapping(row)
    to = row.pop(b"to")
    return {**mapping(row), "to": None if to is None else name_text(to)}
