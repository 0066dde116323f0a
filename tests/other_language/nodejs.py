"""Node.js: from PATH, else Debian's package, which is installed if the tests run as root."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache

import pytest

from ..installing import one_at_a_time

__all__ = ["nodejs"]

_MAJOR_MIN = 18
_INSTALL_TIMEOUT_S = 600.0


@cache
def nodejs() -> str:
    """Return the program; skip the test if it is missing and cannot be installed."""
    with one_at_a_time():
        found = _found()
        if found is None and os.geteuid() == 0 and shutil.which("apt-get") is not None:
            _apt("update")
            _apt("install", "--yes", "--no-install-recommends", "nodejs")
            found = _found()
    if found is None:
        pytest.skip(f"Node.js {_MAJOR_MIN} or newer is not installed, and only root can install it")
    return found


def _found() -> str | None:
    path = shutil.which("node")
    if path is None:
        return None
    version = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    return path if int(version.removeprefix("v").partition(".")[0]) >= _MAJOR_MIN else None


def _apt(*arguments: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "-qq", *arguments], env=environment, timeout=_INSTALL_TIMEOUT_S, check=True)
