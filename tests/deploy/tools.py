"""Programs that check files below ``deploy/`` and are not Python packages: Docker Compose and Helm.

Both are Go programs. Compose's loader is small and built on demand; Helm takes minutes, so it is built only with
``LMQ_DEPLOY_TOOLS=build`` (``make deploy-check``). Built programs are kept below ``$XDG_CACHE_HOME/lmqcluster``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

__all__ = ["BUILD_S", "DEPLOY", "ROOT", "builds_everything", "compose_config", "helm", "kept", "run"]

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BUILD_S = 1200.0
RUN_S = 120.0
COMPOSE_LOADER = "github.com/compose-spec/compose-go/v2/cmd@v2.9.0"
COMPOSE = "github.com/docker/compose/v2/cmd@v2.32.4"
HELM = "helm.sh/helm/v3/cmd/helm@v3.16.4"


def run(
    *command: str | Path,
    environment: dict[str, str] | None = None,
    timeout_s: float = RUN_S,
    folder: Path = DEPLOY,
    text: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and return its output."""
    return subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, **(environment or {})},
        # Compose's loader resolves relative paths from its working directory.
        cwd=folder,
        input=text,
        check=False,
    )


def compose_config() -> list[str]:
    """Return the command that prints a Compose file in full, as JSON, or reports errors in it; the file's
    path follows.
    """
    if builds_everything():
        return [str(_built(COMPOSE)), "--all-resources", "--profile", "*", "config", "--format", "json", "--file"]
    if shutil.which("go"):
        return [str(_built(COMPOSE_LOADER)), "-format", "json"]
    pytest.skip("neither Go nor Docker Compose is installed")


def helm() -> Path | None:
    """Return Helm: from PATH, else as built before, else built now if requested."""
    found = shutil.which("helm")
    if found is not None:
        return Path(found)
    if builds_everything() or kept(HELM).exists():
        return _built(HELM)
    return None


def builds_everything() -> bool:
    """Return whether this is ``make deploy-check``, which may take its time."""
    return os.environ.get("LMQ_DEPLOY_TOOLS") == "build"


def kept(module: str) -> Path:
    """Return the place of a program that is built from a module with a version."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lmqcluster"
    name, _, version = module.partition("@")
    return folder / f"{name.replace('/', '-')}-{version}"


@cache
def _built(module: str) -> Path:
    built = kept(module)
    if built.exists():
        return built
    built.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=built.parent) as folder:
        done = run("go", "install", module, environment={"GOBIN": folder, "GOFLAGS": ""}, timeout_s=BUILD_S)
        assert done.returncode == 0, done.stderr
        (program,) = Path(folder).iterdir()
        program.replace(built)
    return built
