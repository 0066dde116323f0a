"""The program ``lmq-admin``: look at a cluster, change its members, work with queues and messages."""

from __future__ import annotations

from importlib.metadata import version

import click

from .admin_backup import backup, recover, restore
from .admin_cluster import check, join, leave, remove, snapshot, stats, status, transfer_leader
from .admin_drain import drain
from .admin_queues import message, queue
from .admin_replay import replay
from .admin_subscriptions import subscription
from .completion import completion_command
from .errors import EXIT_CODES_HELP, run
from .target import Target, target_options

__all__ = ["main"]


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

cli.add_command(completion_command(cli, "lmq-admin", "commands, options and queue names"))


def main() -> None:
    """Entry point of the script."""
    run(cli, "lmq-admin")


if __name__ == "__main__":
    main()
