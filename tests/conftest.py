"""How hard property tests try, and how nodes start, wherever tests stand.

The gate runs a fixed set of examples, so that it never fails by chance. To search for new failures:
`LMQ_PROPERTY_EXAMPLES=5000 pytest tests/property tests/unit`, which picks new examples every time and prints how to replay
a failure.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from .integration.cluster import NodeProcess

NodeProcess.forked = True

_LONG_FILES = ("spark", "simulation", "drills", "property")
"""Folders with files that take minutes. Their files run first, so that none of them runs alone at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the tests by folder; within a folder they stay in their order."""
    folder = Path(__file__).parent
    items.sort(key=lambda item: item.path.relative_to(folder).parts[0] not in _LONG_FILES)


_EXAMPLES = int(os.environ.get("LMQ_PROPERTY_EXAMPLES", "0"))

settings.register_profile(
    "lmq",
    max_examples=_EXAMPLES or 150,
    stateful_step_count=40,
    derandomize=not _EXAMPLES,
    database=None,
    deadline=None,
    print_blob=True,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("lmq")
