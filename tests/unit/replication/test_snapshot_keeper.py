"""Snapshots that are taken, sent and received at the same time: each keeps its pages, and none stays without
being applied.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lmqcluster.core import Machine, Op
from lmqcluster.core.queue.paged_tail import ChunkSizes
from lmqcluster.replication.base.membership import PeerNode
from lmqcluster.replication.recovery.page_exchange import PageExchange
from lmqcluster.replication.recovery.snapshot_keeper import SnapshotKeeper
from lmqcluster.replication.storage import page_files
from lmqcluster.replication.storage.io.worker import AtOnce
from lmqcluster.replication.storage.page_files import PageFiles
from lmqcluster.replication.storage.snapshots.snapshot_store import SnapshotInfo, SnapshotStore
from tests.property.driver import Driver, compile_pattern
from tests.simulation.disk import SimDisk

Q = b"q"
SIZES = ChunkSizes(head_messages=4, head_messages_min=4, messages=3, bytes=200)
COUNT = 30
LEADER = PeerNode("leader", "h:1")
DEADLINE_S = 30.0


class Member:
    """A state with pages, and the keeper of its snapshots; the test is the network."""

    def __init__(self) -> None:
        self.disk = SimDisk(random.Random(1))
        self.store = SnapshotStore(self.disk, sync=False)
        self.pages = PageFiles(SimDisk(random.Random(1)), AtOnce(), sync=False)
        self.machine = Machine(compile_pattern)
        self.machine.state.pager.store, self.machine.state.pager.sizes = self.pages, SIZES
        self.driver = Driver(self.machine)
        self.index = 1
        self.in_use: list[SnapshotInfo] = []
        self.asked: asyncio.Queue[bytes] = asyncio.Queue()
        self.exchange = PageExchange(self.pages, lambda: self.machine.state.pager, self.send)
        self.keeper = SnapshotKeeper(
            self,  # type: ignore[arg-type]
            self.store,
            self.pages,
            self.exchange,
            AtOnce(),
            compile_pattern,
            backlog_bytes=0,
        )

    def close(self) -> None:
        self.keeper.close()
        self.exchange.close()

    def send(self, _node: PeerNode, message: dict[str, Any]) -> bool:
        self.asked.put_nowait(message["page"])
        return True

    # --- owner of the keeper

    def position(self) -> tuple[int, int, dict[str, str]]:
        return self.index, 1, {}

    def in_step(self, action: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(action)

    def snapshots_in_use(self) -> list[SnapshotInfo]:
        return self.in_use

    def acknowledge_blocks(self) -> None:
        """Do nothing: no peer waits for that."""

    def snapshot_taken(self, _info: SnapshotInfo) -> None:
        """Do nothing: there is no log."""

    def replace_machine(self, machine: Machine) -> None:
        self.machine = machine

    def failed(self, error: Exception) -> None:
        raise error

    # --- actions of tests

    def push(self) -> None:
        """Push enough messages that most of them can be paged out."""
        for number in range(COUNT):
            self.driver.push(Q, b"%d" % number)

    async def take(self) -> SnapshotInfo:
        """Take a snapshot of the state after one more entry."""
        self.index += 1
        return await self.keeper.take()

    async def take_with_pages(self) -> tuple[SnapshotInfo, set[bytes]]:
        """Take a snapshot of messages that are not needed afterwards; return the names of their pages."""
        self.push()
        info = await self.take()
        named = set(self.machine.state.pager.pages())
        assert len(named) > 3
        self.driver.do(Op.DELETE, Q)
        return info, named

    def receive(self, source: Member, info: SnapshotInfo, loaded: Callable[[SnapshotInfo | None], bool]) -> None:
        """Receive all blocks of another member's snapshot."""
        receiver = self.keeper.receive(info.index, info.term)
        for number in range(info.blocks):
            receiver.take(number, source.store.read_block(info, number))
        self.keeper.install(receiver, LEADER, loaded)

    async def are_asked(self, count: int) -> list[bytes]:
        """Return the pages that the leader is asked for next."""
        return [await self.asked.get() for _ in range(count)]


async def _sent(member: Member) -> None:
    info, named = await member.take_with_pages()
    member.in_use = [info]
    await member.take()
    await member.take()
    assert all(page in member.pages for page in named)
    member.in_use = []
    await member.take()
    assert not any(page in member.pages for page in named)


