"""``lmq-pipeline report``: statistics of queues from event journals."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from ..shared.errors import ExitCode, cannot_write
from ..shared.output import Column, print_json, print_table
from .run import PipelineCommand, Runner, check_paths, show_tasks

__all__ = ["report"]

_REPORT_COLUMNS: Final = [
    Column("Queue", "queue"),
    Column("Arrivals", "arrivals", right=True),
    Column("Deliveries", "deliveries", right=True),
    Column("Redelivered", "redeliveries", right=True),
    Column("Dropped", "drops", right=True),
    Column("Wait p50 s", "wait_p50_s", right=True),
    Column("p95", "wait_p95_s", right=True, rank=1),
    Column("p99", "wait_p99_s", right=True),
    Column("max", "wait_max_s", right=True, rank=2),
    Column("Per s", "arrivals_per_s", right=True, rank=2),
    Column("After nack", "after_nack", right=True, rank=3),
    Column("After lease", "after_lease", right=True, rank=3),
    Column("To ack p50 s", "ack_p50_s", right=True, rank=3),
    Column("p99", "ack_p99_s", right=True, rank=3),
]


@click.command(cls=PipelineCommand, short_help="Statistics of queues from the nodes' event journals.")
@click.argument("journals", metavar="PATH...", nargs=-1, required=True)
@click.option(
    "--html", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path), help="Also write a page with plots."
)
@click.option(
    "--queues", default=100, show_default=True, type=click.IntRange(1, 10_000), help="Maximum queues to list."
)
@click.option(
    "--lease",
    default=300.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Seconds without an ack after which a message's last delivery counts as a drop.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.pass_obj
def report(
    runner: Runner, journals: tuple[str, ...], html: Path | None, queues: int, lease: float, as_json: bool
) -> int:
    """Compute arrivals, waiting times, redeliveries and drops by queue.

    PATHs are the event journals of all nodes (option event_journal of a node): files, directories or globs.

    \b
    Example:
      lmq-pipeline report /var/lib/lmq/events --html report.html
    """
    check_paths(journals)
    with runner.session("report") as spark, show_tasks("report", spark):
        from lmqcluster.spark.pipelines.reports.report import ReportSettings  # noqa: PLC0415
        from lmqcluster.spark.pipelines.reports.report import report as run_report  # noqa: PLC0415

        found = run_report(spark, ReportSettings(journals=journals, queues_max=queues, lease_s=lease))
    if html is not None:
        _write_page(html, found)
    if as_json:
        print_json(found)
    else:
        rows = [_report_row(entry) for entry in [*found["queues"], {"queue": "(all)", **found["total"]}]]
        print_table(_REPORT_COLUMNS, rows)
    if found["span"]["unreadable_lines"]:
        click.echo(f"lmq-pipeline: {found['span']['unreadable_lines']:,} lines could not be read", err=True)
    return ExitCode.DONE


def _write_page(path: Path, found: dict[str, Any]) -> None:
    from lmqcluster.spark.pipelines.reports.report_page import report_page  # noqa: PLC0415

    try:
        path.write_text(report_page(found), encoding="utf-8")
    except OSError as exc:
        raise cannot_write(path, exc) from exc


def _report_row(entry: dict[str, Any]) -> list[object]:
    waiting, holding = entry["waiting_s"], entry["holding_s"]

    def quantile(values: dict[str, float] | None, name: str) -> str | None:
        return None if values is None else f"{values[name]:.6g}"

    rate = entry["arrivals_per_s"]
    return [
        *(entry[name] for name in ("queue", "arrivals", "deliveries", "redeliveries", "drops")),
        *(quantile(waiting, name) for name in ("p50", "p95", "p99", "max")),
        None if rate is None else f"{rate:.4g}",
        entry["redeliveries"] - entry["lease_ends"],
        entry["lease_ends"],
        *(quantile(holding, name) for name in ("p50", "p99")),
    ]
