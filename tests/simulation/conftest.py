"""Fixtures of the simulator's tests."""

from collections.abc import Iterator

import pytest
import structlog

from tests.simulation.tasks import silence_nodes


@pytest.fixture(scope="module", autouse=True)
def _silent_nodes() -> Iterator[None]:
    """Print only the violations of a failed test, not the log of every simulated node."""
    before = structlog.get_config()
    silence_nodes()
    yield
    structlog.configure(**before)
