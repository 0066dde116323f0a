"""Shared parts of commands on the data directory of a stopped node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from lmqcluster.replication.storage.io.disk import DamagedFileError, Folder
from lmqcluster.replication.storage.node_storage import Disks

from .errors import CliError, ExitCode

__all__ = ["data_dir_option", "data_errors", "disks_of"]

data_dir_option = click.option(
    "--data-dir",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Data directory of the node, which must be stopped.",
)


def disks_of(data_dir: Path) -> Disks:
    """Return a function that opens the folders of a node."""
    return lambda name: Folder(data_dir / name)


@contextmanager
def data_errors() -> Iterator[None]:
    """Raise damaged, missing or existing node data as an error of the program."""
    try:
        yield
    except DamagedFileError as exc:
        raise CliError(str(exc), ExitCode.BAD_DATA) from exc
    except (LookupError, FileExistsError) as exc:
        raise CliError(f"the data directory cannot be used: {exc}", ExitCode.CONFIGURATION) from exc
