"""What commands print: tables for people, tab-separated lines for scripts, JSON unchanged as the node sent it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["Column", "human_bytes", "make_console", "print_json", "print_table"]

# Names come from anybody: control characters must neither break lines nor reach the terminal.
_ESCAPES: Final = {code: f"\\x{code:02x}" for code in (*range(32), 127)} | {
    ord("\\"): "\\\\",
    ord("\t"): "\\t",
    ord("\n"): "\\n",
    ord("\r"): "\\r",
}
GAP: Final = 2
_STYLES: Final = {"leader": "bold green", "follower": "green", "candidate": "yellow", "unreachable": "bold red"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        title: the heading for people.
        key: the name in the header line for scripts.
        right: whether it holds numbers.
        unit: ``bytes`` is shown to people as KiB, MiB, ...; scripts get the plain number.
        rank: 0 is always shown; where a terminal is too narrow, all columns of the highest rank go first.
    """

    title: str
    key: str
    right: bool = False
    unit: str = ""
    rank: int = 0


def print_json(value: Any) -> None:
    """One JSON document: indented on a terminal, one line otherwise."""
    print(json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None))


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[object]], *, empty: str = "") -> None:
    """A table on a terminal; otherwise tab-separated lines under a header line.

    Args:
        columns: what the rows hold.
        rows: one value for each column; ``None`` is shown as ``-``.
        empty: what to tell people instead of a table without rows.
    """
    lines = list(rows)
    if not sys.stdout.isatty():
        print("\t".join(column.key for column in columns))
        for row in lines:
            print("\t".join(_plain(value) for value in row))
        return
    console = make_console()
    if not lines and empty:
        console.print(empty)
        return
    cells = [[_cell(column, value) for column, value in zip(columns, row, strict=True)] for row in lines]
    kept = _fitting(columns, cells, console.width)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
    for place in kept:
        right = columns[place].right
        table.add_column(columns[place].title, justify="right" if right else "left", overflow="fold")
    for row_cells in cells:
        table.add_row(*(row_cells[place] for place in kept))
    console.print(table)
    if len(kept) < len(columns):
        left_out = ", ".join(column.title for place, column in enumerate(columns) if place not in kept)
        console.print(f"(A wider terminal also shows: {left_out}.)", style="dim")


def _fitting(columns: Sequence[Column], cells: Sequence[Sequence[Text]], width: int) -> list[int]:
    """Places of the columns to show: all if they fit, else without as many optional ones as it takes."""
    widths = [
        max([len(column.title), *(row[place].cell_len for row in cells)]) + GAP for place, column in enumerate(columns)
    ]
    kept = list(range(len(columns)))
    while sum(widths[place] for place in kept) - GAP > width:
        highest = max(columns[place].rank for place in kept)
        if highest == 0:
            break
        kept = [place for place in kept if columns[place].rank < highest]
    return kept


def make_console(*, stderr: bool = False) -> Console:
    """Where people read; without any styles if ``NO_COLOR`` is set."""
    return Console(stderr=stderr, highlight=False, color_system=None if os.environ.get("NO_COLOR") else "auto")


def human_bytes(count: float) -> str:
    """A size for people: ``312 B``, ``4.0 KiB``, ``1.5 MiB``."""
    units = ["GiB", "MiB", "KiB"]
    if count < 1024:
        return f"{count:.0f} B"
    count /= 1024
    while count >= 1024 and len(units) > 1:
        count /= 1024
        units.pop()
    return f"{count:.1f} {units[-1]}"


def _plain(value: object) -> str:
    return "-" if value is None else str(value).translate(_ESCAPES)


def _cell(column: Column, value: object) -> Text:
    if column.unit == "bytes" and isinstance(value, int):
        return Text(human_bytes(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return Text(f"{value:,}")
    text = _plain(value)
    return Text(text, style=_STYLES.get(text, ""))
