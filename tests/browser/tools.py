"""Tools of these tests beyond Python: Chromium, and axe-core, which checks the accessibility of a page.

If they are missing, they are installed: Chromium from Debian if the tests run as root, axe-core by npm.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from ..installing import one_at_a_time

AXE = "axe-core@4.14.1"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
INSTALL_TIMEOUT_S = 600


def chromium() -> str:
    """Return the path of a Chromium.

    Raises:
        RuntimeError: there is none, and it cannot be installed.
    """
    with one_at_a_time():
        return _browser() or _install("chromium", _browser)


def axe_source() -> str:
    """Return the JavaScript of axe-core.

    Raises:
        RuntimeError: it cannot be fetched.
    """
    folder = Path(sys.prefix) / AXE.replace("@", "-")
    file = folder / "node_modules" / "axe-core" / "axe.min.js"
    with one_at_a_time():
        if not file.exists():
            npm = _npm() or _install("npm", _npm)
            _run([npm, "install", "--no-save", "--no-audit", "--no-fund", "--prefix", str(folder), AXE])
    return file.read_text(encoding="utf-8")


def _browser() -> str | None:
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def _npm() -> str | None:
    return shutil.which("npm")


def _install(package: str, find: Callable[[], str | None]) -> str:
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        raise RuntimeError(f"{package} is not installed: apt-get install {package}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    _run([apt, "-qq", "update"], environment)
    _run([apt, "-qq", "-y", "install", "--no-install-recommends", package], environment)
    found = find()
    if found is None:
        raise RuntimeError(f"apt-get has installed {package}, but it is not on the path")
    return found


def _run(command: list[str], environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
