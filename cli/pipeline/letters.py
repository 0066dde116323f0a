"""``lmq-pipeline dead-letters``: shows dead letters, edits them and returns them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from ..shared.connection.target import complete_queue
from ..shared.errors import ExitCode
from ..shared.output import Column, print_json, print_table
from .access import ClusterOptions, cluster_options
from .run import PipelineCommand, Runner, show_tasks

if TYPE_CHECKING:
    from lmqcluster.spark.pipelines.dead_letters import Redriven, Sample

__all__ = ["dead_letters"]

_EDITABLE: Final = (
    "value", "content_type", "attributes", "attribute_types", "priority", "group", "label", "delay", "ttl",
)  # fmt: skip
_SUMMARY: Final = [
    Column("Queue", "queue"),
    Column("From", "origin"),
    Column("Reason", "reason"),
    Column("Hour", "hour"),
    Column("Messages", "messages", right=True),
    Column("Deliveries", "deliveries_max", right=True, rank=1),
    Column("Bytes", "bytes", right=True, unit="bytes", rank=2),
    Column("First offset", "first_offset", right=True, rank=3),
]
_REDRIVEN: Final = [
    Column("Queue", "queue"),
    Column("Selected", "selected", right=True),
    Column("Moved", "moved", right=True),
    Column("Without origin", "unplaced", right=True),
    Column("Gone", "gone", right=True),
    Column("Left", "kept", right=True),
]
_SAMPLES: Final = [
    Column("Queue", "queue"),
    Column("Offset", "offset", right=True),
    Column("To", "to"),
    Column("Before", "before", cut="end"),
    Column("After", "after", cut="end"),
]


@click.command("dead-letters", cls=PipelineCommand, short_help="Show dead letters, edit them, return them.")
@click.argument("queues", metavar="QUEUE...", nargs=-1, required=True, shell_complete=complete_queue)
@cluster_options
@click.option("--where", metavar="SQL", help="Only messages for which this condition is true.")
@click.option(
    "--rows", default=100, show_default=True, type=click.IntRange(1, 10_000), help="Maximum number of lines to show."
)
@click.option(
    "--output", metavar="DIR", help="Also write the messages to this new directory, with a subdirectory for each hour."
)
@click.option(
    "--format",
    "form",
    default="parquet",
    show_default=True,
    type=click.Choice(("parquet", "json")),
    help="Format of --output.",
)
@click.option("--redrive", is_flag=True, help="Return the messages to the queues that they came from.")
@click.option("--to", metavar="QUEUE", help="With --redrive: send them to this queue instead.")
@click.option(
    "--set",
    "changes",
    metavar="COLUMN=SQL",
    multiple=True,
    help="With --redrive: replace the column by this value; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="With --redrive: show what would be sent, without removing anything.")
@click.option(
    "--lease",
    default=600.0,
    show_default=True,
    type=click.FloatRange(1, 30 * 86_400),
    help="Seconds that messages stay reserved if --redrive is killed.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def dead_letters(
    runner: Runner,
    queues: tuple[str, ...],
    cluster: ClusterOptions,
    where: str | None,
    rows: int,
    output: str | None,
    form: str,
    redrive: bool,
    to: str | None,
    changes: tuple[str, ...],
    dry_run: bool,
    lease: float,
    as_json: bool,
) -> int:
    """Show what failed in QUEUEs of dead letters: from which queue, why, and how often, by hour. Removes nothing.

    SQL is Spark's. Its columns are queue, offset, reason (exhausted or expired), origin, failed_at, deliveries,
    pushed_at, value, text (the value, if it is UTF-8), content_type, attributes, attribute_types, priority, group and
    label. --set takes value, content_type, attributes, attribute_types, priority, group, label, delay and ttl.

    With --redrive, each message is removed from its queue and stored in the other one atomically, so that none is lost
    or duplicated if a process is killed. Messages that are not selected keep their positions. During the redrive, other
    consumers of QUEUE get nothing.

    \b
    Examples:
      lmq-pipeline dead-letters failed --where "reason = 'expired'" --output failed
      lmq-pipeline dead-letters failed --redrive --set "value = replace(text, 'EURO', 'EUR')" --where "origin = 'orders'"
    """
    edits = _edits(changes)
    if not redrive and (to is not None or edits or dry_run):
        raise click.UsageError("--to, --set and --dry-run require --redrive")
    if redrive and output is not None:
        raise click.UsageError("--output and --redrive exclude each other: write the messages first")
    names = tuple(dict.fromkeys(queues))
    cluster.reach()
    with runner.session("dead-letters") as spark, show_tasks("dead-letters", spark):
        from lmqcluster.spark.pipelines import dead_letters as pipeline  # noqa: PLC0415

        settings = pipeline.DeadLetters(access=cluster.access(), queues=names, where=where)
        wanted = pipeline.Edits(to=to, values=edits, lease_s=lease)
        if dry_run:
            _show_redriven(*pipeline.preview(spark, settings, wanted), as_json=as_json)
        elif redrive:
            done = [pipeline.redrive(spark, settings, wanted, queue) for queue in names]
            _show_redriven(done, [], as_json=as_json)
        else:
            found = pipeline.letters(spark, settings)
            if output is not None:
                pipeline.store(found, output, form)
            _show_summary(pipeline.summary(found, rows), as_json=as_json)
    return ExitCode.DONE


def _edits(changes: tuple[str, ...]) -> dict[str, str]:
    edits: dict[str, str] = {}
    for change in changes:
        name, equals, expression = (part.strip() for part in change.partition("="))
        if not equals or not expression or name not in _EDITABLE:
            raise click.UsageError(f"--set: {change!r} is not COLUMN=SQL with one of {', '.join(_EDITABLE)}")
        if name in edits:
            raise click.UsageError(f"--set: {name} is given twice")
        edits[name] = expression
    return edits


def _show_summary(found: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json(found)
    else:
        print_table(_SUMMARY, [[row[column.key] for column in _SUMMARY] for row in found])


def _show_redriven(done: list[Redriven], samples: list[Sample], *, as_json: bool) -> None:
    if as_json:
        print_json({"queues": [asdict(one) for one in done], "samples": [asdict(one) for one in samples]})
        return
    if samples:
        print_table(_SAMPLES, [[getattr(one, column.key) for column in _SAMPLES] for one in samples])
    print_table(_REDRIVEN, [[getattr(one, column.key) for column in _REDRIVEN] for one in done])
    unplaced, gone = sum(one.unplaced for one in done), sum(one.gone for one in done)
    if unplaced:
        click.echo(f"lmq-pipeline: {unplaced:,} messages have no origin and were kept; send them with --to", err=True)
    if gone:
        click.echo(
            f"lmq-pipeline: {gone:,} messages were no longer reserved: an earlier attempt has sent them, or they returned to"
            " their queue; run the command again to be sure",
            err=True,
        )
