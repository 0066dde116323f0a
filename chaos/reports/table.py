"""The report as a table on a terminal, and as tab-separated lines in a pipe."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..drill import Result

__all__ = ["print_results", "print_rows"]

_STYLES = {"pass": "green", "fail": "bold red", "unknown": "yellow"}
_COLUMNS = (
    "Drill", "Seed", "Acknowledged", "Unknown", "Lost", "Phantom", "Doubled", "Pause", "In step", "Leaders", "Errors",
    "Verdict",
)  # fmt: skip
_LOG_LINES = 4


def print_results(console: Console, results: Sequence[Result]) -> None:
    """Print one line for each drill, then the reasons of those that did not pass."""
    print_rows(console, _COLUMNS, [_cells(result) for result in results], right=range(1, len(_COLUMNS) - 1))
    for result in results:
        style = _STYLES[result.verdict]
        for reason in result.reasons:
            first, *rest = reason.splitlines()
            console.print(f"{result.scenario.name} (seed {result.seed}): {first}", style=style, markup=False)
            for line in rest[-_LOG_LINES:]:
                console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
        if result.reasons:
            console.print(f"  history, logs and report: {result.folder}", markup=False, soft_wrap=True)


def print_rows(
    console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()
) -> None:
    """Print a table on a terminal, tab-separated lines elsewhere.

    Args:
        console: the output.
        columns: headings.
        rows: cells.
        right: indexes of right-aligned columns.
    """
    if not console.is_terminal:
        print(*("\t".join(row) for row in [columns, *rows]), sep="\n")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(columns):
        last = number == len(columns) - 1
        table.add_column(name, justify="right" if number in right else "left", no_wrap=not last)
    for row in rows:
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    console.print(table)


def _cells(result: Result) -> list[str]:
    totals, faults = result.judgement.totals, result.judgement.faults
    doubled = sum(count for name, count in faults.items() if name.startswith("doubled"))
    pauses = [window.pause_s for window in result.windows if window.pause_s is not None]
    steps = [window.in_step_s for window in result.windows if window.in_step_s is not None]
    figures = [totals.acknowledged, totals.unknown, faults["lost"], faults["phantom"], doubled]
    return [
        result.scenario.name,
        str(result.seed),
        *(f"{figure:,}" for figure in figures),
        *(f"{max(times):.2f} s" if times else "-" for times in (pauses, steps)),
        str(len(result.elections)),
        str(result.errors.total()),
        result.verdict,
    ]
