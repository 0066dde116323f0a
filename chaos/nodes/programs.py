"""The other program of a rolling upgrade: the last release from git's history, or else a stand-in for the next one.

Only releases promise that their nodes can serve together with those of this version, so other revisions are used only
on request. All use the installed dependencies.
"""

from __future__ import annotations

import io
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Final

from ..errors import DrillError

__all__ = ["from_git", "last_release", "next_release", "parse_program"]

_PACKAGE: Final = "lmqcluster"
_GIT: Final = "git:"
_GIT_S: Final = 60.0
_NOW: Final = """\
from runpy import run_module

if __name__ == "__main__":
    run_module("lmqcluster_cli.lmq", run_name="__main__")
"""
_NEXT: Final = """\
from runpy import run_module

from lmqcluster.core.state.state import State

if __name__ == "__main__":
    State.VERSION_MAX += 1
    run_module("lmqcluster_cli.lmq", run_name="__main__")
"""


def parse_program(text: str, folder: Path) -> tuple[str, ...]:
    """Return the command line of an ``--old-program``; for ``git:REVISION``, build the program in `folder` first.

    Raises:
        DrillError: the revision does not exist, or the option is empty.
    """
    if text.startswith(_GIT):
        return from_git(text.removeprefix(_GIT), folder)
    command = tuple(shlex.split(text))
    if not command:
        raise DrillError("--old-program names no program")
    return command


def last_release(folder: Path, checkout: Path | None = None) -> tuple[str, ...] | None:
    """Return the newest release before this version, built in `folder`; None if git's history has none, as in a shallow
    clone.

    Args:
        folder: a directory to create.
        checkout: a working copy, by default the one that this program was installed from.
    """
    root = checkout or _root()
    if not (root / ".git").exists() or shutil.which("git") is None:
        return None
    tag = _git(root, "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD^")
    return None if tag.returncode != 0 else from_git(tag.stdout.decode().strip(), folder, root)


def from_git(revision: str, folder: Path, checkout: Path | None = None) -> tuple[str, ...]:
    """Build a revision in `folder`; return its command line.

    Raises:
        DrillError: this is not a working copy, or it has no such revision.
    """
    root = checkout or _root()
    archive = _git(root, "archive", "--format=zip", revision, "--", _PACKAGE, "cli", "pyproject.toml")
    if archive.returncode != 0:
        raise DrillError(f"git cannot export revision {revision!r} of {root}: {archive.stderr.decode().strip()}")
    with zipfile.ZipFile(io.BytesIO(archive.stdout)) as files:
        files.extractall(folder)
    (folder / "cli").rename(folder / f"{_PACKAGE}_cli")
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return _launcher(folder, _NOW, f"{project['version']} of {revision}")


def next_release(folder: Path) -> tuple[str, ...]:
    """Return a stand-in for the next release, built in `folder`: it supports the next machine version."""
    return _launcher(folder, _NEXT, f"{version(_PACKAGE)}+next")


def _launcher(folder: Path, script: str, reported: str) -> tuple[str, ...]:
    """Write a launcher whose folder shadows the installed package and its version; return its command line."""
    about = folder / f"{_PACKAGE}-0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {_PACKAGE}\nVersion: {reported}\n", encoding="utf-8")
    path = folder / "lmq.py"
    path.write_text(script, encoding="utf-8")
    return sys.executable, str(path)


def _root() -> Path:
    return Path(__file__).resolve().parents[2]


def _git(root: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["git", *arguments], cwd=root, capture_output=True, timeout=_GIT_S, check=False)  # noqa: S607
    except FileNotFoundError as exc:
        raise DrillError("git is not installed") from exc