async def _held_for_a_backup(member: Member) -> None:
    """It is held until its pages have been copied."""
    write, begun, may_go_on = member.store.write_portable, threading.Event(), threading.Event()

    def slow(*arguments: Any) -> Any:
        begun.set()
        assert may_go_on.wait(DEADLINE_S)
        return write(*arguments)

    member.store.write_portable = slow  # type: ignore[assignment,method-assign]
    member.push()
    backup = asyncio.ensure_future(member.keeper.take_portable(DEADLINE_S))
    assert await asyncio.to_thread(begun.wait, DEADLINE_S)
    try:
        named = set(member.machine.state.pager.pages())
        assert len(named) > 3
        member.driver.do(Op.DELETE, Q)
        await member.take()
        assert all(page in member.pages for page in named)
    finally:
        may_go_on.set()
    info = await backup
    blocks = [await member.keeper.portable_block(info.index, number) for number in range(info.blocks + 1)]
    assert [block is not None for block in blocks] == [True] * info.blocks + [False]
    await member.take()
    assert not any(page in member.pages for page in named)


async def _received(member: Member) -> None:
    """Its pages arrive a few at a time, and a local snapshot is taken in between."""
    source = Member()
    # Newer than the snapshot that the member takes in between.
    source.index = 10
    info, named = await source.take_with_pages()
    installed: asyncio.Future[SnapshotInfo | None] = asyncio.get_running_loop().create_future()

    def take(found: SnapshotInfo | None) -> bool:
        installed.set_result(found)
        return True

    member.receive(source, info, take)
    first, *others = await member.are_asked(4)
    _answer(member, source, first)
    await member.take()
    assert first in member.pages
    for page in others:
        _answer(member, source, page)
    for _ in range(len(named) - 4):
        _answer(member, source, *await member.are_asked(1))
    assert await installed is member.store.latest
    assert len(member.machine.state.queues[Q]) == COUNT
    assert set(member.machine.state.pager.pages()) == named
    assert all(page in member.pages for page in named)
    source.close()


def _answer(member: Member, source: Member, page: bytes) -> None:
    member.exchange.answered(LEADER, page, page_files._stored(source.pages.read(page)))


async def _not_synced(member: Member) -> None:
    """The sync of its pages takes a while."""
    begun, synced = asyncio.Event(), list[Callable[[Exception | None], None]]()

    def sync(done: Callable[[Exception | None], None]) -> None:
        synced.append(done)
        begun.set()

    member.pages.sync = sync  # type: ignore[method-assign]
    member.push()
    taking = asyncio.ensure_future(member.take())
    await asyncio.wait([taking, asyncio.ensure_future(begun.wait())], return_when=asyncio.FIRST_COMPLETED)
    assert not taking.done()
    assert member.store.latest is None
    (done,) = synced
    done(None)
    assert await taking is member.store.latest


def test_a_snapshot_is_complete_when_its_pages_are_on_the_disk() -> None:
    _run(_not_synced)


@pytest.mark.parametrize("scenario", [_sent, _held_for_a_backup, _received])
def test_a_snapshot_in_use_keeps_its_pages(scenario: Callable[[Member], Awaitable[None]]) -> None:
    _run(scenario)


async def _refused(member: Member) -> None:
    source = Member()
    source.index = 10
    info = await source.take()
    own = await member.take()
    machine, loaded = member.machine, asyncio.Event()

    def refuse(found: SnapshotInfo | None) -> bool:
        assert found is not None
        assert (found.index, found.term) == (info.index, info.term)
        loaded.set()
        return False

    member.receive(source, info, refuse)
    await loaded.wait()
    assert member.store.latest is own
    assert member.disk.names() == [own.file]
    assert member.machine is machine
    newer = await member.take()
    assert member.store.latest is newer
    source.close()


def test_a_snapshot_that_the_core_refuses_leaves_nothing() -> None:
    _run(_refused)


def _run(scenario: Callable[[Member], Awaitable[None]]) -> None:
    async def main() -> None:
        member = Member()
        async with asyncio.timeout(DEADLINE_S):
            await scenario(member)
        member.close()

    asyncio.run(main())
