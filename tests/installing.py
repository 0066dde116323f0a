"""Installing what tests need beyond Python: one test process at a time, because package managers do not wait for one another."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

__all__ = ["debian_program", "one_at_a_time"]

_INSTALL_TIMEOUT_S = 600.0


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """While one test process installs something the others wait; they then find it."""
    with (Path(tempfile.gettempdir()) / "lmqcluster-test-tools.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@cache
def debian_program(name: str, *packages: str) -> str:
    """Return a program from PATH. If it is missing, root installs Debian's packages; else the test is skipped."""
    with one_at_a_time():
        found = shutil.which(name)
        if found is None and os.geteuid() == 0 and shutil.which("apt-get") is not None:
            _apt("update")
            _apt("install", "--yes", "--no-install-recommends", *packages)
            found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed, and only root of Debian can install {', '.join(packages)}")
    return found


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
        pytest.skip(f"apt-get {arguments[0]} failed: {done.stderr[-300:]}")
