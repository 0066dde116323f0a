"""A short run of the move loop; `python -m tests.integration.move_loop --messages 100000` is the long one."""

import asyncio

from .cluster import Cluster
from .move_loop import move_loop


def test_transactions_over_kills_move_each_message_once(cluster: Cluster) -> None:
    outcome = asyncio.run(move_loop(cluster, 1500, seed=2, kills_min=3))
    print(outcome)
    assert not outcome.violations()
