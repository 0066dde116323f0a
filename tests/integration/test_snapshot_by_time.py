"""A node takes a snapshot once the entries since the last one took long to apply.

The time is that of the entries which the process has applied, so a restart counts those of the log again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

from lmqcluster.node.config.config import NodeConfig
from lmqcluster.node.node import Node
from lmqcluster.replication.base.settings import RaftSettings
from lmqcluster.wire.address import Address

from .cluster import ports

DEADLINE_S = 120.0
QUEUE = b"q"
ROWS = [b"x" * 100] * 4_000
LONG_S = 0.2
"""Much longer than the rows take."""
TOLERANCE = 0.9
"""An entry of the node itself may be applied between a snapshot and the measurement of the time."""


class NodeByTime(Node):
    """A node whose log is never so long that its bytes make a snapshot due."""

    def _raft_settings(self) -> RaftSettings:
        return replace(super()._raft_settings(), snapshot_log_bytes=1 << 40)


class PromptNode(NodeByTime):
    """One for which a short time is long."""

    def _raft_settings(self) -> RaftSettings:
        return replace(super()._raft_settings(), snapshot_apply_s=LONG_S)


@contextlib.asynccontextmanager
async def opened(folder: Path, kind: type[Node] = PromptNode) -> AsyncIterator[Node]:
    """A node that has applied its log."""
    raft = Address("127.0.0.1", ports.take())
    node = kind(NodeConfig(name="n1", data_dir=folder, raft=raft, http=None, rpc=Address("127.0.0.1", ports.take())))
    await node.start()
    try:
        await node.service.sender.barrier()
        await until(lambda: node.replica.snapshots.under_way() is None)
        yield node
    finally:
        node.retire()
        await node.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - a replica emits no event for its steps
            await asyncio.sleep(0.001)


async def work(node: Node) -> None:
    """Push and delete, which leaves nothing in the state; wait for a snapshot that is due then."""
    await node.service.push_run(QUEUE, ROWS)
    await node.service.delete(QUEUE)
    await until(lambda: node.replica.snapshots.under_way() is None)


def snapshot_index(node: Node) -> int:
    """Return the index of the latest snapshot, 0 without one."""
    latest = node.replica.snapshots.latest()
    return 0 if latest is None else latest.index


async def time_until_a_snapshot(node: Node, since_s: float) -> float:
    """Work until the node takes a snapshot; return how long it has applied entries since its counter had a value."""
    index = snapshot_index(node)
    while snapshot_index(node) == index:
        assert node.replica.core.applying_s - since_s < LONG_S / TOLERANCE, "the snapshot is overdue"
        await work(node)
    return node.replica.core.applying_s - since_s


def test_each_snapshot_is_due_after_the_same_time(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as node:
            since_s = 0.0
            for _ in range(3):
                assert await time_until_a_snapshot(node, since_s) > LONG_S * TOLERANCE
                since_s = node.replica.core.applying_s

    asyncio.run(main())


def test_a_restart_counts_the_entries_of_the_log_again_and_nothing_else(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as node:
            while node.replica.core.applying_s < LONG_S / 2:
                await work(node)
            assert snapshot_index(node) == 0
        async with opened(tmp_path) as node:
            assert node.replica.core.applying_s > 0
            assert snapshot_index(node) or await time_until_a_snapshot(node, 0.0) > LONG_S * TOLERANCE

    asyncio.run(main())


def test_a_log_that_took_long_to_apply_is_in_a_snapshot_after_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path, NodeByTime) as node:
            while node.replica.core.applying_s < 3 * LONG_S:
                await work(node)
            assert snapshot_index(node) == 0
        async with opened(tmp_path) as node:
            await until(lambda: snapshot_index(node) > 0)

    asyncio.run(main())
