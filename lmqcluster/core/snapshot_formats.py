"""The formats of snapshots: the present one, and the one before, which is read, and written for members with an older program.

A cluster at machine version 1 may have members that read format 4 only. So the format follows the machine version: whoever can
apply a cluster's log can read its snapshots. A later format is turned into the earlier one, and back, row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .expiry import NEVER

__all__ = ["FORMATS", "format_of", "from_format", "to_format"]

FORMATS = (4, 5)
"""What this program reads. 4 belongs to machine version 1, 5 to version 2."""

_Row = list[Any]
_Convert = Callable[[_Row], _Row]

# Format 4 knows neither owners nor digests of bodies, sessions of subscriptions, batches without a charge, nor when a
# queue's leases are looked at next and when it ends. Under machine version 1 there are none.
_TO_4: Mapping[str, _Convert] = {
    "header": lambda row: row[:10],
    "producers": lambda row: row[1:],
    "keys": lambda row: [row[0], *row[2:5]],
    "scopes": lambda row: row[1:],
    "batches": lambda row: [row[0], *row[3:8], row[9]],
    "queue": lambda row: row[:6],
}
_FROM_4: Mapping[str, _Convert] = {
    "header": lambda row: [*row, []],
    "producers": lambda row: [b"", *row],
    "keys": lambda row: [row[0], b"", *row[1:], b""],
    "scopes": lambda row: [b"", *row],
    "batches": lambda row: [row[0], b"", 0, *row[1:6], 1, row[6]],
    "queue": lambda row: [*row, NEVER, b"", 0],
}


def format_of(machine_version: int) -> int:
    """The format in which the state of a machine of that version is written."""
    return 4 if machine_version < 2 else 5


def to_format(version: int, kind: str, row: _Row) -> _Row:
    """A row, header or queue record of the present format in another one."""
    convert = _TO_4.get(kind) if version == 4 else None
    return row if convert is None else convert(row)


def from_format(version: int, kind: str, row: _Row) -> _Row:
    """A row, header or queue record of another format in the present one."""
    convert = _FROM_4.get(kind) if version == 4 else None
    return row if convert is None else convert(row)
