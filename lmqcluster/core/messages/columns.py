"""Messages as columns, the form used in snapshots and pages, because C code reads and writes a column.

    [[sequence], [due_us], [remaining], [[count, content type, attributes]], [content], [pushed_us], [delivered],
     [[count, traits or None, place in the group, time of the first delivery, whether it holds others of its group]]]

Content types, attributes and traits are run-length encoded. The content of a compound message is a list of [content
type, attributes, content]. A column with default values is empty: pushed_us if it equals due_us, delivered if it is 0,
traits if there are none. The place is 0 if it is the due time or there is no group.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from .message import Message, Meta, Part

__all__ = [
    "Columns",
    "as_bytes",
    "as_content",
    "as_ints",
    "columns_of",
    "expanded_metas",
    "messages_of",
    "meta_bytes",
    "meta_runs",
    "part_row",
    "set_columns",
]

Columns = list[Any]

_SEQUENCES = (list, tuple)
_ONLY_INTS = {int}
_ONLY_BYTES = {bytes}


def columns_of(messages: list[Message]) -> Columns:
    """Return the columns of messages without traits, none of which is leased."""
    due = [message.due_us for message in messages]
    pushed = [message.pushed_us for message in messages]
    delivered = [message.delivered for message in messages]
    contents: list[Any] = [message.content for message in messages]
    if set(map(type, contents)) != _ONLY_BYTES:
        contents = [one if isinstance(one, bytes) else [part_row(part) for part in one] for one in contents]
    return [
        [message.sequence for message in messages],
        due,
        [message.remaining for message in messages],
        meta_runs([message.meta for message in messages]),
        contents,
        [] if pushed == due else pushed,
        delivered if any(delivered) else [],
        [],
    ]


def messages_of(columns: Columns) -> list[Message]:
    """Return the messages that `columns_of` encoded.

    Raises:
        ValueError: the columns are malformed.
    """
    sequences, due, remaining, metas, contents, pushed, delivered, traits = columns
    lengths = {len(as_ints(sequences)), len(as_ints(due)), len(as_ints(remaining)), len(contents)}
    if lengths != {sum(run[0] for run in metas)} or traits:
        raise ValueError("the columns of a page differ in length, or its messages have traits")
    if set(map(type, contents)) != _ONLY_BYTES:
        contents = [as_content(content) for content in contents]
    messages = list(map(Message, sequences, due, remaining, expanded_metas(metas), contents))
    set_columns(messages, pushed, delivered)
    return messages


def set_columns(messages: list[Message], pushed: list[int], delivered: list[int]) -> None:
    """Set the fields whose columns may be empty.

    Raises:
        ValueError: the length of a column differs from the number of messages.
    """
    count = len(messages)
    if len(as_ints(pushed)) not in (0, count) or len(as_ints(delivered)) not in (0, count):
        raise ValueError("the columns of a slice differ in length")
    for message, pushed_us in zip(messages, pushed, strict=False):
        message.pushed_us = pushed_us
    for message, times in zip(messages, delivered, strict=False):
        message.delivered = times


def meta_runs(metas: list[Meta]) -> list[Any]:
    """Return content types and attributes, run-length encoded."""
    if metas.count(metas[0]) == len(metas):
        # Nearly always all are one tuple, which compares by identity.
        return [_meta_run(len(metas), metas[0])]
    return [_meta_run(len(list(run)), meta) for meta, run in groupby(metas)]


def _meta_run(count: int, meta: Meta) -> list[Any]:
    return [count, *meta]


def part_row(part: Part) -> list[Any]:
    """Return the row of a part of a compound message."""
    return list(part)


def meta_bytes(meta: Meta) -> int:
    """Return the bytes of content type and attributes."""
    content_type, attributes = meta
    return len(content_type or b"") + len(attributes)


def expanded_metas(runs: list[Any]) -> list[Meta]:
    """Expand the result of `meta_runs`; all messages of a run share one tuple."""
    metas: list[Meta] = []
    for count, content_type, attributes in runs:
        metas += [_meta(content_type, attributes)] * count
    return metas


def as_content(content: Any) -> bytes | list[Part]:
    """Return a body, or the parts of a compound message; raise ValueError if it is neither."""
    if type(content) is bytes:
        return content
    if type(content) not in _SEQUENCES:
        raise ValueError("a content is neither bytes nor parts")
    return [Part(*_meta(content_type, attributes), as_bytes(body)) for content_type, attributes, body in content]


def as_ints(column: list[int]) -> list[int]:
    """Return the column if it holds only integers; raise ValueError otherwise."""
    if type(column) not in _SEQUENCES or not set(map(type, column)) <= _ONLY_INTS:
        raise ValueError("a column of integers holds something else")
    return column


def as_bytes(value: bytes) -> bytes:
    """Return the value if it is bytes; raise ValueError otherwise."""
    if type(value) is not bytes:
        raise ValueError("bytes are expected")
    return value


def _meta(content_type: bytes | None, attributes: bytes) -> Meta:
    return None if content_type is None else as_bytes(content_type), as_bytes(attributes)
