"""The programs of the page on other languages run against a cluster whose first node is down."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.installing import debian_program
from tests.integration.cluster import clean_environment, ports
from tests.other_language.nodejs import nodejs

from .conftest import ROOT

PAGE = ROOT / "docs" / "other-languages.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
OVER_SQS = "aws-sdk"
MODULES = ROOT / "tests" / "sqs_clients" / "golang"
DEADLINE_S = 600.0
"""For compilers on a busy machine."""
FIRST, SECOND = "127.0.0.1:9980", "127.0.0.1:9990"


def run(command: Sequence[str], folder: Path) -> str:
    """Run a program to its end; return its output."""
    environment = {**clean_environment(), "GOFLAGS": "-mod=mod", "GOWORK": "off"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    if done.returncode and "dial tcp" in done.stderr and command[0] == "go":
        pytest.skip(f"Go cannot download modules: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _go() -> str:
    if shutil.which("go") is None:
        pytest.skip("Go is not installed")
    return "go"


def _java(folder: Path) -> str:
    if shutil.which("java") is None:
        pytest.skip("Java is not installed")
    return run(["java", "-Xmx128m", "orders.java"], folder)


def _csharp(folder: Path) -> str:
    packages = ("mono-mcs", "libmono-system-net-http4.0-cil")
    run([debian_program("mcs", *packages), "-r:System.Net.Http.dll", "-out:orders.exe", "orders.csharp"], folder)
    return run(["mono", "orders.exe"], folder)


RUN: Mapping[str, Callable[[Path], str]] = {
    "javascript": lambda folder: run([nodejs(), "orders.mjs"], folder),
    "go": lambda folder: run([_go(), "run", "orders.go"], folder),
    "ruby": lambda folder: run([debian_program("ruby", "ruby"), "orders.ruby"], folder),
    "php": lambda folder: run([debian_program("php", "php-cli"), "orders.php"], folder),
    "java": _java,
    "csharp": _csharp,
}


def program(language: str, *, over_sqs: bool) -> str:
    (found,) = (block for name, block in BLOCKS if name == language and (OVER_SQS in block) == over_sqs)
    return found


@pytest.mark.parametrize("language", RUN)
def test_a_program_continues_at_the_next_node(language: str, addresses: Mapping[str, str], tmp_path: Path) -> None:
    text = program(language, over_sqs=False)
    assert text.count(FIRST) == text.count(SECOND) == 1
    for shown, real in {**addresses, FIRST: f"127.0.0.1:{ports.take()}"}.items():
        text = text.replace(shown, real)
    name = "orders.mjs" if language == "javascript" else f"orders.{language}"
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert RUN[language](tmp_path).splitlines() == ["two books", "true"]


def test_go_over_sqs(addresses: Mapping[str, str], tmp_path: Path) -> None:
    text = program("go", over_sqs=True)
    for shown, real in addresses.items():
        text = text.replace(shown, real)
    (tmp_path / "main.go").write_text(text, encoding="utf-8")
    for name in ("go.mod", "go.sum"):
        shutil.copy(MODULES / name, tmp_path / name)
    assert run([_go(), "run", "."], tmp_path).splitlines() == ["two books", "true"]


def test_every_program_of_the_page_is_run() -> None:
    assert sorted(name for name, _block in BLOCKS) == sorted([*RUN, "go"])
