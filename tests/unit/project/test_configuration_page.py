"""The documentation of options and exit codes matches the programs."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner
from lmqcluster_cli.lmq.program import cli
from lmqcluster_cli.shared.errors import EXIT_CODES_HELP

DOCS = Path(__file__).parents[3] / "docs"


def test_the_list_of_options_equals_the_output_of_lmq_config_docs() -> None:
    printed = CliRunner().invoke(cli, ["config", "docs"]).output
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    shown = re.search(
        r"<!-- This list is the output of: lmq config docs -->\n(.*)<!-- /lmq config docs -->", page, re.DOTALL
    )
    assert shown is not None
    assert shown[1] == printed
    assert printed.count("\n") > 10


def test_the_table_of_exit_codes_is_that_of_the_help() -> None:
    table = dict(re.findall(r"^ +(\d+)  (.*)$", EXIT_CODES_HELP, re.MULTILINE))
    shown = dict(re.findall(r"^\| (\d+) \| (.*) \|$", (DOCS / "admin.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert shown == table
