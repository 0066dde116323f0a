"""The Python examples of the pages run, and print what their comments show."""

from __future__ import annotations

import ast
import io
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from lmqcluster import Client
from lmqcluster.spark.base.reference import OPTIONS
from tests.integration.cluster import Cluster, clean_environment, reaper, wait_for

from .conftest import ROOT

PAGES = {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")}
PROGRAM = re.compile(r"# (\w+\.py)\n")
"""The first line of the block of a whole program."""
NEEDS_SPARK = ("docs/spark.md",)
APPLICATIONS = ("docs/celery.md", "docs/dramatiq.md", "docs/tracing.md")
"""Pages whose programs are run by workers or with a collector, see `test_task_libraries` and `test_tracing_page`."""
_PRINTED = re.compile(r"^ *print\(.*\)  # (.*)$", re.MULTILINE)


def blocks(page: Path) -> list[str]:
    """Return the blocks of the language python."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


WITH_BLOCKS = sorted({str(page.relative_to(ROOT)) for page in PAGES if blocks(page)}.difference(APPLICATIONS))
FILES = {match[1]: block for page in WITH_BLOCKS for block in blocks(ROOT / page) if (match := PROGRAM.match(block))}
PROGRAMS = {name: block for name, block in FILES.items() if not name.startswith(("test_", "conftest"))}
TESTS = {name: block for name, block in FILES.items() if name not in PROGRAMS}


def replaced(code: str, addresses: Mapping[str, str]) -> str:
    """Return the code with the addresses of a real cluster."""
    for shown, real in addresses.items():
        code = code.replace(shown, real)
    return code


@pytest.mark.parametrize("page", [page for page in WITH_BLOCKS if page not in NEEDS_SPARK])
def test_the_examples_of_a_page_print_the_output_in_their_comments(page: str, addresses: Mapping[str, str]) -> None:
    names: dict[str, Any] = {"__name__": "example"}
    for block in blocks(ROOT / page):
        if PROGRAM.match(block):
            continue
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile(replaced(block, addresses), page, "exec"), names)
        assert ", ".join(printed.getvalue().splitlines()) == ", ".join(_PRINTED.findall(block)), block


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_consumer_works_continues_after_an_error_and_stops(
    name: str, cluster: Cluster, addresses: Mapping[str, str], tmp_path: Path
) -> None:
    program = tmp_path / name
    program.write_text(replaced(PROGRAMS[name], addresses), encoding="utf-8")
    with Client(cluster.rpc_addresses) as client:
        # Its text cannot be read, so it is nacked and redelivered until no deliveries are left.
        client.push("invoices", 7)
        client.push_many("invoices", ["a", "b", "c"])
        process = subprocess.Popen(
            [sys.executable, program],
            env=clean_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        reaper.tell("+", process.pid)
        assert process.stdout is not None
        paid = {process.stdout.readline() for _ in range(3)}
        assert paid == {"paying a\n", "paying b\n", "paying c\n"}
        # A message is nacked before the line that reports it is written.
        assert process.stderr is not None
        failures = (line for line in process.stderr if "failed and was given back" in line)
        assert [next(failures, "") for _ in range(3)].count("") == 0

        def is_settled() -> bool:
            queue = cluster[0].get_json("/v1/queues/invoices")
            return (queue["ready"], queue["leased"], queue["dropped_total"]) == (0, 0, 1)

        wait_for(is_settled, "the end of all messages")
        process.send_signal(signal.SIGTERM)
        _out, err = process.communicate()
        reaper.tell("-", process.pid)
    assert process.returncode == 0, err
    assert "failed and was given back" not in err


def test_there_are_programs() -> None:
    assert set(PROGRAMS) == {"consumer.py", "async_consumer.py"}


def test_the_tests_of_a_page_pass(tmp_path: Path) -> None:
    assert set(TESTS) == {"conftest.py", "test_shop.py"}
    for name, block in TESTS.items():
        (tmp_path / name).write_text(block, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


OF_OTHERS = {"path", "checkpointLocation", "txnAppId", "txnVersion"}
"""Options of Spark itself, and of Delta."""


@pytest.mark.parametrize("page", NEEDS_SPARK)
def test_examples_with_spark_name_existing_options(page: str) -> None:
    code = "\n".join(blocks(ROOT / page))
    ast.parse(code)
    named = set(re.findall(r'\.option\("([^"]+)"', code)) - OF_OTHERS
    assert named
    assert named <= {option.name for option in OPTIONS}, named
