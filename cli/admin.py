"""The program ``lmq-admin``: look at a cluster, change its members, work with queues and messages."""

from __future__ import annotations

from importlib.metadata import version

import click

from .admin_backup import backup, recover, restore
from .admin_bench import bench
from .admin_check import check
from .admin_cluster import join, leave, remove, snapshot, stats, status, transfer_leader
from .admin_defaults import defaults
from .admin_drain import drain
from .admin_log_level import log_level
from .admin_messages import message
from .admin_queues import queue
from .admin_replay import replay
from .admin_subscriptions import subscription
from .admin_tls import tls
from .admin_tokens import token
from .admin_top import top
from .aliases import SectionGroup
from .completion import completion_command
from .errors import EXIT_CODES_HELP, run
from .output import Form
from .reads import form_option
from .target import Target, target_options

__all__ = ["main"]


@click.group(cls=SectionGroup, epilog=EXIT_CODES_HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("lmqcluster"), package_name="lmqcluster", message="lmqcluster %(version)s")
@form_option
@target_options
def cli(target: Target, form: str | None) -> None:
    """Administer an lmqcluster cluster through one of its nodes.

    Output is a table on a terminal and tab-separated lines otherwise; --json prints JSON. NO_COLOR is honoured. The options
    below may also stand behind the command.
    """
    if form is not None:
        target.form = Form(form)


cli.add_section("Look", [status, stats, top, check])
cli.add_section("Queues and messages", [queue, message, defaults, subscription])
cli.add_section("Many messages", [replay, drain, bench])
cli.add_section("Members", [join, leave, remove, transfer_leader])
cli.add_section("One node and its data", [log_level, snapshot, backup, restore, recover])
cli.add_section("Access", [token, tls])
cli.add_command(
    completion_command(
        cli, "lmq-admin", "commands, options, and the names of queues, nodes, tokens, rules, subscriptions and columns"
    )
)


def main() -> None:
    """Entry point of the script."""
    run(cli, "lmq-admin")


if __name__ == "__main__":
    main()
