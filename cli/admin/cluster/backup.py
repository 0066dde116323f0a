"""``lmq-admin backup | restore | recover``: a backup of a cluster, and recovery after a quorum loss."""

from __future__ import annotations

import os
import sys
import uuid
from pathlib import Path
from typing import Final

import click

from lmqcluster.replication.offline import data_directory as offline
from lmqcluster.replication.storage.io.disk import Folder
from lmqcluster.replication.storage.snapshots.snapshot_file import PREFIX
from lmqcluster.wire.address import Address

from ...shared.confirm import confirm, yes_option
from ...shared.connection.target import Target, target_options
from ...shared.data_folder import hold_data_dir
from ...shared.errors import CliError, ExitCode, cannot_write
from ...shared.output import human_bytes, print_json
from ...shared.stale import take_stale
from ...shared.stopped_node import data_dir_option, data_errors, disks_of
from .backup_folder import new_backup, remove_old

__all__ = ["backup", "recover", "restore"]

SNAPSHOT_TIMEOUT_S: Final = 600.0


@click.command(short_help="Write the state of all queues to FILE.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--keep",
    metavar="N",
    type=click.IntRange(1),
    help="FILE is a folder: write a new file into it, then remove all but the newest N backups.",
)
@click.option("--stale-ok", is_flag=True, help="Without a quorum, write what the node knew last.")
@target_options
def backup(target: Target, file: Path, keep: int | None, stale_ok: bool) -> None:
    """Write the state of all queues, as of now, to FILE.

    The file appears under its name when it is complete and verified; only its owner can read it. `restore` creates a
    new cluster from it. A node that is cut off from its cluster may not know the latest changes: the command then fails
    with 69 and writes nothing, unless --stale-ok is given.

    If FILE is a folder, the file gets a name with the time in UTC.

    \b
    Example:
      lmq-admin backup cluster.backup
      lmq-admin backup /var/backups/lmq --keep 14
    """
    if keep is not None and not file.is_dir():
        raise CliError(f"{file} is no folder; --keep needs one", ExitCode.USAGE)
    if file.is_dir():
        file = new_backup(file)
    if file.exists():
        raise CliError(f"{file} already exists; choose a new file", ExitCode.USAGE)
    info = target.api.post("/v1/snapshots", {"stale_ok": stale_ok}, timeout_s=SNAPSHOT_TIMEOUT_S)
    if info["stale"]:
        take_stale()
        click.echo(
            f"lmq-admin: {target.node} is cut off from its cluster: {file} may lack the latest changes", err=True
        )
    draft = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        # The file contains all messages and the hashes of all tokens.
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            out.write(PREFIX)
            for number in range(info["blocks"]):
                out.write(target.api.get_bytes(f"/v1/snapshots/{info['index']}/blocks/{number}"))
            out.flush()
            os.fsync(out.fileno())
        with data_errors():
            offline.verify(Folder(draft.parent), draft.name)
        draft.replace(file)
        removed = [] if keep is None else remove_old(file, keep)
    except OSError as exc:
        raise cannot_write(file, exc) from exc
    finally:
        draft.unlink(missing_ok=True)
    if target.as_json:
        print_json({**info, "file": str(file), "removed": [str(one) for one in removed]})
    elif sys.stdout.isatty():
        print(f"{file} contains the state up to entry {info['index']:,}, {human_bytes(info['size_bytes'])}.")


@click.command(short_help="Create a new cluster from a backup.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@data_dir_option
@click.option("--raft", default="127.0.0.1:19980", show_default=True, help="Raft address of the node.")
def restore(file: Path, data_dir: Path, raft: str) -> None:
    """Create the data directory of a new one-node cluster from the backup FILE.

    Start it with `lmq start --data-dir DIR`; further nodes join it. Messages are as of the time of the backup: those
    acknowledged later are delivered again, those pushed later are missing.

    \b
    Example:
      lmq-admin restore cluster.backup --data-dir /var/lib/lmq
    """
    try:
        address = str(Address.parse(raft))
    except ValueError as exc:
        raise click.BadParameter(str(exc), param_hint="--raft") from exc
    with data_errors(), hold_data_dir(data_dir):
        index = offline.restore(
            Folder(file.absolute().parent), file.name, disks_of(data_dir), uuid.uuid4().hex, address
        )
    if sys.stdout.isatty():
        print(f"{data_dir} contains the state up to entry {index:,}. Start it with: lmq start --data-dir {data_dir}")


@click.command(short_help="Make a surviving node a one-node cluster after a quorum loss.")
@data_dir_option
@yes_option
def recover(data_dir: Path, yes: bool) -> None:
    """Make a stopped node the only member of its cluster, after most of the others are lost for good.

    Messages that only the lost nodes held are lost; messages whose pushes were not yet answered may appear. The lost
    nodes must never start with their old data; with empty data directories they can join the survivor. Choose the
    survivor with the longest log.

    \b
    Example:
      lmq-admin recover --data-dir /var/lib/lmq
    """
    with data_errors(), hold_data_dir(data_dir):
        found = offline.remains(disks_of(data_dir))
        others = sorted(set(found.members) - {found.node_id})
        print(
            f"Node {found.node_id} holds the log up to entry {found.last_index:,} (term {found.last_term}), with a snapshot of "
            f"entry {found.snapshot_index:,}. It will continue without {', '.join(others) or 'any other node'}.",
            file=sys.stderr,
        )
        print("Later entries that the others acknowledged are lost.", file=sys.stderr)
        confirm(f"make node {found.node_id} a one-node cluster", yes=yes)
        offline.recover(disks_of(data_dir))
    print(f"Start it with: lmq start --data-dir {data_dir}", file=sys.stderr)
