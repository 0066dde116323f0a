"""Checks of the fields of commands, which a node of any version may have written."""

from __future__ import annotations

from typing import Any

from ..log.items import Item, checked_item
from ..queue.options import TIME_US_MAX
from ..routing.admission import PLAIN_PUSH, Push

__all__ = [
    "STEP_MAX",
    "Row",
    "check_limit",
    "checked_push",
    "checked_row",
    "checked_rows",
    "checked_text",
    "checked_time",
]

STEP_MAX = 10_000
"""Most messages that one command removes or moves, which bounds its time."""
_TEXT_BYTES_MAX = 255

Row = tuple[Item, Push]
"""A message to store, and how."""


def check_limit(limit: int) -> None:
    """Raise ValueError unless a command may remove or move this number of messages."""
    if type(limit) is not int or not 0 < limit <= STEP_MAX:
        raise ValueError(f"a limit must be an integer from 1 to {STEP_MAX}")


def checked_time(time_us: Any) -> int:
    """Return a time of a command.

    Raises:
        ValueError: it is no integer, negative, or out of range.
    """
    if type(time_us) is not int or not 0 <= time_us <= TIME_US_MAX:
        raise ValueError("a time must be an integer, 0 or more")
    return time_us


def checked_text(text: Any) -> bytes:
    """Return a label, a group or the name of a queue.

    Raises:
        ValueError: it is not bytes, or too long.
    """
    if type(text) is not bytes or len(text) > _TEXT_BYTES_MAX:
        raise ValueError(f"a label, a group or the name of a queue must have at most {_TEXT_BYTES_MAX} bytes")
    return text


def checked_rows(rows: Any) -> list[Row]:
    """Return the rows of a `PushRows`.

    Raises:
        ValueError: one is malformed.
    """
    push = PLAIN_PUSH
    checked: list[Row] = []
    for row in rows:
        if isinstance(row, bytes):
            checked.append((Item(row), push))
        else:
            item, push = checked_row(row)
            checked.append((item, push))
    return checked


def checked_row(row: list[Any]) -> Row:
    """Return a row of a `PushRows` that is no bare body.

    Raises:
        ValueError: it is malformed.
    """
    content, content_type, attributes, key, options, *headers = row
    item = checked_item(content, content_type, attributes, key, *headers)
    return item, checked_push(options) if options else PLAIN_PUSH


def checked_push(row: list[Any]) -> Push:
    """Return the options of a message in a command.

    Raises:
        ValueError: they are malformed.
    """
    if not row:
        return PLAIN_PUSH
    delay_us, due_us, ttl_us, priority, label, group = row
    if type(delay_us) is not int or not -1 <= delay_us <= TIME_US_MAX:
        raise ValueError("a delay must be an integer, -1 or more")
    if type(priority) is not int or not -(1 << 31) <= priority < 1 << 31:
        raise ValueError("a priority must be an integer of 32 bits")
    return Push(
        delay_us, checked_time(due_us), checked_time(ttl_us), priority, checked_text(label), checked_text(group)
    )
