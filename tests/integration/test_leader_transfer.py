"""The log of a leader that stops and finds no successor."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from lmqcluster.node.config.config import NodeConfig
from lmqcluster.node.node import Node
from lmqcluster.replication import leader_transfer
from lmqcluster.replication.base.settings import RaftSettings
from lmqcluster.replication.leader_transfer import transfer_leadership
from lmqcluster.wire.address import Address

from .cluster import ports

DEADLINE_S = 120.0


class SteadyNode(Node):
    """A node that keeps leading for a long time after it has lost the others."""

    def _raft_settings(self) -> RaftSettings:
        return replace(super()._raft_settings(), quorum_lost_s=DEADLINE_S)


@contextlib.asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[tuple[Node, list[Node]]]:
    """The leader of three nodes in this process, and the other two, which the test stops."""
    rafts = tuple(Address("127.0.0.1", ports.take()) for _ in range(3))
    nodes: list[Node] = [
        SteadyNode(
            NodeConfig(
                name=f"n{number}",
                data_dir=folder / f"n{number}",
                peers=rafts,
                raft=raft,
                http=None,
                rpc=Address("127.0.0.1", ports.take()),
            )
        )
        for number, raft in enumerate(rafts)
    ]
    await asyncio.gather(*(node.start() for node in nodes))
    await until(lambda: all(len(node.replica.transport.connected_ids()) == 2 for node in nodes))
    await until(lambda: any(node.replica.is_leader() for node in nodes))
    [leader] = [node for node in nodes if node.replica.is_leader()]
    others = [node for node in nodes if node is not leader]
    try:
        yield leader, others
    finally:
        await leader.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - a replica emits no event for its steps
            await asyncio.sleep(0.01)


def test_it_is_no_fault_if_all_members_stop(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path) as (leader, others):
            with capture_logs() as lines:
                await asyncio.gather(*(other.stop() for other in others))
                assert not await transfer_leadership(leader.replica)
            levels = {line["event"]: line["log_level"] for line in lines}
            assert levels["leadership not transferred"] == "info"
            assert set(levels.values()) <= {"debug", "info"}

    asyncio.run(main())


def test_a_member_that_is_connected_and_does_not_take_over_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_transfer, "DEADLINE_S", 0.5)

    async def main() -> None:
        async with cluster(tmp_path) as (leader, others):
            for other in others:
                other.replica.steps.stop()
            with capture_logs() as lines:
                assert not await transfer_leadership(leader.replica)
            levels = {line["event"]: line["log_level"] for line in lines}
            assert levels["leadership not transferred"] == "warning"
            await asyncio.gather(*(other.stop() for other in others))

    asyncio.run(main())
