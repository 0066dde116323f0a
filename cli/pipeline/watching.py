"""``lmq-pipeline watch``: live statistics of queues."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ..shared.errors import CliError, ExitCode
from ..shared.output import Column, print_table
from .run import PipelineCommand, Runner, StreamOutcome, check_paths, watch_query

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["watch"]

_ALERTED: Final = 1
_COLUMNS: Final = [
    Column("Window", "window"),
    Column("Queue", "queue"),
    Column("Open", "open", right=True),
    Column("Arrivals", "arrivals", right=True),
    Column("Deliveries", "deliveries", right=True),
    Column("Redelivered", "redeliveries", right=True),
    Column("Dropped", "drops", right=True),
    Column("Wait p50 s", "wait_p50_s", right=True),
    Column("p99", "wait_p99_s", right=True),
    Column("max", "wait_max_s", right=True, rank=1),
]
_PER_RUN: Final = click.FloatRange(0, min_open=True)


@click.command(cls=PipelineCommand, short_help="Show live backlog and latency, with alerts.")
@click.argument("journal", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--checkpoint", required=True, metavar="DIR", help="Directory of the query's checkpoint and state.")
@click.option("--output", metavar="DIR", help="Also write all rows to a Parquet table.")
@click.option("--once", is_flag=True, help="Process the current events and end, instead of running until Ctrl-C.")
@click.option(
    "--trigger", default=10.0, show_default=True, type=click.FloatRange(0), help="Seconds between micro-batches."
)
@click.option(
    "--window", default=60, show_default=True, type=click.IntRange(1, 86_400), help="Length of a window in seconds."
)
@click.option(
    "--delay",
    default=30.0,
    show_default=True,
    type=click.FloatRange(0, 86_400),
    help="Maximum seconds by which the journal of one node lags behind another.",
)
@click.option(
    "--lease",
    default=300.0,
    show_default=True,
    type=click.FloatRange(0, 30 * 86_400),
    help="Seconds without an ack after which a message's last delivery counts as a drop.",
)
@click.option(
    "--alert-open", metavar="N", type=click.IntRange(0), help="Alert above this number of messages in a queue."
)
@click.option("--alert-wait", metavar="SECONDS", type=_PER_RUN, help="Alert if one message of 100 waited longer.")
@click.option(
    "--alert-redelivered", metavar="SHARE", type=click.FloatRange(0, 1), help="Alert above this share of redeliveries."
)
@click.option("--alert-drops", metavar="N", type=click.IntRange(0), help="Alert above this number of dropped messages.")
@click.option("--json", "as_json", is_flag=True, help="Print each row as a line of JSON.")
@click.pass_obj
def watch(
    runner: Runner,
    journal: Path,
    checkpoint: str,
    output: str | None,
    once: bool,
    trigger: float,
    window: int,
    delay: float,
    lease: float,
    alert_open: int | None,
    alert_wait: float | None,
    alert_redelivered: float | None,
    alert_drops: int | None,
    as_json: bool,
) -> int:
    """Show arrivals, waiting times, redeliveries, drops and open messages, by queue and window, from the event journals
    in DIR.

    The statistics are those of report. A window is shown once, when the journals continue past its end. Alerts are
    lines on standard error. The command reads the journals of all nodes that write to DIR, while they are written, and
    continues from its checkpoint.

    \b
    Additional exit codes:
        1  with --once: there was an alert

    \b
    Example:
      lmq-pipeline watch /var/lib/lmq/events --checkpoint /data/watch --alert-open 10000 --alert-wait 60
    """
    check_paths([str(journal)])
    outcome = StreamOutcome()
    shown = _RowPrinter(as_json=as_json)
    with runner.session("watch") as spark:
        from lmqcluster.spark.pipelines.reports import watch as pipeline  # noqa: PLC0415

        settings = pipeline.WatchSettings(
            journal=str(journal.resolve()),
            checkpoint=checkpoint,
            output=output,
            window_s=window,
            delay_s=delay,
            lease_s=lease,
            trigger_s=None if once else trigger,
            thresholds=pipeline.Thresholds(
                open=alert_open, wait_p99_s=alert_wait, redelivered_share=alert_redelivered, drops=alert_drops
            ),
        )
        wait: Callable[[Any], None] = watch_query("watch", outcome)
        pipeline.watch(spark, settings, shown, wait)
    if once and outcome.stopped:
        raise CliError("interrupted; run the same command again to continue", ExitCode.INTERRUPTED)
    return _ALERTED if once and shown.alerts else ExitCode.DONE


class _RowPrinter:
    """Prints the rows of each micro-batch.

    Attributes:
        alerts: number of alerts.
    """

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self.alerts = 0

    def __call__(self, rows: list[dict[str, Any]]) -> None:
        plain = [{**row, "window": row["window"].strftime("%Y-%m-%dT%H:%M:%SZ")} for row in rows]
        if self._as_json:
            for row in plain:
                click.echo(json.dumps(row))
        elif plain:
            print_table(_COLUMNS, [[_cell(row[column.key]) for column in _COLUMNS] for row in plain])
        for row in plain:
            for alert in row["alerts"]:
                self.alerts += 1
                click.echo(f"alert: queue {row['queue']!r}, {row['window']}: {alert}", err=True)


def _cell(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value
