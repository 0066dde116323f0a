"""``lmq-pipeline archive`` and ``migrate``: streaming queries that read queues."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from ..shared.errors import CliError, ExitCode
from ..shared.output import Column, print_json, print_table
from ..shared.target import complete_queue
from .access import ClusterOptions, cluster_options, target_cluster_options
from .run import PipelineCommand, Runner, StreamOutcome, watched

if TYPE_CHECKING:
    from lmqcluster.spark.pipelines.archive import Period
    from lmqcluster.spark.pipelines.source import Source

__all__ = ["archive", "migrate"]

_MESSAGES_MAX: Final = 100_000
_SCHEMA_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
_SCHEMA_CHARACTERS_MAX: Final = 1 << 20
"""One more than these is refused by the pipeline."""
_RATE_WINDOW_S: Final = 10.0
"""How much one micro-batch takes of a rate."""
_COLUMNS: Final = [
    Column("Messages", "messages", right=True),
    Column("Micro-batches", "micro_batches", right=True),
    Column("Seconds", "seconds", right=True),
]


def _stream_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what both commands take to say what to read, and for how long; hands on a `Source`."""

    @click.argument("queue", required=False, shell_complete=complete_queue)
    @click.option("--match", metavar="REGEXP", help="Read all queues whose names this regular expression (RE2) finds.")
    @cluster_options
    @click.option("--once", is_flag=True, help="Take what is there now and end, instead of running until Ctrl-C.")
    @click.option(
        "--trigger",
        default=10.0,
        show_default=True,
        type=click.FloatRange(0),
        help="Seconds from one micro-batch to the next.",
    )
    @click.option(
        "--batch",
        default=_MESSAGES_MAX,
        show_default=True,
        type=click.IntRange(1, _MESSAGES_MAX),
        help="Most messages in a micro-batch.",
    )
    @click.option(
        "--batch-mib",
        default=128,
        show_default=True,
        type=click.IntRange(1, 1 << 20),
        help="MiB of bodies at which a micro-batch is full.",
    )
    @click.option(
        "--rate", type=click.FloatRange(0, min_open=True), metavar="N", help="Most messages a second, on average."
    )
    @click.option(
        "--lease",
        default=86_400.0,
        show_default=True,
        type=click.FloatRange(1, 30 * 86_400),
        help="Seconds that messages stay reserved while the command does not run.",
    )
    @click.option(
        "--readers", default=1, show_default=True, type=click.IntRange(1, 10_000), help="Least tasks to read with."
    )
    @click.option(
        "--subscription",
        metavar="NAME",
        help="Name under which the cluster reserves messages for this query. [default: a random one, kept in the checkpoint]",
    )
    @click.option("--skip-lost", is_flag=True, help="Go on where a lease has expired, instead of ending with an error.")
    @click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
    @functools.wraps(function)
    def wrapper(
        queue: str | None,
        match: str | None,
        cluster: ClusterOptions,
        once: bool,
        trigger: float,
        batch: int,
        batch_mib: int,
        rate: float | None,
        lease: float,
        readers: int,
        subscription: str | None,
        skip_lost: bool,
        **arguments: Any,
    ) -> Any:
        if (queue is None) == (match is None):
            raise click.UsageError("name either a QUEUE or --match REGEXP")
        context = click.get_current_context()
        if once and context.get_parameter_source("trigger") is ParameterSource.COMMANDLINE:
            raise click.UsageError("--once and --trigger exclude each other")

        def source() -> Source:
            from lmqcluster.spark.pipelines.source import Source  # noqa: PLC0415

            return Source(
                access=cluster.access(),
                queue=queue,
                pattern=match,
                subscription=subscription,
                messages_max=batch if rate is None else min(batch, max(1, round(rate * _RATE_WINDOW_S))),
                bytes_max=batch_mib * 1024 * 1024,
                lease_s=lease,
                rate=rate,
                partitions_min=readers,
                fail_on_data_loss=not skip_lost,
            )

        trigger_s = None if once else trigger
        return function(context.find_object(Runner), cluster=cluster, source=source, trigger_s=trigger_s, **arguments)

    return wrapper


