"""``lmq-admin backup | restore | recover``: a cluster's state in a file, and what can be done when a quorum is lost."""

from __future__ import annotations

import os
import sys
import uuid
from pathlib import Path
from typing import Final

import click

from lmqcluster.replication import offline
from lmqcluster.replication.storage.disk import Folder
from lmqcluster.replication.storage.snapshot_file import PREFIX
from lmqcluster.wire.address import Address

from ..shared.confirm import confirm, yes_option
from ..shared.data_folder import hold_data_dir
from ..shared.errors import CliError, ExitCode, cannot_write
from ..shared.output import human_bytes, print_json
from ..shared.stopped_node import data_dir_option, data_errors, disks_of
from ..shared.target import Target, target_options

__all__ = ["backup", "recover", "restore"]

SNAPSHOT_TIMEOUT_S: Final = 600.0


@click.command(short_help="Write the state of all queues to FILE.")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@target_options
def backup(target: Target, file: Path) -> None:
    """Write the state of all queues, as of now, to FILE.

    The file appears under its name when it is complete and has been checked; only its owner may read it. `restore`
    makes a new cluster of it.

    \b
    Example:
      lmq-admin backup cluster.backup
    """
    if file.exists():
        raise CliError(f"{file} exists; give a new file", ExitCode.USAGE)
    info = target.api.post("/v1/snapshots", {}, timeout_s=SNAPSHOT_TIMEOUT_S)
    draft = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        # It holds all messages, and the hashes of all tokens.
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            out.write(PREFIX)
            for number in range(info["blocks"]):
                out.write(target.api.get_bytes(f"/v1/snapshots/{info['index']}/blocks/{number}"))
            out.flush()
            os.fsync(out.fileno())
        with data_errors():
            offline.verify(Folder(draft.parent), draft.name)
        draft.replace(file)
    except OSError as exc:
        raise cannot_write(file, exc) from exc
    finally:
        draft.unlink(missing_ok=True)
    if target.as_json:
        print_json({**info, "file": str(file)})
    elif sys.stdout.isatty():
        print(f"{file} holds everything up to entry {info['index']:,}, {human_bytes(info['size_bytes'])}.")


@click.command(short_help="Make a new cluster from a backup.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@data_dir_option
@click.option("--raft", default="127.0.0.1:19980", show_default=True, help="Raft address that the node will have.")
def restore(file: Path, data_dir: Path, raft: str) -> None:
    """Make the new data directory of a cluster of one from the backup FILE.

    Start it with `lmq start --data-dir DIR`; further nodes join it. Messages are as they were when the backup was taken: what was
    acknowledged since then comes again, what was pushed since then is missing.

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
        print(f"{data_dir} holds everything up to entry {index:,}. Start it with: lmq start --data-dir {data_dir}")


@click.command(short_help="Make the survivor of a lost quorum a cluster of its own.")
@data_dir_option
@yes_option
def recover(data_dir: Path, yes: bool) -> None:
    """Make a stopped node the only member of its cluster, when most of the others are lost for ever.

    Messages that only the lost nodes held are gone; messages of which nobody had been told yet may appear. The lost nodes must
    never start with their data again; empty ones can join the survivor. Take the survivor with the longest log.

    \b
    Example:
      lmq-admin recover --data-dir /var/lib/lmq
    """
    with data_errors(), hold_data_dir(data_dir):
        found = offline.remains(disks_of(data_dir))
        others = sorted(set(found.members) - {found.node_id})
        print(
            f"Node {found.node_id} holds the log up to entry {found.last_index:,} (term {found.last_term}), with a snapshot of "
            f"entry {found.snapshot_index:,}. It will go on alone, without {', '.join(others) or 'any other'}.",
            file=sys.stderr,
        )
        print("What the others acknowledged behind that entry is lost.", file=sys.stderr)
        confirm(f"make node {found.node_id} a cluster of its own", yes=yes)
        offline.recover(disks_of(data_dir))
    print(f"Start it with: lmq start --data-dir {data_dir}", file=sys.stderr)
