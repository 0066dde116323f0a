"""Filters that a batch read applies itself: on the columns ``queue``, ``offset`` and ``timestamp``.

A filter is either applied exactly, or returned to Spark, which applies it to the remaining rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from .read_scope import Interval, ReadScope

__all__ = ["narrow_scope"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def narrow_scope(wanted: ReadScope, filters: Iterable[Filter]) -> tuple[ReadScope, list[Filter]]:
    """Return the read narrow_scope by all filters, and the filters that Spark still has to apply."""
    unsupported = []
    for one in filters:
        attribute = getattr(one, "attribute", None)
        narrow = None if attribute is None else _COLUMNS.get(attribute)
        narrower = None if narrow is None else narrow(wanted, one)
        if narrower is not None:
            wanted = narrower
        if narrower is None or (isinstance(one, In) and attribute != ("queue",)):
            unsupported.append(one)
    return wanted, unsupported


def _by_queue(wanted: ReadScope, one: Filter) -> ReadScope | None:
    if isinstance(one, IsNotNull):
        return wanted
    passes = _PASSES.get(type(one))
    if passes is None:
        return None
    value = getattr(one, "value", None)
    return replace(wanted, queues=tuple(name for name in wanted.queues if passes(name, value)))


def _by_offset(wanted: ReadScope, one: Filter) -> ReadScope | None:
    interval = _interval(one, lambda value: value if type(value) is int else None)
    return None if interval is None else replace(wanted, offsets=wanted.offsets.within(interval))


def _by_time(wanted: ReadScope, one: Filter) -> ReadScope | None:
    interval = _interval(one, _microseconds)
    return None if interval is None else replace(wanted, times_us=wanted.times_us.within(interval))


def _microseconds(value: object) -> int | None:
    # A time without a zone is in the session's zone, which is unknown here.
    return (value - _EPOCH) // _MICROSECOND if isinstance(value, datetime) and value.tzinfo is not None else None


def _interval(one: Filter, number_of: Callable[[Any], int | None]) -> Interval | None:
    """Return the smallest interval that contains everything that passes a filter; None if the filter has none."""
    if isinstance(one, IsNotNull):
        return Interval()
    value = getattr(one, "value", None)
    numbers = [number_of(item) for item in (value if isinstance(one, In) and isinstance(value, tuple) else (value,))]
    known = [number for number in numbers if number is not None]
    if not known or len(known) < len(numbers):
        return None
    first, last = min(known), max(known)
    kinds: dict[type[Filter], Interval] = {
        EqualTo: Interval(first, last + 1),
        In: Interval(first, last + 1),
        GreaterThan: Interval(first + 1, None),
        GreaterThanOrEqual: Interval(first, None),
        LessThan: Interval(None, last),
        LessThanOrEqual: Interval(None, last + 1),
    }
    return kinds.get(type(one))


_PASSES: Final[dict[type[Filter], Callable[[str, Any], bool]]] = {
    EqualTo: lambda name, value: name == value,
    In: lambda name, value: name in value,
    StringStartsWith: lambda name, value: name.startswith(value),
    StringEndsWith: lambda name, value: name.endswith(value),
    StringContains: lambda name, value: value in name,
}
_COLUMNS: Final[dict[tuple[str, ...], Callable[[ReadScope, Filter], ReadScope | None]]] = {
    ("queue",): _by_queue,
    ("offset",): _by_offset,
    ("timestamp",): _by_time,
}
"""None of these columns is ever null."""
