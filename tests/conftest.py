"""How hard property tests try, how long a test may take, and how nodes start, wherever tests stand.

The gate runs a fixed set of examples, so that it never fails by chance. To search for new failures:
`LMQ_PROPERTY_EXAMPLES=5000 pytest tests/property tests/unit`, which picks new examples every time and prints how to replay
a failure. With `LMQ_PROPERTY_SHRINK=no` a failure is not made shorter, which can take minutes.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from .integration.cluster import NodeProcess, ports

NodeProcess.forked = True

_LONG_FILES = ("spark", "simulation", "drills", "property", "other_language", "sqs_clients", "sqs_judges")
"""Folders with files that take minutes. Their files run first, so that none of them runs alone at the end."""


_EXAMPLES = int(os.environ.get("LMQ_PROPERTY_EXAMPLES", "0"))
_UNIT_LIMIT_S = 300.0
_LIMIT_S = 600.0
"""A test that takes longer hangs, fixtures included; on a busy machine the slowest ones take a fifth of these."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exempt what the collection creates from searches for reference cycles: it lives as long as the run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the tests by folder, within which they keep their order, and limit the time of each."""
    folder = Path(__file__).parent
    is_campaign = _EXAMPLES or "LMQ_CAMPAIGN" in os.environ
    items.sort(key=lambda item: item.path.relative_to(folder).parts[0] not in _LONG_FILES)
    for item in items:
        if not is_campaign and item.get_closest_marker("timeout") is None:
            is_unit = item.path.is_relative_to(folder / "unit")
            item.add_marker(pytest.mark.timeout(_UNIT_LIMIT_S if is_unit else _LIMIT_S))


@pytest.fixture(scope="module", autouse=True)
def _ports_of_a_module() -> Iterator[None]:
    """Release the ports that a file of tests has reserved, so that a long run does not use up all of them."""
    yield
    ports.release()


_PHASES = [phase for phase in Phase if phase is not Phase.shrink or os.environ.get("LMQ_PROPERTY_SHRINK") != "no"]
settings.register_profile(
    "lmq",
    max_examples=_EXAMPLES or 75,
    stateful_step_count=40,
    derandomize=not _EXAMPLES,
    database=None,
    deadline=None,
    print_blob=True,
    phases=_PHASES,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("lmq")
