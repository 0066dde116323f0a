"""The columns that restore a message: everything that a push can set, as far as a read returns it."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  the common alias

from ...base.schema import WRITABLE_COLUMNS, Extras, read_schema

__all__ = ["PUSHED", "push_columns"]

PUSHED: Final = tuple(
    name for name in read_schema(Extras(attributes=True, delivery=True)).fieldNames() if name in WRITABLE_COLUMNS
)
"""The names of the columns."""


def push_columns(queue: Column) -> list[Column]:
    """Return the columns of rows that were read with attributes and delivery, with another queue."""
    # Most messages have no priority, and are cheaper without options.
    priority = F.when(F.col("priority") != 0, F.col("priority"))
    others = {"queue": queue, "priority": priority}
    return [others.get(name, F.col(name)).alias(name) for name in PUSHED]
