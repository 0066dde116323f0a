"""A rolling restart under load, as in an upgrade: clients see no error, nothing is lost or duplicated."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from lmqcluster import AsyncClient

from ..unit.client.client_cluster import async_test
from .cluster import Cluster, NodeProcess, wait_for
from .outage import in_step

PUSHERS = 32
PULLERS = 4


class _Traffic:
    """Clients that know all nodes, and their calls."""

    def __init__(self, client: AsyncClient, queue: str) -> None:
        self.pushed: list[int] = []
        self.pulled: list[int] = []
        self.pause_s = 0.0
        self.pushing = True
        self._client = client
        self._queue = queue
        self._next = 0

    async def push(self) -> None:
        while self.pushing:
            number, self._next = self._next, self._next + 1
            begun_s = time.monotonic()
            assert await self._client.push(self._queue, number) == "ok"
            self.pause_s = max(self.pause_s, time.monotonic() - begun_s)
            self.pushed.append(number)

    async def pull(self) -> None:
        while True:
            messages = await self._client.pull_many(self._queue, 64, 0.2)
            self.pulled += [message.content for message in messages]
            assert all(await self._client.done_many(self._queue, [message.id for message in messages]))
            if not messages and not self.pushing:
                return


@async_test
async def test_rolling_restart_under_load(cluster: Cluster) -> None:
    """Each node is stopped with SIGTERM, restarted and awaited before the next one."""
    async with AsyncClient(cluster.rpc_addresses) as pusher, AsyncClient(cluster.rpc_addresses) as puller:
        traffic = _Traffic(pusher, "q")
        taker = _Traffic(puller, "q")
        tasks = [asyncio.create_task(traffic.push()) for _ in range(PUSHERS)]
        takers = [asyncio.create_task(taker.pull()) for _ in range(PULLERS)]
        restarted: list[NodeProcess] = []
        try:
            # Restarting the leader last would be gentler: here it is the first, followed by its successor.
            for _ in cluster:
                await asyncio.to_thread(_progress, traffic, [*tasks, *takers])
                node = await asyncio.to_thread(_next_to_restart, cluster, restarted)
                restarted.append(node)
                assert await asyncio.to_thread(node.stop) == 0
                await asyncio.to_thread(node.start)
                await asyncio.to_thread(_settle, node)
        finally:
            traffic.pushing = False
            await asyncio.gather(*tasks)
            taker.pushing = False
            await asyncio.gather(*takers)
    print(f"rolling restart: longest pause {traffic.pause_s:.2f} s, {len(traffic.pushed)} pushes")
    lost, doubled = Counter(traffic.pushed) - Counter(taker.pulled), Counter(taker.pulled) - Counter(traffic.pushed)
    assert not lost, f"{lost.total()} messages were not delivered, such as {list(lost)[:5]}"
    assert not doubled, f"{doubled.total()} messages were delivered again, such as {list(doubled)[:5]}"
    assert traffic.pause_s < 10
    in_step(cluster)


def _progress(traffic: _Traffic, tasks: list[asyncio.Task[None]]) -> None:
    """Wait for more pushes, or for a failed task."""
    enough = len(traffic.pushed) + 1000
    wait_for(lambda: len(traffic.pushed) >= enough or any(task.done() for task in tasks), "1000 more pushes")


def _next_to_restart(cluster: Cluster, restarted: list[NodeProcess]) -> NodeProcess:
    """Return the leader if it has not been restarted yet, else another node that has not."""
    return next(node for node in (cluster.leader(), *cluster.nodes) if node not in restarted)


def _settle(node: NodeProcess) -> None:
    """Wait until the node's `check` shows no problem, so that the next one may be stopped."""
    wait_for(lambda: all(one["ok"] for one in node.get_json("/v1/cluster/check")["checks"]), f"{node.name} is well")
