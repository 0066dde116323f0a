"""A short run of the kill loop; `python -m tests.integration.kill_loop --seconds 600` is the long one."""

import asyncio

from .cluster import Cluster
from .kill_loop import kill_loop


def test_repeated_kills_lose_and_duplicate_nothing(cluster: Cluster) -> None:
    book = asyncio.run(kill_loop(cluster, 20.0, seed=1))
    print(book)
    assert not book.violations
    assert len(book.acknowledged) > 1000
    assert sum(book.kills.values()) >= 3
    for node in cluster:
        assert "Traceback" not in node.log()
