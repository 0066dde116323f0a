"""``lmq repair``: discards the damaged data of a stopped node."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lmqcluster.replication.offline import data_directory as offline
from lmqcluster.replication.offline import salvage
from lmqcluster.replication.storage.io.disk import DamagedFileError

from ..shared.confirm import confirm, yes_option
from ..shared.data_folder import check_data_dir, hold_data_dir
from ..shared.errors import CliError, ExitCode
from ..shared.stopped_node import data_dir_option, data_errors, disks_of

__all__ = ["repair"]


@click.command(short_help="Discard the damaged data of a stopped node.")
@data_dir_option
@click.option(
    "--alone",
    is_flag=True,
    help="The node has no peers: keep the log before the damage, lose the rest.",
)
@yes_option
def repair(data_dir: Path, alone: bool, yes: bool) -> None:
    """Discard the log and snapshots of a stopped node whose files are damaged.

    The node keeps its identity. After the next start, it does not vote until it has copied everything from the other
    nodes. Use this only while a majority of the other nodes is healthy.

    A node without peers has no node to copy from, and is refused. Restore a backup, or truncate its log before the
    damage with --alone: acknowledged data after the damage is lost.

    \b
    Example:
      lmq repair --data-dir /var/lib/lmq
    """
    if not data_dir.is_dir():
        raise CliError(f"the data directory {data_dir} does not exist", ExitCode.CONFIGURATION)
    if alone:
        _repair_alone(data_dir, yes=yes)
        return
    with data_errors():
        _refuse_if_alone(data_dir)
    confirm(f"discard the data in {data_dir} and copy it from the other nodes", yes=yes)
    with data_errors(), hold_data_dir(data_dir):
        meta = offline.discard_data(disks_of(data_dir))
    if meta is None:
        print(
            "The node's identity could not be read and was discarded too. If the node is a founder, start it with the"
            " peers of its founding and it recovers; if it had joined, remove it (lmq-admin remove) and let it join again.",
            file=sys.stderr,
        )


def _repair_alone(data_dir: Path, *, yes: bool) -> None:
    confirm(f"truncate the log in {data_dir} before the damage and lose acknowledged data after it", yes=yes)
    with data_errors(), hold_data_dir(data_dir):
        left = salvage.salvage(disks_of(data_dir))
    print(f"The node keeps its log up to entry {left.last_index:,}; later entries are lost.", file=sys.stderr)


def _refuse_if_alone(data_dir: Path) -> None:
    # The files of a running node change while they are read.
    check_data_dir(data_dir)
    try:
        alone = salvage.is_alone(disks_of(data_dir))
    except DamagedFileError:
        # The repair itself reports that the identity cannot be read.
        return
    if alone:
        text = (
            f"the node of {data_dir} has no peers to copy from: restore a backup into an empty folder"
            " (lmq-admin restore), or keep the log before the damage (lmq repair --alone)"
        )
        raise CliError(text, ExitCode.BAD_DATA)
