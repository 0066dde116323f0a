"""``lmq-pipeline replay``, ``report`` and ``verify``: pipelines that read files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from ..shared.errors import ExitCode, cannot_write
from ..shared.output import Column, print_json, print_table
from .access import ClusterOptions, cluster_options
from .run import PipelineCommand, Runner, tasks_shown

__all__ = ["replay", "report", "verify"]

_FORMATS: Final = ("parquet", "csv", "tsv", "json")
_FORM_OF_SUFFIX: Final = {".jsonl": "json", ".ndjson": "json", **{f".{form}": form for form in _FORMATS}}
_PACKED: Final = (".gz", ".zst", ".bz2")
_GUILTY: Final = 1
_UNDECIDED: Final = 3
_REPLAY_COLUMNS: Final = [
    Column("Rows", "rows", right=True),
    Column("Stored", "stored", right=True),
    Column("Bad rows", "bad_rows", right=True),
]
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


@click.command(cls=PipelineCommand, short_help="Push the rows of files into queues.")
@click.argument("inputs", metavar="PATH...", nargs=-1, required=True)
@cluster_options
@click.option("--queue", metavar="NAME", help="The queue for all rows.")
@click.option("--queue-by", metavar="COLUMN", help="Name the queue of a row by the value of this column.")
@click.option("--queue-prefix", default="", metavar="TEXT", help="What --queue-by puts before the value.")
@click.option("--value", metavar="COLUMN", help="The column that is the message. [default: the row as a JSON object]")
@click.option("--format", "form", type=click.Choice(_FORMATS), help="Format of the files. [default: by their names]")
@click.option(
    "--order-by", metavar="COLUMN", help="Push the rows of each queue in this order. [default: that of the files]"
)
@click.option("--unordered", is_flag=True, help="Push in any order, with several tasks for each queue.")
@click.option(
    "--archive", "is_archive", is_flag=True, help="PATH is a table of archive: its queues, values, types and order."
)
@click.option("--skip-bad", is_flag=True, help="Count bad rows and go on, instead of ending before anything is pushed.")
@click.option("--name", metavar="TEXT", help="Name of the replay. [default: made of the arguments and the files]")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
@click.pass_obj
def replay(
    runner: Runner,
    inputs: tuple[str, ...],
    cluster: ClusterOptions,
    queue: str | None,
    queue_by: str | None,
    queue_prefix: str,
    value: str | None,
    form: str | None,
    order_by: str | None,
    unordered: bool,
    is_archive: bool,
    skip_bad: bool,
    name: str | None,
    as_json: bool,
) -> int:
    """Push the rows of Parquet, CSV, TSV or JSON-lines files into queues, one message a row.

    PATHs are files, directories or globs, local or any URL that Spark knows. A replay that is repeated within 30 days under
    the same name, for example because it failed half-way, stores only what is missing. A row of CSV becomes a JSON object of
    texts; a JSON line stays as it is.

    \b
    Example:
      lmq-pipeline replay flights.parquet --queue-by origin
    """
    if is_archive:
        queue_by, value, order_by, form = (
            queue_by or (None if queue else "queue"), value or "value", order_by or "offset", form or "parquet"
        )  # fmt: skip
    if (queue is None) == (queue_by is None):
        raise click.UsageError("give either --queue NAME or --queue-by COLUMN")
    if queue_prefix and queue_by is None:
        raise click.UsageError("--queue-prefix goes with --queue-by; write the prefix into --queue")
    if unordered and order_by is not None:
        raise click.UsageError("--unordered and --order-by exclude each other")
    form = form or _form_of(inputs)
    _check_paths(inputs)
    cluster.reach()
    with runner.session("replay") as spark, tasks_shown("replay", spark):
        from lmqcluster.spark.pipelines.replay import ReplaySettings  # noqa: PLC0415
        from lmqcluster.spark.pipelines.replay import replay as run_replay  # noqa: PLC0415

        settings = ReplaySettings(
            inputs=inputs,
            form=form,
            access=cluster.access(),
            queue=queue,
            queue_by=queue_by,
            queue_prefix=queue_prefix,
            value=value,
            content_type="content_type" if is_archive else None,
            order_by=order_by,
            ordered=not unordered,
            skip_bad=skip_bad,
            name=name,
        )
        done = run_replay(spark, settings)
    if as_json:
        print_json({"rows": done.rows, "stored": done.stored, "bad_rows": done.bad})
    else:
        print_table(_REPLAY_COLUMNS, [[done.rows, done.stored, done.bad]])
    if done.stored < done.rows:
        click.echo(
            f"lmq-pipeline: {done.rows - done.stored:,} rows had been stored by an earlier replay of the same name; a replay"
            " with another --name stores them again",
            err=True,
        )
    return ExitCode.DONE


def _check_paths(paths: tuple[str, ...]) -> None:
    """Say at once that a file is not there; globs and URLs are Spark's to look up."""
    for path in paths:
        if not set("*?[{:") & set(path) and not Path(path).exists():
            raise click.UsageError(f"there is no {path}")


