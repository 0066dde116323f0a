"""Installing what tests need beyond Python: one test process at a time, because package managers do not wait for one another."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

__all__ = ["MissingProgramError", "debian_file", "debian_program", "needed_program", "one_at_a_time"]

_INSTALL_TIMEOUT_S = 600.0


class MissingProgramError(RuntimeError):
    """A program that tests need is not installed."""


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """While one test process installs something the others wait; they then find it."""
    with (Path(tempfile.gettempdir()) / "lmqcluster-test-tools.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@cache
def debian_program(name: str, *packages: str) -> str:
    """Return a program, from Debian's packages if it is missing; skip the test if they cannot be installed."""
    try:
        return needed_program(name, *packages)
    except MissingProgramError as exc:
        pytest.skip(str(exc))


@cache
def needed_program(name: str, *packages: str) -> str:
    """Return a program, from Debian's packages if it is missing and the tests run as root.

    Raises:
        MissingProgramError: they cannot be installed; the text says what to install.
    """
    with one_at_a_time():
        found = _found(name)
        if found is None:
            _install(packages)
            found = _found(name)
    if found is None:
        raise MissingProgramError(f"{name} is missing: install the Debian packages {', '.join(packages)}")
    return found


@cache
def debian_file(path: Path, *packages: str) -> Path:
    """Return a file of Debian's packages, installed if it is missing; skip the test if they cannot be installed."""
    try:
        with one_at_a_time():
            if not path.exists():
                _install(packages)
    except MissingProgramError as exc:
        pytest.skip(str(exc))
    if not path.exists():
        pytest.skip(f"{path} is missing: install the Debian packages {', '.join(packages)}")
    return path


def _install(packages: Sequence[str]) -> None:
    """Install Debian's packages if the tests run as root."""
    if os.geteuid() == 0 and shutil.which("apt-get") is not None:
        _apt("update")
        _apt("install", "--yes", "--no-install-recommends", *packages)


def _found(name: str) -> str | None:
    # Servers are in /usr/sbin, which is not on every PATH.
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def _apt(*arguments: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        ["apt-get", "-qq", *arguments],
        env=environment,
        timeout=_INSTALL_TIMEOUT_S,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise MissingProgramError(f"apt-get {' '.join(arguments)} failed: {done.stderr[-300:]}")
