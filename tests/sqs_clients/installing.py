"""Installs AWS's clients through the package managers of their languages, each in a separate folder below ``build``.

A test is skipped if the package manager is missing or cannot install them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ..installing import debian_file, debian_program, one_at_a_time

__all__ = ["go_program", "java_libraries", "npm_packages", "php_with_asyncaws", "python_packages"]

BUILD = Path(__file__).parents[2] / "build" / "sqs-clients"
NPM_PACKAGES = ("@aws-sdk/client-sqs@3.1175.0", "sqs-consumer@15.0.3")
DEADLINE_S = 300.0


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def _installed(command: Sequence[str], folder: Path, result: Path) -> Path:
    """Run a command in a folder unless its result is there; return the result."""
    with one_at_a_time():
        if not result.exists():
            folder.mkdir(parents=True, exist_ok=True)
            done = subprocess.run(
                command, cwd=folder, timeout=DEADLINE_S, capture_output=True, text=True, check=False, env=os.environ
            )
            if done.returncode:
                pytest.skip(f"{Path(command[0]).name} cannot install clients: {done.stderr[-300:]}")
    return result


def python_packages(name: str, *packages: str) -> Path:
    """Return a folder for ``PYTHONPATH`` with releases that do not fit those of the test environment."""
    folder = BUILD / f"python-{name}"
    new = folder.with_suffix(".new")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-warn-conflicts",
        "--target",
        str(new),
        *packages,
    ]
    with one_at_a_time():
        if folder.exists():
            return folder
    _installed(command, BUILD, new)
    with one_at_a_time():
        if not folder.exists():
            new.rename(folder)
    return folder


def npm_packages() -> Path:
    """Return the folder that contains ``node_modules``."""
    folder = BUILD / "npm"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text('{"private": true}\n', encoding="utf-8")
    command = [_program("npm"), "install", "--no-audit", "--no-fund", "--ignore-scripts", *NPM_PACKAGES]
    _installed(command, folder, folder / "node_modules" / ".package-lock.json")
    return folder


def go_program(sources: Path) -> Path:
    """Return a program of Go, built anew so that it fits its sources."""
    program = BUILD / "go-program"
    BUILD.mkdir(parents=True, exist_ok=True)
    with one_at_a_time():
        command = [_program("go"), "build", "-buildvcs=false", "-o", str(program), "."]
        environment = {**os.environ, "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
        done = subprocess.run(
            command, cwd=sources, timeout=DEADLINE_S, capture_output=True, text=True, check=False, env=environment
        )
    if done.returncode and "no required module" not in done.stderr and "dial tcp" in done.stderr:
        pytest.skip(f"Go cannot download modules: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    return program


def php_with_asyncaws() -> str:
    """Return PHP, with AsyncAws on its path, from Debian's packages."""
    debian_file(Path("/usr/share/php/AsyncAws/Sqs/autoload.php"), "php-cli", "php-async-aws-sqs")
    return debian_program("php", "php-cli")


def java_libraries(sources: Path) -> Path:
    """Return the folder of the libraries that a Maven project names."""
    _program("java")
    folder = BUILD / "java"
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
    command = [_program("mvn"), "-q", "-B", "-f", str(sources / "pom.xml"), goal, f"-DoutputDirectory={folder}.new"]
    new = _installed(command, BUILD, folder if folder.exists() else folder.with_suffix(".new"))
    with one_at_a_time():
        if new.exists() and new != folder and not folder.exists():
            new.rename(folder)
    return folder