def _form_of(inputs: tuple[str, ...]) -> str:
    forms = {_told_form(path) for path in inputs}
    form = forms.pop() if len(forms) == 1 else None
    if form is None:
        raise click.UsageError(f"the format of {', '.join(inputs)} is not known: say --format {'|'.join(_FORMATS)}")
    return form


def _told_form(path: str) -> str | None:
    """The format that the name of a file tells, compressed or not."""
    name = path.rstrip("/").rpartition("/")[2].lower()
    for suffix in _PACKED:
        name = name.removesuffix(suffix)
    return next((form for suffix, form in _FORM_OF_SUFFIX.items() if name.endswith(suffix)), None)


@click.command(cls=PipelineCommand, short_help="Figures of queues from the nodes' event journals.")
@click.argument("journals", metavar="PATH...", nargs=-1, required=True)
@click.option(
    "--html", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path), help="Also write a page with plots."
)
@click.option("--queues", default=100, show_default=True, type=click.IntRange(1, 10_000), help="Most queues to list.")
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
    """Work out arrivals, waiting times, redeliveries and drops by queue.

    PATHs are the event journals of all nodes (option event_journal of a node): files, directories or globs.

    \b
    Example:
      lmq-pipeline report /var/lib/lmq/events --html report.html
    """
    _check_paths(journals)
    with runner.session("report") as spark, tasks_shown("report", spark):
        from lmqcluster.spark.pipelines.report import ReportSettings  # noqa: PLC0415
        from lmqcluster.spark.pipelines.report import report as run_report  # noqa: PLC0415

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
    from lmqcluster.spark.pipelines.report_page import report_page  # noqa: PLC0415

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


@click.command(cls=PipelineCommand, short_help="Judge the history of a failover drill.")
@click.argument("histories", metavar="PATH...", nargs=-1, required=True)
@click.option(
    "--examples", default=5, show_default=True, type=click.IntRange(0, 1000), help="Most cases to show of a finding."
)
@click.option(
    "--grace",
    default=60.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Seconds for which an operation of unknown outcome may take effect after its client gave up.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.pass_obj
def verify(runner: Runner, histories: tuple[str, ...], examples: int, grace: float, as_json: bool) -> int:
    """Say whether messages were lost, made up, doubled or reordered, from what the clients of a drill saw.

    PATHs are JSON lines: files, directories or globs. docs/spark.md tells the format.

    \b
    Exit codes of its own:
        0  pass
        1  guilty: something was found
        3  unknown: there is too little to say so

    \b
    Example:
      lmq-pipeline verify /var/lib/lmq/events
    """
    _check_paths(histories)
    with runner.session("verify") as spark, tasks_shown("verify", spark):
        from lmqcluster.spark.pipelines.verify import VerifySettings  # noqa: PLC0415
        from lmqcluster.spark.pipelines.verify import verify as run_verify  # noqa: PLC0415

        found = run_verify(spark, VerifySettings(histories=histories, examples=examples, grace_s=grace))
    if as_json:
        print_json(found)
    else:
        _print_findings(found)
    return {"pass": ExitCode.DONE, "guilty": _GUILTY}.get(found["verdict"], _UNDECIDED)


def _print_findings(found: dict[str, Any]) -> None:
    figures = [*found["messages"].items(), *found["faults"].items()]
    shown = [(name.replace("_", " "), count) for name, count in figures]
    print_table([Column("Figure", "figure"), Column("Messages", "count", right=True)], shown)
    for name, cases in found["examples"].items():
        for case in cases:
            click.echo(f"{name.replace('_', ' ')}: " + ", ".join(f"{key} {value}" for key, value in case.items()))
    reasons = f" ({'; '.join(found['reasons'])})" if found["reasons"] else ""
    click.echo(f"verdict: {found['verdict']}{reasons}")
