"""Fixtures of the comparisons with the naive models."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lmqcluster.core.timers import idle_queues


@pytest.fixture(scope="module")
def keep_idle_queues() -> Iterator[None]:
    """Keeps queues without pushes: the models do not know that such queues expire."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(idle_queues, "KEEP_US", 1 << 60)
        yield
