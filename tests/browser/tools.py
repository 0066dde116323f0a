"""Tools of these tests beyond Python: Chromium, and axe-core, which checks the accessibility of a page.

If they are missing, they are installed: Chromium from Debian if the tests run as root, axe-core by npm.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from ..installing import needed_program, one_at_a_time

AXE = "axe-core@4.14.1"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
INSTALL_TIMEOUT_S = 600


def chromium() -> str:
    """Return the path of a Chromium.

    Raises:
        MissingProgramError: there is none, and it cannot be installed.
    """
    return next((path for name in BROWSERS if (path := shutil.which(name))), None) or needed_program(
        "chromium", "chromium"
    )


def axe_source() -> str:
    """Return the JavaScript of axe-core.

    Raises:
        RuntimeError: it cannot be fetched.
    """
    folder = Path(sys.prefix) / AXE.replace("@", "-")
    file = folder / "node_modules" / "axe-core" / "axe.min.js"
    npm = needed_program("npm", "npm")
    with one_at_a_time():
        if not file.exists():
            _run([npm, "install", "--no-save", "--no-audit", "--no-fund", "--prefix", str(folder), AXE])
    return file.read_text(encoding="utf-8")


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
