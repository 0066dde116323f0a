"""The version, as the package, the option and the command show it."""

from __future__ import annotations

from importlib.metadata import version

import click
import pytest
from click.testing import CliRunner
from lmqcluster_cli.admin.program import cli as lmq_admin
from lmqcluster_cli.lmq.program import cli as lmq
from lmqcluster_cli.pipeline.program import cli as lmq_pipeline

import lmqcluster

VERSION = version("lmqcluster")


def test_the_package_has_its_version() -> None:
    assert lmqcluster.__version__ == VERSION


@pytest.mark.parametrize("program", [lmq, lmq_admin, lmq_pipeline])
@pytest.mark.parametrize("words", [["version"], ["--version"]])
def test_the_programs_print_it(program: click.Group, words: list[str]) -> None:
    result = CliRunner().invoke(program, words)
    assert (result.exit_code, result.output) == (0, f"lmqcluster {VERSION}\n")
