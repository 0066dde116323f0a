"""What the tests of the simulator share."""

from collections.abc import Iterator

import pytest
import structlog

from tests.simulation.tasks import silence_nodes


@pytest.fixture(scope="module", autouse=True)
def _silent_nodes() -> Iterator[None]:
    """A failed test prints the violations, not the log of every simulated node."""
    before = structlog.get_config()
    silence_nodes()
    yield
    structlog.configure(**before)
