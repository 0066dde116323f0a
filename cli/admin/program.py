"""The program ``lmq-admin``: look at a cluster, change its members, work with queues and messages."""

from __future__ import annotations

import click

from ..shared.aliases import Deferred, SectionGroup
from ..shared.completion import completion_command
from ..shared.errors import EXIT_CODES_HELP, run
from ..shared.output import Form
from ..shared.reads import form_option
from ..shared.target import Target, target_options

__all__ = ["main"]


@click.group(cls=SectionGroup, epilog=EXIT_CODES_HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="lmqcluster", message="lmqcluster %(version)s")
@form_option
@target_options
def cli(target: Target, form: str | None) -> None:
    """Administer an lmqcluster cluster through one of its nodes.

    Output is a table on a terminal and tab-separated lines otherwise; --json prints JSON. NO_COLOR is honoured. The options
    below may also stand behind the command.
    """
    if form is not None:
        target.form = Form(form)


cli.add_section(
    "Look",
    [
        Deferred("status", "admin.cluster", "Show the nodes of the cluster."),
        Deferred("stats", "admin.cluster", "Show rates and waiting times of all queues."),
        Deferred("top", "admin.top", "Show live rates of queues and the state of nodes."),
        Deferred("check", "admin.check", "Say whether all is well; for monitoring systems too."),
    ],
)
cli.add_section(
    "Queues and messages",
    [
        Deferred("queue", "admin.queues", "List, show, change, bind, empty and delete queues."),
        Deferred("message", "admin.messages", "Push, pull, settle and look at single messages."),
        Deferred("defaults", "admin.defaults", "Show and change the default properties of queues."),
        Deferred(
            "definitions",
            "admin.definitions",
            "Export and import default properties, properties and bindings of queues, and tokens.",
        ),
        Deferred("job", "admin.jobs", "List the jobs of writers that store exactly once, and forget them."),
        Deferred("subscription", "admin.subscriptions", "List batch leases, and give them back."),
        Deferred(
            "client",
            "admin.clients",
            "List the clients of all nodes: connections, waiting pulls, and who holds messages.",
        ),
        Deferred("session", "admin.sessions", "List sessions, and end those whose clients are gone."),
        Deferred("lock", "admin.sessions", "List locks, and free those whose clients are stuck."),
    ],
)
cli.add_section(
    "Many messages",
    [
        Deferred("replay", "admin.replay", "Push the rows of a file into queues."),
        Deferred("drain", "admin.drain", "Write all messages of queues as JSON lines."),
        Deferred("import", "admin.imports", "Take the messages of other queue servers over into the cluster."),
        Deferred("bench", "admin.bench", "Measure how fast the cluster is."),
    ],
)
cli.add_section(
    "Members",
    [
        Deferred("join", "admin.cluster", "Make the node join a peer's cluster."),
        Deferred("leave", "admin.cluster", "Take the node out of its cluster."),
        Deferred("remove", "admin.cluster", "Take a dead node out of the cluster."),
        Deferred("transfer-leader", "admin.cluster", "Have the leader hand over."),
    ],
)
cli.add_section(
    "One node and its data",
    [
        Deferred("log-level", "admin.log_level", "Show or change how much the node logs."),
        Deferred("snapshot", "admin.cluster", "Have the node write a snapshot of its state now."),
        Deferred("backup", "admin.backup", "Write the state of all queues to FILE."),
        Deferred("restore", "admin.backup", "Make a new cluster from a backup."),
        Deferred("recover", "admin.backup", "Make the survivor of a lost quorum a cluster of its own."),
    ],
)
cli.add_section(
    "Access",
    [
        Deferred(
            "token",
            "admin.tokens",
            "Create, list and delete tokens; once there is one, clients need one.",
        ),
        Deferred("context", "admin.context", "Give clusters names, and say once how each is reached."),
        Deferred("tls", "admin.tls", "Make certificates for the nodes: for their clients, and between them."),
    ],
)
cli.add_command(
    completion_command(
        cli,
        "lmq-admin",
        "commands, options, and the names of queues, nodes, contexts, tokens, rules, subscriptions, jobs, sessions, locks and "
        "columns",
    )
)


def main() -> None:
    """Entry point of the script."""
    run(cli, "lmq-admin")
