"""Output of commands: tables for people, tab-separated or aligned lines for scripts, and the API's JSON unchanged."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Literal

import click

if TYPE_CHECKING:
    from rich.console import Console, JustifyMethod
    from rich.table import Table
    from rich.text import Text

__all__ = [
    "Column",
    "Form",
    "View",
    "human_bytes",
    "human_duration",
    "make_console",
    "plural",
    "print_json",
    "print_table",
    "table_of",
    "time_text",
]

# Names are arbitrary: control characters must neither break lines nor reach the terminal.
_ESCAPES: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {
    ord("\\"): "\\\\",
    ord("\t"): "\\t",
    ord("\n"): "\\n",
    ord("\r"): "\\r",
}
GAP: Final = 2
CUT_MIN: Final = 24
"""Width that a column always gets, if its texts are as long, before other columns are left out."""
CUT_MAX: Final = 1000
_JUSTIFY: Final[dict[bool, JustifyMethod]] = {False: "left", True: "right"}
_STYLES: Final = {
    "leader": "bold green",
    "follower": "green",
    "candidate": "yellow",
    "recovering": "yellow",
    "suspended": "yellow",
    "unreachable": "bold red",
    "PROBLEM": "bold red",
    "ATTENTION": "bold yellow",
}


class Form(StrEnum):
    """The output formats of a command."""

    TABLE = "table"
    JSON = "json"
    TSV = "tsv"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        title: the heading for people.
        key: the name in the header line for scripts.
        right: whether it is aligned right, as numbers are.
        unit: people see ``bytes`` as KiB, MiB, ... and ``seconds`` as hours, minutes and seconds; scripts get the
            number.
        rank: 0 is always shown; on a narrow terminal, all columns of the highest rank are left out first.
        digits: decimals of fractional numbers.
        extra: whether people see it only if they name it or sort by it; scripts always get it.
        cut: where a text that does not fit is truncated for people, if it is; scripts get all of it. A name keeps its
            beginning and its end, by which people tell names apart.
    """

    title: str
    key: str
    right: bool = False
    unit: str = ""
    rank: int = 0
    digits: int = 3
    cut: Literal["end", "middle"] | None = None
    extra: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """Selection, order and format of a table.

    Attributes:
        form: None for a table on a terminal and tab-separated lines elsewhere.
        columns: keys of the columns to print, in this order; empty for all.
        sort: key of the column to sort by, with a leading minus for descending order; empty to keep the order.
        headers: whether to print column names.
    """

    form: Form | None = None
    columns: tuple[str, ...] = ()
    sort: str = ""
    headers: bool = True

    @property
    def effective_form(self) -> Form:
        """Return the format to print in."""
        return self.form or (Form.TABLE if sys.stdout.isatty() else Form.TSV)

    def chosen(
        self, columns: Sequence[Column], rows: Iterable[Sequence[object]]
    ) -> tuple[list[Column], list[list[object]]]:
        """Return the selected columns and rows, sorted.

        Raises:
            click.UsageError: a named column does not exist.
        """
        places = {column.key: place for place, column in enumerate(columns)}
        wanted = [_place(places, key, "--columns") for key in self.columns] or self._usual(columns)
        lines = [list(row) for row in rows]
        if self.sort:
            by = _place(places, self.sort.removeprefix("-"), "--sort")
            lines = _sort(lines, by, descending=self.sort.startswith("-"))
        return [columns[place] for place in wanted], [[line[place] for place in wanted] for line in lines]

    def _usual(self, columns: Sequence[Column]) -> list[int]:
        is_for_people = self.effective_form is Form.TABLE
        by = self.sort.removeprefix("-")
        return [place for place, one in enumerate(columns) if not (one.extra and is_for_people and one.key != by)]


def _place(places: dict[str, int], key: str, option: str) -> int:
    if key not in places:
        raise click.UsageError(f"{option}: unknown column {key!r}; the columns are {', '.join(places)}")
    return places[key]


def _sort(lines: list[list[object]], by: int, *, descending: bool) -> list[list[object]]:
    def order(line: list[object]) -> tuple[int, float, str]:
        value = line[by]
        return (0, value, "") if isinstance(value, (int, float)) else (1, 0.0, str(value))

    known = [line for line in lines if line[by] is not None]
    return sorted(known, key=order, reverse=descending) + [line for line in lines if line[by] is None]


def print_json(value: Any, *, one_line: bool = False) -> None:
    """Print one JSON document, indented on a terminal, on one line otherwise."""
    print(json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() and not one_line else None))


def print_table(
    columns: Sequence[Column], rows: Iterable[Sequence[object]], *, empty: str = "", view: View | None = None
) -> None:
    """Print a table; by default a table for people on a terminal and tab-separated lines elsewhere.

    Args:
        columns: the columns of the rows.
        rows: one value for each column; ``None`` is printed as ``-``.
        empty: printed for people in place of a table without rows.
        view: format, selection and order.

    Raises:
        click.UsageError: the view names a column that does not exist.
    """
    view = view or View()
    shown, lines = view.chosen(columns, rows)
    if view.effective_form is Form.TABLE:
        _print_for_people(shown, lines, empty, view)
        return
    cells = [[_exact(column, value) for column, value in zip(shown, line, strict=True)] for line in lines]
    if view.headers:
        cells.insert(0, [column.key for column in shown])
    if view.effective_form is Form.PLAIN:
        cells = _align(shown, cells)
    gap = " " * GAP if view.effective_form is Form.PLAIN else "\t"
    for line in cells:
        print(gap.join(line).rstrip() if view.effective_form is Form.PLAIN else gap.join(line))


