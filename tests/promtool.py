"""Prometheus, and promtool, its own checker of metrics and rules: from PATH, else unpacked from Debian's package
``prometheus``.

The programs are kept below ``$XDG_CACHE_HOME/lmqcluster`` (default ``~/.cache/lmqcluster``), so they are fetched only once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from .installing import one_at_a_time

__all__ = ["check_metrics", "prometheus", "promtool", "run"]

_TIMEOUT_S = 600.0


def promtool() -> str:
    """Return the checker.

    Raises:
        RuntimeError: it is not available; the text says what to install.
    """
    return _program("promtool")


def prometheus() -> str:
    """Return the server.

    Raises:
        RuntimeError: it is not available; the text says what to install.
    """
    return _program("prometheus")


@cache
def _program(name: str) -> str:
    found = shutil.which(name)
    if found is not None:
        return found
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lmqcluster"
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / name
    with one_at_a_time():
        if not kept.exists():
            _unpack(kept)
    return str(kept)


def _unpack(target: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise RuntimeError(f"these tests need {target.name}, a part of Prometheus: install it, and put it on PATH")
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        folder = Path(name)
        download = ["apt-get", "download", "prometheus"]
        if _call(download, folder).returncode != 0:
            # A fresh image has no package lists.
            _call(["apt-get", "update"], folder)
            done = _call(download, folder)
            if done.returncode != 0:
                reason = done.stderr.strip()[-300:]
                raise RuntimeError(f"these tests need {target.name}: install Debian's package prometheus ({reason})")
        (package,) = folder.glob("prometheus_*.deb")
        done = _call(["dpkg", "-x", package.name, "unpacked"], folder)
        if done.returncode != 0:
            raise RuntimeError(f"{package.name} cannot be unpacked: {done.stderr.strip()[-300:]}")
        (folder / "unpacked/usr/bin" / target.name).replace(target)


def _call(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)


def run(*arguments: str | Path, text: str | None = None) -> str:
    """Return promtool's output for these arguments.

    Raises:
        AssertionError: it found an error.
    """
    done = subprocess.run(
        [promtool(), *map(str, arguments)], input=text, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, f"promtool {' '.join(map(str, arguments))}:\n{done.stdout}{done.stderr}"
    return done.stdout


def check_metrics(page: str) -> None:
    """Check a page of metrics: its form, and its names by the conventions."""
    run("check", "metrics", text=page)
