"""Node.js: from PATH, else Debian's package, which is installed if the tests run as root."""

from __future__ import annotations

import subprocess
from functools import cache

import pytest

from ..installing import debian_program

__all__ = ["nodejs"]

_MAJOR_MIN = 18


@cache
def nodejs() -> str:
    """Return the program; skip the test if it is missing or too old, and cannot be installed."""
    path = debian_program("node", "nodejs")
    version = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    if int(version.removeprefix("v").partition(".")[0]) < _MAJOR_MIN:
        pytest.skip(f"Node.js is older than {_MAJOR_MIN}: {version.strip()}")
    return path
