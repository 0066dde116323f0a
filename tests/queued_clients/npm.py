"""queued's published JavaScript client."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ..installing import one_at_a_time

__all__ = ["DEADLINE_S", "installed_client"]

CLIENT = "queued-client-js@0.2.3"
INSTALLED = Path(__file__).parents[2] / "build" / "queued-client-js"
DEADLINE_S = 300.0


def installed_client() -> Path:
    """Return the folder in which the client is installed; skip the test without npm."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    with one_at_a_time():
        if not (INSTALLED / "node_modules" / "queued-client-js").exists():
            INSTALLED.mkdir(parents=True, exist_ok=True)
            (INSTALLED / "package.json").write_text('{"private": true}\n', encoding="utf-8")
            command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", CLIENT]
            subprocess.run(command, cwd=INSTALLED, timeout=DEADLINE_S, check=True, capture_output=True)
    return INSTALLED
