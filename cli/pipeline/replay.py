"""``lmq-pipeline replay``: pushes files into queues."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from ..shared.errors import ExitCode
from ..shared.output import Column, print_json, print_table
from .access import ClusterOptions, cluster_options
from .run import PipelineCommand, Runner, check_paths, show_tasks

if TYPE_CHECKING:
    from lmqcluster.spark.pipelines.replays.replay_settings import Planned, Replayed

__all__ = ["replay"]

_FORMATS: Final = ("parquet", "csv", "tsv", "json")
_FORM_OF_SUFFIX: Final = {".jsonl": "json", ".ndjson": "json", **{f".{form}": form for form in _FORMATS}}
_PACKED: Final = (".gz", ".zst", ".bz2")
_COLUMNS: Final = [
    Column("Rows", "rows", right=True),
    Column("Stored", "stored", right=True),
    Column("Bad rows", "bad_rows", right=True),
]
_PLAN_COLUMNS: Final = [
    Column("Queue", "queue"),
    Column("Rows", "rows", right=True),
    Column("Bytes", "bytes", right=True),
]


def _moment(_context: click.Context, _parameter: click.Parameter, value: str | None) -> datetime | None:
    """Parse a date or a time in ISO 8601; UTC unless it has a time zone."""
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError as exc:
        raise click.BadParameter(
            f"{value!r} is not a time such as 2026-11-03T14:00 or 2026-11-03T14:00:00+01:00"
        ) from exc
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


@click.command(cls=PipelineCommand, short_help="Push the rows of files into queues.")
@click.argument("inputs", metavar="PATH...", nargs=-1, required=True)
@cluster_options
@click.option("--queue", metavar="NAME", help="The queue for all rows.")
@click.option("--queue-by", metavar="COLUMN", help="Use the value of this column as the queue of a row.")
@click.option("--queue-prefix", default="", metavar="TEXT", help="Prefix for the value of the column.")
@click.option("--value", metavar="COLUMN", help="The column with the message. [default: the row as a JSON object]")
@click.option("--format", "form", type=click.Choice(_FORMATS), help="Format of the files. [default: by their names]")
@click.option(
    "--order-by", metavar="COLUMN", help="Push the rows of each queue in this order. [default: that of the files]"
)
@click.option("--unordered", is_flag=True, help="Push in any order, with several tasks for each queue.")
@click.option(
    "--archive",
    "is_archive",
    is_flag=True,
    help="PATH is a table of archive: push all its messages, in the order in which they became ready.",
)
@click.option(
    "--from",
    "since",
    callback=_moment,
    metavar="TIME",
    help="Only messages of an archive that became ready from this time on.",
)
@click.option(
    "--to",
    "until",
    callback=_moment,
    metavar="TIME",
    help="Only messages of an archive that became ready before it.",
)
@click.option("--where", metavar="EXPRESSION", help="Only rows for which this Spark SQL expression is true.")
@click.option(
    "--rate", type=click.FloatRange(0, min_open=True), metavar="N", help="Maximum messages a second; one task pushes."
)
@click.option("--dry-run", is_flag=True, help="Show what would be pushed to which queues, without pushing.")
@click.option(
    "--queues",
    default=100,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="Maximum queues that --dry-run lists.",
)
@click.option("--skip-bad", is_flag=True, help="Count and skip bad rows, instead of failing before the first push.")
@click.option("--name", metavar="TEXT", help="Name of the replay. [default: derived from the arguments and the files]")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
@click.pass_obj
def replay(
    runner: Runner,
    /,
    inputs: tuple[str, ...],
    cluster: ClusterOptions,
    form: str | None,
    unordered: bool,
    is_archive: bool,
    dry_run: bool,
    queues: int,
    as_json: bool,
    **options: Any,
) -> int:
    """Push the rows of Parquet, CSV, TSV or JSON-lines files into queues, one message a row.

    PATHs are files, directories or globs, local or any URL that Spark supports. A replay repeated within 30 days under
    the same name, for example after a failure, stores only what is missing; it must select the same rows. A row of CSV
    becomes a JSON object of strings; a JSON line is pushed unchanged. An expression sees the columns of the files; for
    JSON lines, it sees line and json, as in variant_get(json, '$.n', 'int') > 9.

    \b
    Examples:
      lmq-pipeline replay flights.parquet --queue-by origin
      lmq-pipeline replay /data/orders --archive --from 2026-11-03 --to 2026-11-04 --where "priority < 0" --rate 500
    """
    _check(is_archive=is_archive, unordered=unordered, form=form, **options)
    form = "archive" if is_archive else form or _form_of(inputs)
    check_paths(inputs)
    if not dry_run:
        cluster.reach()
    with runner.session("replay") as spark, show_tasks("replay", spark):
        from lmqcluster.spark.pipelines.replays.replay import Replayed, ReplaySettings, plan_replay  # noqa: PLC0415
        from lmqcluster.spark.pipelines.replays.replay import replay as run_replay  # noqa: PLC0415

        settings = ReplaySettings(inputs=inputs, form=form, access=cluster.access(), ordered=not unordered, **options)
        done = plan_replay(spark, settings, queues) if dry_run else run_replay(spark, settings)
    if isinstance(done, Replayed):
        _print_done(done, as_json=as_json)
    else:
        _print_plan(done, as_json=as_json)
    return ExitCode.DONE


def _check(*, is_archive: bool, unordered: bool, form: str | None, **options: Any) -> None:
    """Refuse options that exclude each other."""
    if options["queue"] is not None and options["queue_by"] is not None:
        raise click.UsageError("pass either --queue NAME or --queue-by COLUMN")
    if not is_archive and options["queue"] is None and options["queue_by"] is None:
        raise click.UsageError("pass either --queue NAME or --queue-by COLUMN")
    if options["queue_prefix"] and options["queue"] is not None:
        raise click.UsageError("--queue-prefix requires --queue-by or --archive; write the prefix into --queue")
    if unordered and options["order_by"] is not None:
        raise click.UsageError("--unordered and --order-by exclude each other")
    if is_archive and (options["value"] is not None or form is not None):
        raise click.UsageError("--archive excludes --value and --format: the archive determines them")
    if not is_archive and (options["since"] is not None or options["until"] is not None):
        raise click.UsageError("--from and --to require --archive; use --where for other files")
    since, until = options["since"], options["until"]
    if since is not None and until is not None and since >= until:
        raise click.UsageError("--from must be before --to")


def _print_done(done: Replayed, *, as_json: bool) -> None:
    if as_json:
        print_json({"rows": done.rows, "stored": done.stored, "bad_rows": done.bad})
    else:
        print_table(_COLUMNS, [[done.rows, done.stored, done.bad]])
    if done.stored < done.rows:
        click.echo(
            f"lmq-pipeline: {done.rows - done.stored:,} rows were stored by an earlier replay of the same name; to store them"
            " again, use another --name",
            err=True,
        )


def _print_plan(plan: Planned, *, as_json: bool) -> None:
    if as_json:
        queues = [{"queue": one.queue, "rows": one.rows, "bytes": one.size_bytes} for one in plan.queues]
        total = {"queue_count": plan.queue_count, "rows": plan.rows, "bytes": plan.size_bytes, "bad_rows": plan.bad}
        print_json({"queues": queues, **total})
        return
    rows = [[one.queue, one.rows, one.size_bytes] for one in plan.queues]
    print_table(_PLAN_COLUMNS, [*rows, ["(all)", plan.rows, plan.size_bytes]])
    if plan.queue_count > len(rows):
        click.echo(f"lmq-pipeline: {plan.queue_count - len(rows):,} more queues have fewer rows (--queues)", err=True)
    if plan.bad:
        click.echo(f"lmq-pipeline: {plan.bad:,} bad rows would be skipped", err=True)


def _form_of(inputs: tuple[str, ...]) -> str:
    forms = {_form_by_suffix(path) for path in inputs}
    form = forms.pop() if len(forms) == 1 else None
    if form is None:
        raise click.UsageError(f"the format of {', '.join(inputs)} is unknown: pass --format {'|'.join(_FORMATS)}")
    return form


def _form_by_suffix(path: str) -> str | None:
    """Return the format by the suffix of a file, compressed or not; None if it is unknown."""
    name = path.rstrip("/").rpartition("/")[2].lower()
    for suffix in _PACKED:
        name = name.removesuffix(suffix)
    return next((form for suffix, form in _FORM_OF_SUFFIX.items() if name.endswith(suffix)), None)
