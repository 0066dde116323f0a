"""``lmq repair``: a stopped node whose files are damaged."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lmqcluster.replication import offline, salvage
from lmqcluster.replication.storage.disk import DamagedFileError

from ..shared.confirm import agreed, yes_option
from ..shared.data_folder import check_data_dir, hold_data_dir
from ..shared.errors import CliError, ExitCode
from ..shared.stopped_node import data_dir_option, disks_of, told

__all__ = ["repair"]


@click.command(short_help="Throw away the damaged data of a stopped node.")
@data_dir_option
@click.option(
    "--alone",
    is_flag=True,
    help="The node is its whole cluster: keep what can be read before the damage, lose the rest.",
)
@yes_option
def repair(data_dir: Path, alone: bool, yes: bool) -> None:
    """Throw away the log and snapshots of a stopped node whose files are damaged.

    The node keeps its identity. When it is started again, it takes no part in votes until it has everything from the other
    nodes, so use this only while a majority of them is well.

    A node that is alone has nobody to get anything from, and is refused. Restore a backup, or cut its log before the damage with
    --alone: what was acknowledged behind it is lost.

    \b
    Example:
      lmq repair --data-dir /var/lib/lmq
    """
    if not data_dir.is_dir():
        raise CliError(f"there is no data directory {data_dir}", ExitCode.CONFIGURATION)
    if alone:
        _repair_alone(data_dir, yes=yes)
        return
    with told():
        _refuse_if_alone(data_dir)
    agreed(f"throw away what {data_dir} holds, and get it from the other nodes", yes=yes)
    with told(), hold_data_dir(data_dir):
        meta = offline.discard_data(disks_of(data_dir))
    if meta is None:
        print(
            "The node's identity could not be read and is given up too. Start it with the peers that it was founded with and it"
            " comes back by itself; if it had joined, remove it from its cluster (lmq-admin remove) and let it join again.",
            file=sys.stderr,
        )


def _repair_alone(data_dir: Path, *, yes: bool) -> None:
    agreed(f"cut the log in {data_dir} before its first damage and lose what was acknowledged behind it", yes=yes)
    with told(), hold_data_dir(data_dir):
        left = salvage.salvage(disks_of(data_dir))
    print(f"The node keeps its log up to entry {left.last_index:,}; what was behind it is lost.", file=sys.stderr)


def _refuse_if_alone(data_dir: Path) -> None:
    # While a node runs, its files change under whoever reads them.
    check_data_dir(data_dir, in_use_ok=False)
    try:
        alone = salvage.is_alone(disks_of(data_dir))
    except DamagedFileError:
        # Whose folder it is cannot be told, which the repair says.
        return
    if alone:
        text = (
            f"the node of {data_dir} is alone, so nobody could give anything back to it: restore a backup into an empty folder"
            " (lmq-admin restore), or keep what can be read before the damage (lmq repair --alone)"
        )
        raise CliError(text, ExitCode.BAD_DATA)
