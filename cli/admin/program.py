"""The program ``lmq-admin``: inspects a cluster, changes its members, and works with queues and messages."""

from __future__ import annotations

import click

from ..shared.aliases import Deferred, SectionGroup
from ..shared.completion import completion_command
from ..shared.connection.reads import form_option
from ..shared.connection.target import Target, target_options
from ..shared.errors import EXIT_CODES_HELP, run
from ..shared.output import Form
from ..shared.version import version_command, version_option

__all__ = ["main"]


@click.group(cls=SectionGroup, epilog=EXIT_CODES_HELP, context_settings={"help_option_names": ["-h", "--help"]})
@version_option
@form_option
@target_options
def cli(target: Target, form: str | None) -> None:
    """Administer an lmqcluster cluster through one of its nodes.

    Output is a table on a terminal and tab-separated lines otherwise; --json prints JSON. NO_COLOR is honoured. The
    options below may also follow the command.
    """
    if form is not None:
        target.form = Form(form)


cli.add_section(
    "Look",
    [
        Deferred("status", "admin.cluster.cluster", "Show the nodes of the cluster."),
        Deferred("stats", "admin.cluster.cluster", "Show rates and waiting times of all queues."),
        Deferred("top", "admin.cluster.top", "Show live rates of queues and the state of nodes."),
        Deferred("check", "admin.cluster.check", "Check cluster health; exits non-zero on problems, for monitoring."),
    ],
)
cli.add_section(
    "Queues and messages",
    [
        Deferred("queue", "admin.queues.queues", "Create, list, show, change, bind, empty and delete queues."),
        Deferred("message", "admin.messages.messages", "Push, pull, settle and peek at single messages."),
        Deferred("defaults", "admin.queues.defaults", "Show and change the default properties of queues."),
        Deferred(
            "definitions",
            "admin.queues.definitions",
            "Export and import default properties, properties and bindings of queues, and tokens.",
        ),
        Deferred("job", "admin.messages.jobs", "List and forget the jobs of writers that store exactly once."),
        Deferred("subscription", "admin.messages.subscriptions", "List and release batch leases."),
        Deferred(
            "client",
            "admin.messages.clients",
            "List the clients of all nodes: connections, waiting pulls and held messages; close connections.",
        ),
        Deferred("schedule", "admin.schedules.schedules", "Add, list, pause and remove schedules."),
        Deferred("session", "admin.messages.sessions", "List sessions, and end those of dead clients."),
        Deferred("lock", "admin.messages.sessions", "List locks, and free those of stuck clients."),
    ],
)
cli.add_section(
    "Many messages",
    [
        Deferred("replay", "admin.transfer.replay", "Push the rows of a file into queues."),
        Deferred("drain", "admin.transfer.drain", "Write all messages of queues as JSON lines."),
        Deferred("import", "admin.imports.imports", "Import the messages of other queue servers into the cluster."),
        Deferred("bench", "admin.transfer.bench", "Measure the speed of the cluster."),
    ],
)
cli.add_section(
    "Members",
    [
        Deferred("replace", "admin.cluster.replace", "Replace a dead node by a new one."),
        Deferred("join", "admin.cluster.cluster", "Make the node join a peer's cluster."),
        Deferred("leave", "admin.cluster.cluster", "Remove the node from its cluster."),
        Deferred("remove", "admin.cluster.cluster", "Remove a dead node from the cluster."),
        Deferred("transfer-leader", "admin.cluster.cluster", "Transfer leadership to another node."),
    ],
)
cli.add_section(
    "One node and its data",
    [
        Deferred("log-level", "admin.cluster.log_level", "Show or change the log level of the node."),
        Deferred("snapshot", "admin.cluster.cluster", "Make the node write a snapshot of its state now."),
        Deferred("backup", "admin.cluster.backup", "Write the state of all queues to FILE."),
        Deferred("verify", "admin.cluster.verify", "Check that backups are complete and undamaged."),
        Deferred("restore", "admin.cluster.backup", "Create a new cluster from a backup."),
        Deferred("recover", "admin.cluster.backup", "Make a surviving node a one-node cluster after a quorum loss."),
    ],
)
cli.add_section(
    "Access",
    [
        Deferred(
            "token",
            "admin.access.tokens",
            "Create, list and delete tokens; once one exists, clients need one.",
        ),
        Deferred("context", "admin.access.context", "Name clusters and save how to reach them."),
        Deferred("tls", "admin.access.tls", "Create certificates for nodes, for client and peer connections."),
    ],
)
cli.add_command(
    completion_command(
        cli,
        "lmq-admin",
        "commands, options, and the names of queues, nodes, contexts, tokens, rules, subscriptions, jobs, schedules, sessions, "
        "locks and columns",
    )
)
cli.add_command(version_command("lmq-admin"))


def main() -> None:
    """Entry point of the script."""
    run(cli, "lmq-admin")