def _align(columns: Sequence[Column], cells: list[list[str]]) -> list[list[str]]:
    from rich.cells import cell_len  # noqa: PLC0415  imported only for tables

    widths = [max((cell_len(line[place]) for line in cells), default=0) for place in range(len(columns))]
    return [
        [
            " " * (width - cell_len(text)) + text if column.right else text + " " * (width - cell_len(text))
            for column, width, text in zip(columns, widths, line, strict=True)
        ]
        for line in cells
    ]


def _print_for_people(columns: Sequence[Column], lines: list[list[object]], empty: str, view: View) -> None:
    console = make_console()
    if not lines and empty:
        console.print(empty)
        return
    table, left_out = table_of(columns, lines, console.width, keep_all=bool(view.columns), headers=view.headers)
    console.print(table)
    if left_out:
        console.print(f"(Not shown on a terminal this narrow: {', '.join(left_out)}.)", style="dim")


def table_of(
    columns: Sequence[Column],
    lines: Sequence[Sequence[object]],
    width: int,
    *,
    keep_all: bool = False,
    headers: bool = True,
) -> tuple[Table, list[str]]:
    """Return a table for people that fits into `width`, and the titles of the columns left out.

    Args:
        columns: the columns of the lines.
        lines: one value for each column.
        width: width of the terminal, in cells.
        keep_all: leave no column out; fold long texts instead.
        headers: whether to print column names.
    """
    from rich.table import Table  # noqa: PLC0415  as above

    cells = [[_cell(column, value) for column, value in zip(columns, line, strict=True)] for line in lines]
    widths = [max([len(c.title), *(row[place].cell_len for row in cells)]) for place, c in enumerate(columns)]
    kept = list(range(len(columns))) if keep_all else _fitting(columns, widths, width)
    taken = sum(widths[place] + GAP for place in kept if not columns[place].cut)
    for place in kept:
        if columns[place].cut == "middle" and not keep_all:
            _abbreviate([row[place] for row in cells], max(CUT_MIN, width - taken))
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0), show_header=headers)
    for place in kept:
        column = columns[place]
        justify = _JUSTIFY[column.right]
        if column.cut is None:
            table.add_column(column.title, justify=justify, overflow="fold")
        else:
            most = max(CUT_MIN, width - taken)
            table.add_column(column.title, justify=justify, overflow="ellipsis", no_wrap=True, max_width=most)
    for row_cells in cells:
        table.add_row(*(row_cells[place] for place in kept))
    return table, [column.title for place, column in enumerate(columns) if place not in kept]


def _abbreviate(texts: Iterable[Text], width: int) -> None:
    """Replace the middle of texts that are wider than `width` cells by an ellipsis."""
    from rich.cells import set_cell_size  # noqa: PLC0415  as above

    for text in texts:
        if text.cell_len > width:
            whole, half = text.plain, (width - 1) // 2
            tail = set_cell_size(whole[::-1], half)[::-1]
            text.plain = f"{set_cell_size(whole, width - 1 - half)}…{tail}"


def _fitting(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """Return the indexes of the columns that fit: all, or without as many optional ones as necessary."""
    needed = [
        GAP + (min(widths[place], CUT_MIN) if column.cut else widths[place]) for place, column in enumerate(columns)
    ]
    kept = list(range(len(columns)))
    while sum(needed[place] for place in kept) - GAP > width:
        highest = max(columns[place].rank for place in kept)
        if highest == 0:
            break
        kept = [place for place in kept if columns[place].rank < highest]
    return kept


def make_console(*, stderr: bool = False) -> Console:
    """Return a console for people, without styles if ``NO_COLOR`` is set."""
    from rich.console import Console  # noqa: PLC0415  as above

    return Console(stderr=stderr, highlight=False, color_system=None if os.environ.get("NO_COLOR") else "auto")


def time_text(unix_s: float) -> str:
    """Return a time in UTC, to the second."""
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def plural(count: int, noun: str, nouns: str = "") -> str:
    """Return a count with its noun, for people: ``1 row``, ``2,000 rows``; `nouns` is an irregular plural."""
    return f"{count:,} {noun if count == 1 else nouns or f'{noun}s'}"


def human_bytes(count: float) -> str:
    """Return a size for people: ``312 B``, ``4.0 KiB``, ``1.5 MiB``."""
    units = ["GiB", "MiB", "KiB"]
    if count < 1024:
        return f"{count:.0f} B"
    count /= 1024
    while count >= 1024 and len(units) > 1:
        count /= 1024
        units.pop()
    return f"{count:.1f} {units[-1]}"


def human_duration(seconds: float) -> str:
    """Return a duration for people: ``0:00:09``, ``27:03:10``."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _exact(column: Column, value: object) -> str:
    if value is None:
        return "-"
    text = f"{value:.{column.digits}f}" if isinstance(value, float) else str(value)
    return text.translate(_ESCAPES)


def _cell(column: Column, value: object) -> Text:
    from rich.text import Text  # noqa: PLC0415  as above

    if column.unit == "bytes" and isinstance(value, int):
        return Text(human_bytes(value))
    if column.unit == "seconds" and isinstance(value, (int, float)):
        return Text(human_duration(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return Text(f"{value:,}")
    if isinstance(value, float):
        return Text(f"{value:,.{column.digits}f}")
    text = _exact(column, value)
    return Text(text[:CUT_MAX] if column.cut else text, style=_STYLES.get(text, ""))
