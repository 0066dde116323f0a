"""Options of written rows: columns of the row, or else, for delivery options, options of the write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]

from lmqcluster.client import PushOptions
from lmqcluster.wire.attributes import pack_attributes

from .attributes import column_attributes
from .option_reader import OptionReader
from .texts import message_text

__all__ = ["DELIVERY_COLUMNS", "constant_options", "packed_attributes", "row_options"]

DELIVERY_COLUMNS: Final = ("priority", "delay", "due", "ttl", "group", "label")
_PRIORITY_MAX: Final = (1 << 31) - 1
_SECONDS_MAX: Final = 1_000_000_000


def constant_options(given: OptionReader) -> PushOptions:
    """Return the delivery options that a write sets for all its rows.

    Raises:
        OptionError: one is out of range.
    """
    options: PushOptions = {}
    if given.text("priority") is not None:
        options["priority"] = given.integer("priority", -_PRIORITY_MAX - 1, _PRIORITY_MAX, default=0)
    if given.text("delay") is not None:
        options["delay"] = given.seconds("delay", _SECONDS_MAX, default=0)
    if given.text("ttl") is not None:
        options["ttl"] = given.seconds("ttl", _SECONDS_MAX, default=0)
    if (group := given.name("group")) is not None:
        options["group"] = group
    if (label := given.name("label")) is not None:
        options["label"] = label
    return options


def row_options(batch: pa.RecordBatch, constants: PushOptions) -> list[PushOptions | None] | None:
    """Return the options of each row; None if all rows are without. A column applies where it is not null.

    Raises:
        SchemaError: a message cannot have the attributes of a row.
    """
    names = [name for name in DELIVERY_COLUMNS if name in batch.schema.names]
    columns: list[Sequence[Any]] = [_values(name, batch.column(name)) for name in names]
    if "attributes" in batch.schema.names:
        names.append("attributes")
        columns.append(column_attributes(batch))
    if not names:
        return [constants] * batch.num_rows if constants else None
    return [_of_row(names, values, constants) for values in zip(*columns, strict=True)]


def _values(name: str, column: Any) -> list[Any]:
    if name == "due" and pa.types.is_timestamp(column.type):
        microseconds = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        return [None if value is None else value / 1e6 for value in microseconds.to_pylist()]
    values: list[Any] = column.to_pylist()
    return [message_text(value) if isinstance(value, str) else value for value in values]


def _of_row(names: list[str], values: tuple[Any, ...], constants: PushOptions) -> PushOptions | None:
    own = {name: value for name, value in zip(names, values, strict=True) if value is not None}
    options: dict[str, Any] = {**constants, **own}
    if "due" in own and "delay" not in own:
        options.pop("delay", None)
    return options or None  # type: ignore[return-value]


def packed_attributes(options: PushOptions | None) -> bytes:
    """Return the attributes of a row as a message stores them, in which equal ones have equal bytes."""
    return b"" if options is None else pack_attributes(options.get("attributes"))
