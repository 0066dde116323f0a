"""The table of metrics: names by the conventions of Prometheus, complete, and printed in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lmqcluster.core.queue.counters import COUNTERS
from lmqcluster.node.metrics.table import BY_NAME, QUEUE_SECTION, SECTIONS, Definition, markdown

DOCUMENT = Path(__file__).parents[3] / "docs" / "metrics.md"


@pytest.mark.parametrize("one", BY_NAME.values(), ids=BY_NAME)
def test_a_name_follows_the_conventions(one: Definition) -> None:
    assert re.fullmatch(r"lmq_[a-z_]+", one.name)
    assert (one.kind == "counter") == one.name.endswith("_total")
    assert (one.kind == "info") == one.name.endswith("_info")
    assert one.kind != "histogram" or one.name.endswith("_seconds")
    assert one.help.endswith(".")


def test_no_name_is_defined_twice() -> None:
    assert len(BY_NAME) == sum(len(section.metrics) for section in (*SECTIONS, QUEUE_SECTION))


def test_all_counters_of_queues_are_in_the_table() -> None:
    for counter in COUNTERS:
        assert f"lmq_messages_{counter}" in BY_NAME
        assert f"lmq_queue_messages_{counter}" in BY_NAME


def test_the_documentation_equals_the_output_of_the_module() -> None:
    marker = "<!-- What follows is the output of: python -m lmqcluster.node.metrics.table -->\n"
    _introduction, shown = DOCUMENT.read_text(encoding="utf-8").split(marker)
    assert shown == markdown()
