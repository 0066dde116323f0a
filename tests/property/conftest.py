"""What the comparisons with the naive models have in common."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lmqcluster.core import idle_queues


@pytest.fixture(scope="module")
def keep_idle_queues() -> Iterator[None]:
    """The models do not know that queues end which nobody has ever pushed to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(idle_queues, "KEEP_US", 1 << 60)
        yield
