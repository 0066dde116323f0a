"""Compiles the library that is loaded between a node and its system.

It is cached below ``$XDG_CACHE_HOME/lmqcluster`` (default ``~/.cache/lmqcluster``), so it is compiled once for each
machine.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from ..errors import MissingToolError

__all__ = ["cache_folder", "interposer", "run_tool"]

_BUILD_S = 600.0
_SOURCE = Path(__file__).parents[1] / "native" / "interpose.c"


def cache_folder() -> Path:
    """Return the cache folder of tools; create it if necessary."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lmqcluster"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@cache
def interposer() -> Path:
    """Return the library for LD_PRELOAD, compiled from interpose.c.

    Raises:
        MissingToolError: this is not Linux, or there is no C compiler.
    """
    if platform.system() != "Linux":
        raise MissingToolError(f"drills inject faults with LD_PRELOAD, which {platform.system()} lacks: use Linux")
    stamp = hashlib.sha256(_SOURCE.read_bytes() + platform.machine().encode()).hexdigest()[:16]
    kept = cache_folder() / f"interpose-{stamp}.so"
    if not kept.exists():
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise MissingToolError("drills need a C compiler for faults of disk and clock: install gcc or clang")
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
            built = Path(folder) / kept.name
            flags = ["-O2", "-Wall", "-shared", "-fPIC", "-o", str(built), str(_SOURCE), "-ldl", "-lpthread"]
            run_tool([compiler, *flags], f"compiling {_SOURCE.name}", dict(os.environ))
            built.replace(kept)
    return kept


def run_tool(command: list[str], what: str, environment: dict[str, str]) -> None:
    """Run a program that builds a tool.

    Raises:
        MissingToolError: it fails; the text contains the end of its output.
    """
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_BUILD_S,
        check=False,
        cwd=tempfile.gettempdir(),
    )
    if done.returncode != 0:
        text = (done.stderr or done.stdout).strip()[-500:]
        raise MissingToolError(f"{what} failed ({' '.join(command[:2])}): {text}")
