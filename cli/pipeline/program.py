"""The program ``lmq-pipeline``: queues to tables and back on Apache Spark, and statistics of queues."""

from __future__ import annotations

from pathlib import Path

import click

from ..shared.completion import completion_command
from ..shared.errors import EXIT_CODES_HELP, run
from ..shared.version import version_command, version_option
from .letters import dead_letters
from .replay import replay
from .report import report
from .run import Runner, apply_config, spark_options
from .streams import archive, migrate
from .watching import watch

__all__ = ["main"]

_SUBMIT_FILE = Path(__file__).with_name("submit.py")


def _config(context: click.Context, _parameter: click.Parameter, path: Path | None) -> Path | None:
    if path is not None:
        apply_config(context, path)
    return path


def _print_submit_file(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(_SUBMIT_FILE)
        context.exit()


@click.group(
    epilog=EXIT_CODES_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "LMQ_PIPELINE"},
)
@version_option
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    is_eager=True,
    callback=_config,
    help="TOML file with any options: common ones at its top, a command's in a table [COMMAND], Spark's in [spark].",
)
@click.option(
    "--master", metavar="URL", help="Spark's master, or sc://HOST:PORT for a Spark Connect server. [default: local[*]]"
)
@click.option("--memory", metavar="SIZE", help="Memory of the driver, and so of a local master, like 4g. [default: 1g]")
@click.option("--spark", metavar="KEY=VALUE", multiple=True, help="An option of Spark; may be repeated.")
@click.option(
    "--spark-log",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for Spark's log. [default: a temporary file, kept after failures]",
)
@click.option(
    "--submit-file",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_submit_file,
    help="Print the path for spark-submit, and exit.",
)
@click.pass_context
def cli(
    context: click.Context,
    config: Path | None,  # noqa: ARG001  applied by its callback
    master: str | None,
    memory: str | None,
    spark: tuple[str, ...],
    spark_log: Path | None,
) -> None:
    """Run data pipelines between lmqcluster and files, on Apache Spark.

    \b
    On this machine:  lmq-pipeline archive flights --output /data/flights
    On a cluster:     lmq-pipeline --master spark://host:7077 archive ...
    By spark-submit:  spark-submit OPTIONS $(lmq-pipeline --submit-file) archive ...

    Every option can also be set in the environment (LMQ_PIPELINE_ARCHIVE_OUTPUT) and in a TOML file; a flag overrides
    the environment, which overrides the file. Tables are tab-separated lines unless on a terminal; --json prints JSON.
    """
    context.obj = Runner(master=master, options=spark_options(spark, memory, master), log=spark_log)


for command in (archive, replay, migrate, dead_letters, report, watch):
    cli.add_command(command)

cli.add_command(
    completion_command(cli, "lmq-pipeline", "commands, options and queue names, as the node LMQ_NODE reports them")
)
cli.add_command(version_command("lmq-pipeline"))


def main() -> None:
    """Entry point of the script."""
    run(cli, "lmq-pipeline")
