"""The worked example of the page on traces: its spans are the tree that the page shows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the extra otel")

from opentelemetry import trace

from tests.integration.cluster import NodeProcess, clean_environment, wait_for
from tests.integration.collectors import Receiver, StartedCollector, collector_program, spans_in, tree_of

from .conftest import ROOT
from .shell import Shell, steps
from .test_python_blocks import blocks, replaced

PAGE = ROOT / "docs" / "tracing.md"
ROOT_SPAN = "00f067aa0ba902b7"
Tree = list[tuple[str, list[Any]]]


def shown_tree() -> Tree:
    """Return the tree that the page shows below the producer's span, from its indentation."""
    (block,) = re.findall(rf"```text\n({ROOT_SPAN}.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    below: list[Tree] = [[]]
    for line in block.splitlines()[1:]:
        name = re.split(r" {2,}", line.strip())[0]
        depth = (len(line) - len(line.lstrip())) // 2
        entry: tuple[str, list[Any]] = (name, [])
        below[depth - 1].append(entry)
        below[depth:] = [entry[1]]
    return sorted_tree(below[0])


def sorted_tree(tree: Tree) -> Tree:
    return sorted((name, sorted_tree(children)) for name, children in tree)


@pytest.mark.parametrize("kind", ["receiver", "collector"])
def test_the_example_makes_the_tree_of_the_page(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = collector_program()
    if kind == "collector" and program is None:
        pytest.skip("there is no OpenTelemetry Collector on this machine")
    collector: Any = (
        Receiver(tmp_path / "traces.json") if kind == "receiver" else StartedCollector(program or "", tmp_path)
    )
    # The process has one provider, which a program sets only once.
    providers: list[Any] = []
    monkeypatch.setattr(trace, "set_tracer_provider", providers.append)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: providers[-1])
    with collector, NodeProcess(tmp_path, arguments=("--trace-otlp-endpoint", collector.endpoint)) as node:
        addresses: Mapping[str, str] = {
            "127.0.0.1:18800": node.rpc,
            "127.0.0.1:9980": node.http,
            "http://127.0.0.1:4318/v1/traces": collector.endpoint,
        }
        with Shell(tmp_path, clean_environment(), addresses) as shell:
            (push,) = (step for step in steps(PAGE.read_text("utf-8")) if step.command.startswith("curl"))
            assert "4318" not in push.command
            shell.check(push)
        names: dict[str, Any] = {"__name__": "example"}
        for block in blocks(PAGE):
            exec(compile(replaced(block, addresses), str(PAGE), "exec"), names)
        wanted = shown_tree()
        wait_for(lambda: tree_of(spans_in(collector.file), ROOT_SPAN) == wanted, "the tree of the page", 60)


def test_the_commands_start_what_the_example_needs() -> None:
    commands = [shlex.split(step.command)[0] for step in steps(PAGE.read_text("utf-8"))]
    assert commands == ["pip", "lmq", "otelcol-contrib", "lmq", "curl", "jq"]
