"""The program ``lmq``: runs a node, runs a cluster on this machine, checks whether a node is alive."""

from __future__ import annotations

import click

from ..shared.aliases import AliasGroup, Deferred
from ..shared.completion import completion_command
from ..shared.errors import EXIT_CODES_HELP, run
from ..shared.version import version_command, version_option

__all__ = ["main"]


@click.group(cls=AliasGroup, epilog=EXIT_CODES_HELP, context_settings={"help_option_names": ["-h", "--help"]})
@version_option
def cli() -> None:
    """Run lmqcluster, a replicated message queue."""


cli.add_command(Deferred("start", "lmq.start", "Run one node in the foreground."))
cli.add_command(Deferred("dev", "lmq.dev", "Run a cluster on this machine, for trying."))
cli.add_command(Deferred("ping", "lmq.ping", "Print pong if the node is alive, whether or not it has a quorum."))
cli.add_command(Deferred("repair", "lmq.repair", "Discard the damaged data of a stopped node."))
cli.add_command(Deferred("config", "lmq.config", "Show or check the configuration that a start would use."))
cli.add_command(completion_command(cli, "lmq", "commands and options"))
cli.add_command(version_command("lmq"))


def main() -> None:
    """Entry point of the script."""
    run(cli, "lmq")
