"""The program ``lmq-admin``: look at a cluster, change its members, work with queues and messages."""

from __future__ import annotations

from importlib.metadata import version

import click
from click.shell_completion import get_completion_class

from .admin_backup import backup, recover, restore
from .admin_cluster import check, join, leave, remove, snapshot, stats, status, transfer_leader
from .admin_drain import drain
from .admin_queues import message, queue
from .admin_replay import replay
from .admin_subscriptions import subscription
from .errors import EXIT_CODES_HELP, run
from .target import Target, target_options

__all__ = ["main"]

_SHELLS = ("bash", "zsh", "fish")


@click.group(epilog=EXIT_CODES_HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("lmqcluster"), package_name="lmqcluster", message="lmqcluster %(version)s")
@target_options
def cli(_target: Target) -> None:
    """Administer an lmqcluster cluster through one of its nodes.

    Output is a table on a terminal and tab-separated lines otherwise; --json prints JSON. NO_COLOR is honoured.
    """


for command in (
    *(status, stats, check, join, leave, remove, transfer_leader),
    *(snapshot, backup, restore, recover),
    *(queue, message, subscription, replay, drain),
):
    cli.add_command(command)


@cli.command(short_help="Print a script for completion in the shell.")
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print a script that completes lmq-admin's commands, options and queue names.

    \b
    bash:  eval "$(lmq-admin completion bash)"
    zsh:   eval "$(lmq-admin completion zsh)"
    fish:  lmq-admin completion fish | source
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"there is no completion for {shell}")
    print(kind(cli, {}, "lmq-admin", "_LMQ_ADMIN_COMPLETE").source())


def main() -> None:
    """Entry point of the script."""
    run(cli, "lmq-admin")


if __name__ == "__main__":
    main()
