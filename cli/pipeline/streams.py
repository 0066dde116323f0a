"""``lmq-pipeline archive`` and ``migrate``: streaming queries over queues."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from ..shared.connection.target import complete_queue
from ..shared.errors import CliError, ExitCode
from ..shared.output import Column, print_json, print_table
from .access import ClusterOptions, cluster_options, target_cluster_options
from .run import PipelineCommand, Runner, StreamOutcome, watch_query

if TYPE_CHECKING:
    from lmqcluster.spark.pipelines.archives.archive import Period
    from lmqcluster.spark.pipelines.base.source import Source

__all__ = ["archive", "migrate"]

_MESSAGES_MAX: Final = 100_000
_SCHEMA_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
_SCHEMA_CHARACTERS_MAX: Final = 1 << 20
"""One character more than this is refused by the pipeline."""
_RATE_WINDOW_S: Final = 10.0
"""The part of a rate that one micro-batch takes, in seconds."""
_COLUMNS: Final = [
    Column("Messages", "messages", right=True),
    Column("Micro-batches", "micro_batches", right=True),
    Column("Seconds", "seconds", right=True),
]


def _stream_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that both commands share: what to read, and for how long; the function gets a `Source`."""

    @click.argument("queue", required=False, shell_complete=complete_queue)
    @click.option("--match", metavar="REGEXP", help="Read all queues whose names match this regular expression (RE2).")
    @cluster_options
    @click.option("--once", is_flag=True, help="Process the current messages and end, instead of running until Ctrl-C.")
    @click.option(
        "--trigger",
        default=10.0,
        show_default=True,
        type=click.FloatRange(0),
        help="Seconds between micro-batches.",
    )
    @click.option(
        "--batch",
        default=_MESSAGES_MAX,
        show_default=True,
        type=click.IntRange(1, _MESSAGES_MAX),
        help="Maximum number of messages in a micro-batch.",
    )
    @click.option(
        "--batch-mib",
        default=128,
        show_default=True,
        type=click.IntRange(1, 1 << 20),
        help="MiB of bodies at which a micro-batch is full.",
    )
    @click.option(
        "--rate", type=click.FloatRange(0, min_open=True), metavar="N", help="Maximum messages a second, on average."
    )
    @click.option(
        "--lease",
        default=86_400.0,
        show_default=True,
        type=click.FloatRange(1, 30 * 86_400),
        help="Seconds for which messages stay reserved while the command does not run.",
    )
    @click.option(
        "--readers",
        default=1,
        show_default=True,
        type=click.IntRange(1, 10_000),
        help="Minimum number of reading tasks.",
    )
    @click.option(
        "--subscription",
        metavar="NAME",
        help="Subscription of this query. [default: a random name, kept in the checkpoint]",
    )
    @click.option("--skip-lost", is_flag=True, help="Continue after an expired lease, instead of failing.")
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
            raise click.UsageError("pass either a QUEUE or --match REGEXP")
        context = click.get_current_context()
        if once and context.get_parameter_source("trigger") is ParameterSource.COMMANDLINE:
            raise click.UsageError("--once and --trigger exclude each other")

        def source() -> Source:
            from lmqcluster.spark.pipelines.base.source import Source  # noqa: PLC0415

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
    "--output", required=True, metavar="DIR", help="Directory of the table, local or any URL that Spark supports."
)
@click.option(
    "--by",
    type=click.Choice(("hour", "day")),
    default="hour",
    show_default=True,
    help="Partition by the hour or the day (UTC) at which messages became ready.",
)
@click.option(
    "--checkpoint", metavar="DIR", help="Directory of the query's checkpoint. [default: _checkpoint in --output]"
)
@click.option(
    "--file-mib",
    default=128,
    show_default=True,
    type=click.IntRange(1, 4096),
    help="MiB from which a file is not merged any more.",
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
@click.option("--quarantine", metavar="QUEUE", help="Queue for messages that cannot be decoded.")
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
    """Move messages from a QUEUE, or from all queues that --match, into a Parquet table partitioned by hour or day.

    The table has everything that a message has, see docs/spark.md; replay pushes it again. Every message is in the
    table once, the parts of a compound message as separate rows, whatever process is killed: run the same command again
    to continue. Small files are merged during the query and at its end.

    With a schema, the table also has the column "decoded". A message that cannot be decoded goes to the quarantine
    instead, once, with the reason in its attributes.

    \b
    Examples:
      lmq-pipeline archive orders --output /data/orders --once
      lmq-pipeline archive orders --output /data/orders --json-schema order.json --quarantine orders.bad
    """
    schema = _schema(json_schema, avro_schema)
    if (schema is None) != (quarantine is None):
        raise click.UsageError("--quarantine and a schema (--json-schema or --avro-schema) require each other")
    cluster.reach()
    outcome = StreamOutcome()
    with runner.session("archive") as spark:
        from lmqcluster.spark.pipelines.archives.archive import ArchiveSettings  # noqa: PLC0415
        from lmqcluster.spark.pipelines.archives.archive import archive as run_archive  # noqa: PLC0415
        from lmqcluster.spark.pipelines.base.quarantine import Decoding  # noqa: PLC0415

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
        run_archive(spark, settings, watch_query("archive", outcome))
    return _end(outcome, once=trigger_s is None, as_json=as_json)


def _schema(json_schema: Path | None, avro_schema: Path | None) -> tuple[str, str] | None:
    """Return the kind and the text of the given schema."""
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
@click.option("--checkpoint", required=True, metavar="DIR", help="Directory of the query's checkpoint.")
@click.option("--queue-prefix", default="", metavar="TEXT", help="Prefix for the names of the queues.")
@click.option(
    "--accept-doubles",
    is_flag=True,
    help="Continue even if the other cluster may have forgotten an interrupted micro-batch.",
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
    """Move the messages of a QUEUE, or of all queues that --match, to another cluster.

    A message is removed from the source only after it is stored at the target. If the command is killed, run it again:
    no message is lost or duplicated. After 30 days it refuses, see --accept-doubles. Content types, attributes,
    priorities, groups and labels are kept; times to live start again; a compound message becomes one MessagePack list.
    The credentials of the source are not used for the target unless --to-same-credentials is given.

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
        run_migrate(spark, settings, watch_query("migrate", outcome))
    return _end(outcome, once=trigger_s is None, as_json=as_json)


def _end(outcome: StreamOutcome, *, once: bool, as_json: bool) -> int:
    counts = outcome.as_json()
    if as_json:
        print_json(counts)
    else:
        print_table(_COLUMNS, [list(counts.values())])
    if once and outcome.stopped:
        raise CliError("interrupted; run the same command again to continue", ExitCode.INTERRUPTED)
    return ExitCode.DONE
