"""``lmq-drill`` in an installation without the extra ``drill``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# Python then finds no package of this name, as after an installation without the extra.
_WITHOUT = "import sys; sys.modules['toxiproxy'] = None; from lmqcluster_chaos.cli import main; main()"


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _WITHOUT, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)


def test_scenarios_are_listed() -> None:
    done = _run("list")
    assert (done.returncode, done.stderr) == (0, "")
    assert "client_crash" in done.stdout


def test_a_drill_names_the_extra(tmp_path: Path) -> None:
    done = _run("run", "client_crash", "--out", str(tmp_path / "drills"))
    assert done.returncode == 78
    assert "Traceback" not in done.stderr
    assert "install lmqcluster with the extra drill" in done.stderr.splitlines()[-1]
