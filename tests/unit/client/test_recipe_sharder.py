"""Opening of shards by a sharder."""

from __future__ import annotations

import asyncio

from lmqcluster import AsyncClient
from lmqcluster.client.recipes.aio import DistributedQueue, QueueSharder, QueueSharderPolicies, TextSerializer
from lmqcluster.testing import MemoryCluster

CHECK_S = 0.001


class SlowShard(DistributedQueue[str]):
    """A shard whose start takes longer than the interval between two checks."""

    async def start(self) -> None:
        await super().start()
        await asyncio.sleep(50 * CHECK_S)


def test_a_shard_that_starts_slowly_is_opened_once() -> None:
    made: list[str] = []

    def allocate(client: AsyncClient, name: str) -> DistributedQueue[str]:
        made.append(name)
        return SlowShard(client, name, TextSerializer())

    async def run(client: AsyncClient) -> None:
        async with client:
            policies = QueueSharderPolicies(threshold_check=CHECK_S)
            async with QueueSharder(client, allocate, "q", policies=policies) as sharder:
                assert sharder.shard_quantity == 1

    with MemoryCluster() as cluster:
        asyncio.run(run(cluster.async_client()))
    assert made == ["q/1"]
