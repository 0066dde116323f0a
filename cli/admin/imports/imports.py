"""``lmq-admin import``: imports the messages of other queue servers."""

from __future__ import annotations

import click

from ...shared.aliases import AliasGroup, Deferred

__all__ = ["imports"]


@click.group("import", cls=AliasGroup)
def imports() -> None:
    """Import the messages of other queue servers into the cluster."""


imports.add_command(Deferred("kestrel", "admin.imports.import_kestrel", "Read Kestrel's journals into queues."))
imports.add_command(
    Deferred(
        "kestrel-config",
        "admin.imports.import_kestrel_config",
        "Print commands for the settings of Kestrel's configuration file.",
    )
)
imports.add_command(Deferred("queued", "admin.imports.import_queued", "Drain the queues of a running queued."))
imports.add_command(Deferred("sqs", "admin.imports.import_sqs", "Drain queues of Amazon SQS."))
