"""Read-only commands: each prints one report in any format, once or repeatedly (``--watch``)."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from lmqcluster.wire.errors import LmqError

from ..errors import CliError, ExitCode, error_line, exit_code_of
from ..output import Column, Form, View, make_console, print_json, print_table
from ..stale import take_stale
from .target import Target, target_options

__all__ = ["Report", "form_option", "is_temporary", "print_report", "reads", "view_of", "view_options"]

WATCH_S_MIN: Final = 0.1
_CLEAR: Final = "\x1b[H\x1b[2J\x1b[3J"
# Errors of a cluster in trouble. ``--watch`` continues, because that is when people watch.
_PASSING: Final = (ExitCode.UNAVAILABLE, ExitCode.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a command.

    Attributes:
        value: the value that ``--json`` prints; the API's answer unchanged where there is one.
        columns: the columns of its table.
        rows: the rows of its table.
        empty: printed for people in place of a table without rows.
        heading: a line above the table, for people only.
        remark: a line below the table, for people only.
        failure: an error in the result; raised after everything is printed.
        exit_code: the exit status.
        text: lines to print verbatim in place of all this.
        is_sorted: whether the node has already sorted by ``--sort``.
    """

    value: Any
    columns: Sequence[Column]
    rows: Sequence[Sequence[object]]
    empty: str = ""
    heading: str = ""
    remark: str = ""
    failure: CliError | None = None
    exit_code: int = ExitCode.DONE
    text: str | None = None
    is_sorted: bool = False


def print_report(report: Report, view: View, *, one_line: bool = False) -> None:
    """Print a report in the format of the view.

    Raises:
        click.UsageError: the view does not apply to the report.
    """
    if report.text is not None:
        print(report.text)
        return
    if report.is_sorted:
        view = replace(view, sort="")
    form = view.effective_form
    if form is Form.JSON:
        if view.columns or view.sort or not view.headers:
            raise click.UsageError(
                "--columns, --sort and --no-headers apply to tables and lines; JSON is the API's answer unchanged"
            )
        print_json(report.value, one_line=one_line)
        return
    for_people = form is Form.TABLE
    if for_people and report.heading:
        make_console().print(report.heading, soft_wrap=True, markup=False)
    print_table(report.columns, report.rows, empty=report.empty, view=view)
    if for_people and report.remark:
        make_console().print(report.remark, markup=False)


def form_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--output``; the function gets it as `form`."""
    text = "Output format. [default: table on a terminal, else tsv]"
    return click.option("-o", "--output", "form", type=click.Choice([form.value for form in Form]), help=text)(function)


def view_options(columns: Sequence[Column]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add ``--output``, ``--columns``, ``--sort`` and ``--no-headers``; the function gets them as `view`.

    Args:
        columns: the table's columns, for completion in the shell.
    """
    keys = [column.key for column in columns]

    def complete(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        # Completes the last item of a list. click treats a word that begins with a dash as an option, so it never
        # arrives here.
        done, comma, last = incomplete.rpartition(",")
        return [CompletionItem(f"{done}{comma}{key}") for key in keys if key.startswith(last)]

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        @form_option
        @click.option(
            "--columns",
            "chosen",
            metavar="KEY,...",
            shell_complete=complete,
            help="Columns to print, by their names in the header line of tsv.",
        )
        @click.option(
            "--sort",
            metavar="KEY",
            default="",
            shell_complete=complete,
            help="Column to sort by; -KEY for descending order.",
        )
        @click.option("--no-headers", is_flag=True, help="Omit the header line.")
        @functools.wraps(function)
        def wrapper(form: str | None, chosen: str | None, sort: str, no_headers: bool, **arguments: Any) -> Any:
            wanted = tuple(key.strip() for key in (chosen or "").split(",") if key.strip())
            view = View(Form(form) if form else None, wanted, sort, headers=not no_headers)
            return function(view=view, **arguments)

        return wrapper

    return add


def reads(columns: Sequence[Column]) -> Callable[[Callable[..., Report]], Callable[..., Any]]:
    """Turn a function that returns a report into one that prints it, with the options of every read-only command.

    The function is called with the target and its own options; with ``--watch``, repeatedly until Ctrl-C.

    Args:
        columns: the columns of the report's table.
    """

    def add(function: Callable[..., Report]) -> Callable[..., Any]:
        @click.option(
            "--watch",
            metavar="SECONDS",
            type=click.FloatRange(WATCH_S_MIN),
            help="Repeat at this interval until Ctrl-C; JSON is one object a line.",
        )
        @view_options(columns)
        @target_options
        @functools.wraps(function)
        def wrapper(target: Target, view: View, watch: float | None, **arguments: Any) -> int:
            if click.get_current_context().invoked_subcommand is not None:
                # A group that also prints a report leaves the work to its subcommand.
                return ExitCode.DONE
            view = target.view = view_of(target, view)

            def look() -> Report:
                return function(target, **arguments)

            if watch is not None:
                return _watch(look, view, watch)
            report = look()
            print_report(report, view)
            if report.failure is not None:
                raise report.failure
            return report.exit_code

        return wrapper

    return add


def view_of(target: Target, view: View) -> View:
    """Return a command's view, with the format given before the command if none follows it.

    Raises:
        click.UsageError: two formats were given.
    """
    if view.form is None:
        return replace(view, form=target.form)
    if target.json_here and view.form is not Form.JSON:
        raise click.UsageError(f"--json and --output {view.form} exclude each other")
    return view


def _watch(look: Callable[[], Report], view: View, interval_s: float) -> int:
    """Print the report repeatedly until Ctrl-C, which is the regular end."""
    blocks = 0
    trouble: CliError | LmqError | str | None
    try:
        while True:
            trouble, report = _one_look(look)
            warning = take_stale()
            if view.effective_form is Form.TABLE and sys.stdout.isatty():
                now = time.strftime("%H:%M:%S")
                print(f"{_CLEAR}Every {interval_s:g} s, now {now}. Ctrl-C to stop.\n")
            elif blocks and report is not None and view.effective_form is not Form.JSON:
                print()
            if report is not None:
                print_report(report, view, one_line=True)
                trouble, blocks = report.failure or warning, blocks + 1
            sys.stdout.flush()
            if trouble is not None:
                click.echo(error_line("lmq-admin", trouble), err=True)
            time.sleep(interval_s)
    except KeyboardInterrupt:
        return ExitCode.DONE


def is_temporary(error: CliError | LmqError) -> bool:
    """Return whether the error is temporary trouble of the cluster, so that the watch continues."""
    return (exit_code_of(error) if isinstance(error, LmqError) else error.exit_code) in _PASSING


def _one_look(look: Callable[[], Report]) -> tuple[CliError | LmqError | None, Report | None]:
    try:
        return None, look()
    except (CliError, LmqError) as exc:
        if not is_temporary(exc):
            raise
        return exc, None
