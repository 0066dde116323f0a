"""The programs that the benchmark builds with Go: the load generator, and nats-server if none is installed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tests.benchmarks.processes import find_program

ROOT: Final = Path(__file__).parents[3]
GENERATOR: Final = ROOT / "tests" / "benchmarks" / "generator"
BUILT: Final = ROOT / "build" / "benchmarks"
NATS_MODULE: Final = "github.com/nats-io/nats-server/v2@latest"
NATS_VERSION_MIN: Final = (2, 15)
BUILD_S: Final = 600.0


class MissingProgramError(Exception):
    """A program is missing and cannot be built."""


def build_generator(folder: Path = BUILT) -> Path:
    """Build the load generator and return its path.

    Raises:
        MissingProgramError: Go is missing or fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "generator"
    _go("build", "-o", str(program), ".", folder=GENERATOR)
    return program


def nats_server(given: str | None = None) -> Path:
    """Return a nats-server of the least version: the given one, that on the path, or one that is built.

    Raises:
        MissingProgramError: the given one is too old, or Go is missing or fails.
    """
    built = BUILT / "nats-server"
    for candidate in [given] if given else [find_program("nats-server"), str(built)]:
        if candidate is not None and Path(candidate).exists() and nats_version(Path(candidate)) >= NATS_VERSION_MIN:
            return Path(candidate)
    if given:
        raise MissingProgramError(f"{given} is not nats-server {'.'.join(map(str, NATS_VERSION_MIN))} or newer")
    BUILT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILT) as folder:
        _go("install", NATS_MODULE, folder=ROOT, environment={"GOBIN": folder, "GOFLAGS": ""})
        (Path(folder) / "nats-server").replace(built)
    return built


def nats_version(program: Path) -> tuple[int, ...]:
    """Return the version of a nats-server as numbers."""
    output = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"v?(\d+)\.(\d+)\.(\d+)", output)
    return tuple(int(part) for part in found.groups()) if found else (0,)


def go_version() -> str:
    """Return the version of Go, such as ``1.26.8``."""
    return _go("env", "GOVERSION", folder=GENERATOR).strip().removeprefix("go")


def nats_go_version() -> str:
    """Return the version of nats.go that the generator uses."""
    requirements = json.loads(_go("mod", "edit", "-json", folder=GENERATOR))["Require"]
    (version,) = (one["Version"] for one in requirements if one["Path"] == "github.com/nats-io/nats.go")
    return str(version).removeprefix("v")


def commit() -> str:
    """Return the last commit that changed the nodes, with a mark if their files differ from it."""
    changed = _git("status", "--porcelain", "--", "lmqcluster", "cli")
    return _git("log", "-1", "--format=%h", "--abbrev=8", "--", "lmqcluster", "cli") + ("-dirty" if changed else "")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def _go(*arguments: str, folder: Path, environment: dict[str, str] | None = None) -> str:
    go = find_program("go")
    if go is None:
        raise MissingProgramError("Go is not installed")
    command = [go, *arguments]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    if done.returncode != 0:
        raise MissingProgramError(f"go {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout
