"""``lmq-admin replay``: pushes the rows of a file into queues."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from typing import Final

import click

from ...shared.connection.credentials import complete_file
from ...shared.connection.target import Target, complete_queue, target_options
from ...shared.errors import CliError, ExitCode
from ...shared.interrupt import run_until_interrupted
from ...shared.output import human_bytes, plural, print_json
from .bulk import clients_of, nodes_option, patience_option, print_counts, progress_line, rpc_addresses
from .drained_rows import drained_rows
from .queue_template import QueueTemplate
from .row_pusher import Replay, ReplayReport
from .row_source import FORMATS, RowSource, open_source
from .rows import BadRow, Row, csv_rows, json_rows

__all__ = ["replay"]

BAD_ROWS_SHOWN: Final = 10
OTHER_QUEUES: Final = "(further queues)"


@click.command(short_help="Push the rows of a file into queues.")
@click.argument("file", metavar="FILE", shell_complete=complete_file)
@click.option("--queue-by", metavar="COLUMN", help="Use the value of this column as the queue of a row.")
@click.option("--queue-prefix", metavar="TEXT", help="Prefix that --queue-by adds to the value.")
@click.option(
    "--queue",
    "template",
    metavar="TEMPLATE",
    shell_complete=complete_queue,
    help="Template of queue names, such as 'flights.{origin}'.",
)
@nodes_option
@click.option("--format", "form", type=click.Choice(FORMATS), help="Format of the rows. [default: by the file's name]")
@click.option(
    "--drained",
    is_flag=True,
    help="FILE has lines of `lmq-admin drain`: push their messages, by default to the queues that were drained.",
)
@click.option("--skip-bad", is_flag=True, help="Count and skip bad rows, instead of stopping at the first.")
@patience_option
@target_options
def replay(
    target: Target,
    file: str,
    queue_by: str | None,
    queue_prefix: str | None,
    template: str | None,
    nodes: str | None,
    form: str | None,
    drained: bool,
    skip_bad: bool,
    patience: float,
) -> int:
    """Push the rows of a CSV, TSV or JSON-lines FILE into queues, one message a row.

    FILE may be compressed (.gz, or .zip with one member), or - for standard input. A row of CSV becomes a JSON object
    of its columns; a JSON line is pushed unchanged. Rows of one queue keep their order, and each row is stored exactly
    once, even if a node fails. Ctrl-C stops between rows and reports the progress.

    With --drained, each message gets the content, content type, attributes, priority, label and group that `lmq-admin
    drain` wrote. The parts of a compound message become separate messages.

    \b
    Example:
      lmq-admin replay rows.csv --queue orders
    """
    names = _queue_template(queue_by, queue_prefix, template, drained=drained)
    with open_source(file, "jsonl" if drained else form) as source:
        addresses = rpc_addresses(target, nodes)
        rows = drained_rows(source.stream, names) if names is None or drained else _rows(source, names)
        run = _Run(source, rows, skip_bad=skip_bad, patience_s=patience)
        with progress_line("replay", source.bytes_total) as run.show:
            run_until_interrupted(lambda stop: run.push(addresses, stop))
    _print_report(target, run.report, len(addresses))
    if run.trouble is not None:
        text = f"{file}: {run.trouble}; {plural(run.report.rows, 'row')} acknowledged"
        raise CliError(text, run.trouble.exit_code)
    if run.interrupted:
        done = f"{plural(run.report.rows, 'row')} up to line {run.report.last_line:,}"
        text = f"interrupted: all {done} are acknowledged, none after it"
        raise CliError(text, ExitCode.INTERRUPTED)
    return ExitCode.DONE


class _Run:
    """One run of the command, between its options and `Replay`."""

    def __init__(self, source: RowSource, rows: Iterator[Row | BadRow], *, skip_bad: bool, patience_s: float) -> None:
        self._source = source
        self._rows = rows
        self._skip_bad = skip_bad
        self._patience_s = patience_s
        self.show: Callable[[int, int], None] = lambda _messages, _position: None
        self.report = ReplayReport()
        self.trouble: CliError | None = None
        self.interrupted = False

    async def push(self, addresses: list[str], stop: asyncio.Event) -> None:
        """Push everything; afterwards the outcome is in the attributes."""
        async with clients_of(addresses, self._patience_s) as clients:
            work = Replay(
                clients,
                on_progress=lambda report: self.show(report.rows, self._source.position()),
                on_bad=self._print_bad_row if self._skip_bad else None,
            )
            self.report = work.report
            try:
                await work.run(self._rows, stop)
            except CliError as exc:
                self.trouble = exc
        self.interrupted = stop.is_set()

    def _print_bad_row(self, row: BadRow) -> None:
        if self.report.bad <= BAD_ROWS_SHOWN:
            more = " (further bad rows are only counted)" if self.report.bad == BAD_ROWS_SHOWN else ""
            click.echo(f"lmq-admin: line {row.line}: {row.reason}; skipped{more}", err=True)


def _queue_template(
    queue_by: str | None, queue_prefix: str | None, template: str | None, *, drained: bool
) -> QueueTemplate | None:
    if drained and queue_by is template is queue_prefix is None:
        return None
    if (queue_by is None) == (template is None):
        raise click.UsageError("pass either --queue-by COLUMN or --queue TEMPLATE")
    if queue_by is not None:
        return QueueTemplate.by_column(queue_by, queue_prefix or "")
    if queue_prefix is not None:
        raise click.UsageError("--queue-prefix applies to --queue-by; write the prefix into the template")
    try:
        return QueueTemplate.parse(template or "")
    except ValueError as exc:
        raise click.UsageError(f"the queue template {template!r} is malformed: {exc}") from exc


def _rows(source: RowSource, template: QueueTemplate) -> Iterator[Row | BadRow]:
    if source.form == "jsonl":
        return json_rows(source.stream, template)
    return csv_rows(source.stream, template, "\t" if source.form == "tsv" else ",")


def _print_report(target: Target, report: ReplayReport, nodes: int) -> None:
    counts = {
        OTHER_QUEUES if name is None else name.decode(errors="replace"): count for name, count in report.queues.items()
    }
    if target.as_json:
        print_json({"rows": report.rows, "bytes": report.content_bytes, "bad_rows": report.bad, "queues": counts})
        return
    if sys.stdout.isatty():
        bad = f", {report.bad:,} bad rows skipped" if report.bad else ""
        through = f"through {nodes} nodes" if nodes > 1 else "through one node"
        print(f"{plural(report.rows, 'row')} ({human_bytes(report.content_bytes)}) acknowledged {through}{bad}.")
    print_counts(counts, target.form)
    if report.bad and not sys.stdout.isatty():
        click.echo(f"lmq-admin: {report.bad:,} bad rows skipped", err=True)
