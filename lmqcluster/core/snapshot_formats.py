"""The formats of snapshots: the present one, and those before, which are read, and written for members with an older program.

A cluster at machine version 1 may have members that read format 4 only. So the format follows the machine version: whoever can
apply a cluster's log can read its snapshots. A later format is turned into the one before, and back, row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .expiry import NEVER

__all__ = ["FORMATS", "format_of", "from_format", "to_format"]

FORMATS = (4, 5, 6)
"""What this program reads: 4 belongs to machine version 1, 5 to version 2, 6 to version 3."""

_Row = list[Any]
_Convert = Callable[[_Row], _Row]
_COUNTERS_OF_5 = 9
_NEW_COUNTERS = [0, 0, 0, 0, 0]

# Format 4 knows neither owners nor digests of bodies, sessions of subscriptions, batches without a charge, nor when a
# queue's leases are looked at next and when it ends. Under machine version 1 there are none.
_5_TO_4: Mapping[str, _Convert] = {
    "header": lambda row: row[:10],
    "producers": lambda row: row[1:],
    "keys": lambda row: [row[0], *row[2:5]],
    "batches": lambda row: [row[0], *row[3:8], row[9]],
    "queue": lambda row: row[:6],
}
_4_TO_5: Mapping[str, _Convert] = {
    "header": lambda row: [*row, []],
    "producers": lambda row: [b"", *row],
    "keys": lambda row: [row[0], b"", *row[1:], b""],
    "batches": lambda row: [row[0], b"", 0, *row[1:6], 1, row[6]],
    "queue": lambda row: [*row, NEVER, b"", 0],
}

# Format 5 knows no messages with traits, nor when and how often messages were pushed and delivered, fewer counters, not how
# many queues were deleted, no principals, and no sessions, locks, and pushes that wait.
_6_TO_5: Mapping[str, _Convert] = {
    "header": lambda row: [*row[:9], row[9][:_COUNTERS_OF_5], row[10][:1]],
    "tokens": lambda row: row[:6],
    "queue": lambda row: [*row[:4], row[4][:_COUNTERS_OF_5], *row[5:9]],
    "ready": lambda row: row[:6],
    "delayed": lambda row: row[:6],
    "leased": lambda row: row[:8],
}
_5_TO_6: Mapping[str, _Convert] = {
    "header": lambda row: [*row[:9], [*row[9], *_NEW_COUNTERS], [*row[10], *[0] * (6 - len(row[10]))], []],
    "tokens": lambda row: [*row, row[0]],
    "queue": lambda row: [*row[:4], [*row[4], *_NEW_COUNTERS], *row[5:], 0, 0],
    "ready": lambda row: [*row, [], [], []],
    "delayed": lambda row: [*row, [], [], []],
    "leased": lambda row: [*row, [], [], []],
}


def format_of(machine_version: int) -> int:
    """The format in which the state of a machine of that version is written."""
    return FORMATS[min(machine_version, len(FORMATS)) - 1]


def to_format(version: int, kind: str, row: _Row) -> _Row:
    """A row, header or record of a queue of the present format in another one."""
    for earlier, table in ((5, _6_TO_5), (4, _5_TO_4)):
        if version <= earlier and kind in table:
            row = table[kind](row)
    return row


def from_format(version: int, kind: str, row: _Row) -> _Row:
    """A row, header or record of a queue of another format in the present one."""
    for later, table in ((5, _4_TO_5), (6, _5_TO_6)):
        if version < later and kind in table:
            row = table[kind](row)
    return row
