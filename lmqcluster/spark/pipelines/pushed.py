"""The columns that bring a message back: all that a push can set, as far as a read shows it."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  what everybody calls it

from ..schema import WRITABLE_COLUMNS, Extras, read_schema

__all__ = ["PUSHED", "pushed"]

PUSHED: Final = tuple(
    name for name in read_schema(Extras(headers=True, delivery=True)).fieldNames() if name in WRITABLE_COLUMNS
)
"""Their names."""


def pushed(queue: Column) -> list[Column]:
    """Return the columns of rows that were read with headers and delivery, with another queue."""
    # Most messages have no priority, and cost less without options.
    priority = F.when(F.col("priority") != 0, F.col("priority"))
    others = {"queue": queue, "priority": priority}
    return [others.get(name, F.col(name)).alias(name) for name in PUSHED]
