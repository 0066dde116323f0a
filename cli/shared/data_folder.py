"""The data directory of a node, used by one process at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lmqcluster.node.config.config_error import ConfigError

__all__ = ["check_data_dir", "check_folder", "hold_data_dir"]

PID_FILE = "lmq.pid"
STOP_IT = "stop the node first"


@contextmanager
def hold_data_dir(directory: Path, advice: str = STOP_IT) -> Iterator[None]:
    """Create the directory if needed, and lock it against other nodes.

    The lock ends with the process, so a killed node leaves nothing to clean up. On failure, directories created by this
    call are removed.

    Args:
        advice: what to do if a node runs in the directory.

    Raises:
        ConfigError: the directory cannot be used, or a node runs in it.
    """
    absent = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as exc:
        raise ConfigError(f"cannot use the data directory {directory}: {exc.strerror}") from exc
    try:
        _lock(handle, directory, advice)
        yield
    except BaseException:
        _remove_empty(absent)
        raise
    finally:
        os.close(handle)


def check_folder(directory: Path, purpose: str) -> None:
    """Check that files can be created in a directory, or that it can be created; create nothing.

    Raises:
        ConfigError: they cannot.
    """
    nearest = next(path for path in (directory.absolute(), *directory.absolute().parents) if os.path.lexists(path))
    if not nearest.is_dir():
        raise ConfigError(f"cannot use the {purpose} {directory}: {nearest} is not a directory")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise ConfigError(f"cannot use the {purpose} {directory}: {nearest} is not writable")


def check_data_dir(directory: Path, advice: str | None = STOP_IT) -> None:
    """Check that a node could run in the directory; create nothing.

    Args:
        advice: what to do if a node runs there already; None if one may.

    Raises:
        ConfigError: a node could not run there.
    """
    check_folder(directory, "data directory")
    if advice is None or not directory.is_dir():
        return
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _lock(handle, directory, advice)
    finally:
        os.close(handle)


def _remove_empty(directories: list[Path]) -> None:
    for directory in directories:
        for path in (*directory.glob("*/"), directory):
            # A directory that is not empty is kept.
            with suppress(OSError):
                path.rmdir()


def _lock(handle: int, directory: Path, advice: str) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = _holder(directory)
        raise ConfigError(f"a node{holder} is using the data directory {directory}; {advice}") from None


def _holder(directory: Path) -> str:
    try:
        return f" (process {int((directory / PID_FILE).read_text(encoding='ascii'))})"
    except (OSError, ValueError):
        return ""
