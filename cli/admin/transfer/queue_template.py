"""Queues named after columns of a row: ``flights.{origin}``."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import Final

from lmqcluster.wire.limits import NAME_BYTES_MAX

__all__ = ["QueueTemplate"]

_NAMES_CACHED_MAX: Final = 10_000


class QueueTemplate:
    """Builds a queue name from the values of columns.

    Attributes:
        columns: the columns whose values `name` takes, in this order.
    """

    def __init__(self, parts: Sequence[tuple[str, str | None]]) -> None:
        """Take pairs of a literal text and the column whose value follows it; ``None`` for no column."""
        self._parts = parts
        self.columns = [column for _, column in parts if column is not None]
        self._names: dict[tuple[str, ...], bytes] = {}

    @classmethod
    def parse(cls, template: str) -> QueueTemplate:
        """Parse a template such as ``flights.{origin}``; doubled braces are literal.

        Raises:
            ValueError: the template is malformed.
        """
        parts: list[tuple[str, str | None]] = []
        for literal, column, spec, conversion in string.Formatter().parse(template):
            if column is not None and (not column or spec or conversion):
                raise ValueError("write a column as {name}")
            parts.append((literal, column))
        return cls(parts)

    @classmethod
    def by_column(cls, column: str, prefix: str = "") -> QueueTemplate:
        """Return a template of a fixed prefix and the value of one column."""
        return cls([(prefix, column)])

    def name(self, values: tuple[str, ...]) -> bytes:
        """Return the queue for these values of `columns`.

        Raises:
            ValueError: a value is empty, or the result is not a valid queue name.
        """
        known = self._names.get(values)
        if known is not None:
            return known
        name = self._build(values)
        if len(self._names) < _NAMES_CACHED_MAX:
            self._names[values] = name
        return name

    def name_of(self, record: Mapping[str, object]) -> bytes:
        """Return the queue for a JSON object with the columns.

        Raises:
            ValueError: a column is missing or neither a string nor a number, or the result is not a valid queue name.
        """
        return self.name(tuple([_column(record, column) for column in self.columns]))

    def _build(self, values: tuple[str, ...]) -> bytes:
        for column, value in zip(self.columns, values, strict=True):
            if not value:
                raise ValueError(f"column {column!r} is empty, so the queue has no name")
        rest = iter(values)
        text = "".join(literal if column is None else literal + next(rest) for literal, column in self._parts)
        if any(c < " " or c == "\x7f" for c in text):
            raise ValueError(f"the queue name {text!r} contains control characters")
        name = text.encode()
        if not 1 <= len(name) <= NAME_BYTES_MAX:
            raise ValueError(f"the queue name has {len(name)} bytes; it must have 1 to {NAME_BYTES_MAX}")
        return name


def _column(record: Mapping[str, object], column: str) -> str:
    value = record.get(column)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    what = "is missing" if column not in record else f"is {type(value).__name__}, not a string or number"
    raise ValueError(f"column {column!r} {what}")
