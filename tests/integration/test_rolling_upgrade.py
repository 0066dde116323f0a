"""New behaviour of the replicated machine is switched on when all members understand it, and not before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from lmqcluster.core import IncompatibleVersionError, State
from lmqcluster.node.config.config import NodeConfig
from lmqcluster.node.node import Node
from lmqcluster.wire.address import Address

from .cluster import ports

DEADLINE_S = 120.0


class Programs:
    """Nodes in this process, each of a program that understands some machine version."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._monkeypatch = monkeypatch
        self._rafts = [Address("127.0.0.1", ports.take()) for _ in range(3)]
        self.nodes: dict[int, Node] = {}

    async def start(self, number: int, version: int) -> Node:
        """Start a node of a program that understands machine versions up to `version`."""
        config = NodeConfig(
            name=f"n{number}",
            data_dir=self._folder / f"n{number}",
            peers=tuple(self._rafts),
            raft=self._rafts[number],
            http=None,
            rpc=Address("127.0.0.1", ports.take()),
        )
        with self._monkeypatch.context() as patch:
            patch.setattr(State, "VERSION_MAX", version)
            node = self.nodes[number] = Node(config)
            await node.start()
        # Nothing is applied before a leader is heard of.
        node.replica.machine.state.VERSION_MAX = version  # type: ignore[misc]  # this one alone is of another version
        return node

    async def stop(self, number: int) -> None:
        await self.nodes.pop(number).stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - a replica emits no event for its steps
            await asyncio.sleep(0.01)


def all_know_each_other(nodes: dict[int, Node]) -> bool:
    return all(len(node.replica.peers) == len(nodes) - 1 and node.replica.has_leader() for node in nodes.values())


async def rolling_upgrade(programs: Programs, old_version: int) -> None:
    nodes = programs.nodes
    for number in range(3):
        await programs.start(number, old_version)
    await until(lambda: all_know_each_other(nodes))
    assert {node.replica.machine.state.version for node in nodes.values()} == {old_version}, "at once"
    for number in range(3):
        for node in nodes.values():
            node._periodic.tend_cluster()
        # One that has just started applies its log first.
        await until(lambda: {node.replica.machine.state.version for node in nodes.values()} == {old_version})
        await programs.stop(number)
        await programs.start(number, old_version + 1)
        await until(lambda: all_know_each_other(nodes))
    await until(lambda: all(node.replica.machine.state.version == old_version + 1 for node in nodes.values()))
    # A restart keeps it, and a program that is too old stops instead of going its own way.
    await programs.stop(0)
    old = await programs.start(0, old_version)
    error = await asyncio.wait_for(old.failure, DEADLINE_S)
    assert isinstance(error, IncompatibleVersionError)
    assert f"understands up to {old_version}" in str(error)
    for number in range(3):
        await programs.stop(number)


def test_the_newest_version_that_all_understand_is_switched_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next release stands in: the same program, which understands one version more."""
    asyncio.run(rolling_upgrade(Programs(tmp_path, monkeypatch), State.VERSION_MAX))
