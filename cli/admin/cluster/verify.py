"""``lmq-admin verify``: checks backups."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lmqcluster.replication.offline import data_directory as offline
from lmqcluster.replication.storage.io.disk import Folder

from ...shared.stopped_node import data_errors

__all__ = ["verify"]


@click.command(short_help="Check that backups are complete and undamaged.")
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
def verify(files: tuple[Path, ...]) -> None:
    """Check that each FILE is a complete, undamaged backup that `restore` accepts. Exits with 65 at the first that is not.

    The command reads all of the file, and needs neither a node nor much memory.

    \b
    Example:
      lmq-admin verify cluster.backup
    """
    for file in files:
        with data_errors():
            offline.verify(Folder(file.absolute().parent), file.name)
        if sys.stdout.isatty():
            print(f"{file} is a complete backup.")