@click.command(cls=PipelineCommand, short_help="Write messages of queues to Parquet.")
@_stream_options
@click.option(
    "--output", required=True, metavar="DIR", help="The table's directory, local or any URL that Spark knows."
)
@click.option(
    "--by",
    type=click.Choice(("hour", "day")),
    default="hour",
    show_default=True,
    help="What the messages of one directory have in common: the hour or the day (UTC) at which they were due.",
)
@click.option("--checkpoint", metavar="DIR", help="Where the query keeps its place. [default: _checkpoint in --output]")
@click.option(
    "--file-mib",
    default=128,
    show_default=True,
    type=click.IntRange(1, 4096),
    help="MiB from which a file is large enough to be left alone.",
)
@click.option(
    "--format",
    "form",
    default="parquet",
    show_default=True,
    type=click.Choice(("parquet", "delta")),
    help="Format of the table; delta needs lmqcluster[delta].",
)
@click.option("--json-schema", metavar="FILE", type=_SCHEMA_FILE, help="Decode values as JSON by this JSON Schema.")
@click.option(
    "--avro-schema",
    metavar="FILE",
    type=_SCHEMA_FILE,
    help="Decode values as Avro by this schema; needs lmqcluster[avro].",
)
@click.option("--quarantine", metavar="QUEUE", help="Where messages go that cannot be decoded.")
def archive(
    runner: Runner,
    cluster: ClusterOptions,
    source: Callable[[], Source],
    trigger_s: float | None,
    output: str,
    by: Period,
    checkpoint: str | None,
    file_mib: int,
    form: str,
    json_schema: Path | None,
    avro_schema: Path | None,
    quarantine: str | None,
    as_json: bool,
) -> int:
    """Take messages out of a QUEUE, or of all that --match, into a Parquet table partitioned by hour or day.

    The table has everything that a message has, see docs/spark.md; replay pushes it again. Every message is in the table once,
    the parts of a compound one as rows of their own, whatever is killed on the way: run the same command again to go on.
    Small files are merged while it runs and at its end.

    With a schema the table has the column "decoded" too. A message that cannot be decoded goes to the quarantine instead, once,
    with headers that say why.

    \b
    Examples:
      lmq-pipeline archive orders --output /data/orders --once
      lmq-pipeline archive orders --output /data/orders --json-schema order.json --quarantine orders.bad
    """
    schema = _schema(json_schema, avro_schema)
    if (schema is None) != (quarantine is None):
        raise click.UsageError("--quarantine goes with --json-schema or --avro-schema, and either of these with it")
    cluster.reach()
    outcome = StreamOutcome()
    with runner.session("archive") as spark:
        from lmqcluster.spark.pipelines.archive import ArchiveSettings  # noqa: PLC0415
        from lmqcluster.spark.pipelines.archive import archive as run_archive  # noqa: PLC0415
        from lmqcluster.spark.pipelines.quarantine import Decoding  # noqa: PLC0415

        settings = ArchiveSettings(
            source=source(),
            output=output,
            by=by,
            checkpoint=checkpoint,
            trigger_s=trigger_s,
            file_bytes=file_mib * 1024 * 1024,
            form=form,
            decoding=None
            if schema is None
            else Decoding(form=schema[0], schema=schema[1], quarantine=quarantine or ""),
        )
        run_archive(spark, settings, watched("archive", outcome))
    return _end(outcome, once=trigger_s is None, as_json=as_json)


def _schema(json_schema: Path | None, avro_schema: Path | None) -> tuple[str, str] | None:
    """Return the kind of schema that was given, and its text."""
    if json_schema is not None and avro_schema is not None:
        raise click.UsageError("--json-schema and --avro-schema exclude each other")
    path = json_schema or avro_schema
    if path is None:
        return None
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_SCHEMA_CHARACTERS_MAX + 1)
    except (OSError, UnicodeDecodeError) as exc:
        raise CliError(f"cannot read {path}: {exc}", ExitCode.BAD_DATA) from exc
    return "json" if json_schema is not None else "avro", text


@click.command(cls=PipelineCommand, short_help="Move messages to another cluster.")
@_stream_options
@target_cluster_options
@click.option("--checkpoint", required=True, metavar="DIR", help="Where the query keeps its place.")
@click.option("--queue-prefix", default="", metavar="TEXT", help="What to put before the names of the queues.")
@click.option(
    "--accept-doubles",
    is_flag=True,
    help="Go on although the other cluster may have forgotten a micro-batch that was interrupted.",
)
def migrate(
    runner: Runner,
    cluster: ClusterOptions,
    target: ClusterOptions,
    source: Callable[[], Source],
    trigger_s: float | None,
    checkpoint: str,
    queue_prefix: str,
    accept_doubles: bool,
    as_json: bool,
) -> int:
    """Move the messages of a QUEUE, or of all that --match, to another cluster.

    A message is removed from the one only when it is stored at the other. If the command is killed, run it again: nothing is
    lost and nothing doubled. After 30 days it refuses, see --accept-doubles. Content types, headers, priorities, groups,
    labels and times to live, which begin again, stay; a compound message becomes one MessagePack list. Nothing of the first
    cluster's credentials is shown to the other one unless told so.

    \b
    Example:
      lmq-pipeline migrate --match . --to 10.0.1.1:18800 --checkpoint /data/migration
    """
    cluster.reach()
    target.reach()
    outcome = StreamOutcome()
    with runner.session("migrate") as spark:
        from lmqcluster.spark.pipelines.migrate import MigrateSettings  # noqa: PLC0415
        from lmqcluster.spark.pipelines.migrate import migrate as run_migrate  # noqa: PLC0415

        settings = MigrateSettings(
            source=source(),
            target=target.access(),
            checkpoint=checkpoint,
            trigger_s=trigger_s,
            queue_prefix=queue_prefix,
            accept_doubles=accept_doubles,
        )
        run_migrate(spark, settings, watched("migrate", outcome))
    return _end(outcome, once=trigger_s is None, as_json=as_json)


def _end(outcome: StreamOutcome, *, once: bool, as_json: bool) -> int:
    counts = outcome.as_json()
    if as_json:
        print_json(counts)
    else:
        print_table(_COLUMNS, [list(counts.values())])
    if once and outcome.stopped:
        raise CliError("interrupted: run the same command again to go on", ExitCode.INTERRUPTED)
    return ExitCode.DONE
