"""The HTTP reference: its examples print the documented output, and a node has no other routes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.http import PAGES, routes
from tests.docs.shell import Shell, steps

from .cluster import NodeProcess
from .raw_http import call


@pytest.fixture
def fresh_node(tmp_path: Path) -> Iterator[NodeProcess]:
    """A fresh node: the examples show ids and counts."""
    with NodeProcess(tmp_path) as process:
        yield process


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_examples_print_what_the_page_says(page: Path, fresh_node: NodeProcess, tmp_path: Path) -> None:
    todo = list(steps(page.read_text(encoding="utf-8")))
    assert todo
    with Shell(tmp_path, os.environ, {"127.0.0.1:9980": fresh_node.http}, exact=True) as shell:
        for step in todo:
            shell.check(step)


def test_a_route_takes_the_methods_that_have_a_section_and_no_others(node: NodeProcess) -> None:
    by_path: dict[str, set[str]] = {}
    for route in routes():
        by_path.setdefault(route.path, set()).add(route.method)
    for path, methods in by_path.items():
        target = path.replace("{name}", "none").replace("{id}", "none").replace("{index}", "1").replace("{number}", "1")
        answer = call(node.http, "OPTIONS", target.replace("{file}", "none"))
        if path == "/messages":
            # The regular expression is checked before the method, as in LMQ.
            assert answer.status == 400
            continue
        assert answer.status == 405, path
        if "allow" in answer.headers:
            allowed = set(answer["allow"].decode().split(", ")) - {"HEAD"}
            assert allowed == methods, path
