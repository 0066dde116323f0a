"""An entry is applied only when the pages that it needs have been read from the disk or received from another
member.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from lmqcluster.replication.base.membership import PeerNode
from lmqcluster.replication.recovery import page_wait, snapshot_requests
from lmqcluster.replication.recovery.lost_pages import LostPages
from lmqcluster.replication.recovery.page_exchange import PageExchange
from lmqcluster.replication.recovery.page_wait import PageWait
from lmqcluster.replication.recovery.snapshot_requests import SnapshotRequests
from lmqcluster.replication.storage import page_files
from lmqcluster.replication.storage.page_files import PREFIX, SUFFIX, PageFiles
from tests.simulation.disk import SimDisk
from tests.unit.replication.test_page_files import Turns

LEADER = PeerNode("leader", "h:1")
DEADLINE_S = 30.0
PATIENCE_S = 0.05
ROUNDS = 50
"""Ten times the patience, in requests for a newer state."""


class Core:
    """The part of the Raft core that requests use."""

    def __init__(self) -> None:
        self.needs_snapshot = False
        self.leads = self.loads = False
        self.transfers = self.blocks = 0

    def is_leader(self) -> bool:
        return self.leads

    def leader_id(self) -> str:
        return LEADER.id

    def members(self) -> dict[str, str]:
        return {"me": "h:0", LEADER.id: LEADER.address}

    def applied_index(self) -> int:
        return 7

    def received_blocks(self) -> int:
        return self.blocks

    def is_loading(self) -> bool:
        return self.loads

    def transfer_leadership(self) -> bool:
        self.transfers += 1
        self.leads = False
        return True


class Member:
    """A member that needs a page, and another one, whose answers the test gives."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.disk = SimDisk(random.Random(1))
        self.pages = PageFiles(self.disk, self.turns, sync=False)
        self.page = self.pages.save([[b"body"]])
        self.turns.all()
        self.stored = page_files._stored(self.pages.read(self.page))
        self.sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.woken = asyncio.Event()
        self.core = Core()
        pager = SimpleNamespace(lows=dict)
        self.exchange = PageExchange(self.pages, lambda: pager, self.send)  # type: ignore[arg-type,return-value]
        self.requests = SnapshotRequests(self.core, self.send, lambda action: action())  # type: ignore[arg-type]
        self.lost = LostPages(self, self.pages, self.exchange, [], self.requests.begin)  # type: ignore[arg-type]
        self.wait = PageWait(self.pages, self.lost, self.requests, self.woken.set)
        self.needed = [self.page]
        self.machine: Any = SimpleNamespace(pages_ahead=lambda _now_us, _commands: self.needed)

    def send(self, _node: PeerNode, message: dict[str, Any]) -> bool:
        self.sent.put_nowait(message)
        return True

    def peers_now(self) -> list[PeerNode]:
        return [LEADER]

    def others_count(self) -> int:
        return 1

    def hold_back(self, held: bool) -> None:
        raise AssertionError(held)

    def failed(self, error: Exception) -> None:
        raise AssertionError(error)

    def may_apply(self) -> bool:
        return self.wait.may_apply(self.machine, 0, [])

    def damage(self) -> None:
        self.disk.open(self.page.hex() + SUFFIX).write_at(len(PREFIX) + 3, b"!")

    async def waits_for_a_damaged_page(self) -> None:
        self.damage()
        assert not self.may_apply()
        self.turns.all()
        assert self.wait.is_on
        assert (await self.sent.get())["type"] == "page_request"


async def reads_first(member: Member) -> None:
    assert not member.may_apply()
    assert member.wait.is_on
    assert not member.may_apply(), "it waits still"
    await asyncio.sleep(0.001)
    under_way_s = member.wait.waited_s()
    assert under_way_s > 0
    member.turns.all()
    assert member.woken.is_set()
    waited_s = member.wait.waited_s()
    assert waited_s >= under_way_s
    assert member.may_apply()
    await asyncio.sleep(0.001)
    assert member.wait.waited_s() == waited_s
    assert member.pages.load(member.page) == [[b"body"]]
    assert member.pages.late_total == 0


async def needs_none(member: Member) -> None:
    member.needed = []
    assert member.may_apply()
    assert not member.wait.waited_s()
    assert not member.woken.is_set()


async def more_than_fits_into_memory(member: Member) -> None:
    """Pages that were read for a batch and evicted for others of it are not read forever."""
    member.needed = [member.pages.save([[b"%d" % number + bytes(30 << 20)]]) for number in range(4)]
    member.turns.all()
    assert not member.may_apply()
    member.turns.all()
    assert not all(map(member.pages.is_ready, member.needed))
    assert member.may_apply()


async def reads_in_the_order_of_the_batch(member: Member) -> None:
    """The order depends on no hash, so that a run of the simulator is a function of its seed."""
    member.needed = [member.pages.save([[b"%d" % number]]) for number in range(20)]
    member.turns.all()
    asked: list[bytes] = []
    fetch = member.pages.fetch

    def record(page: bytes, done: Callable[[bool], None]) -> None:
        asked.append(page)
        fetch(page, done)

    member.pages.fetch = record  # type: ignore[method-assign]
    assert not member.may_apply()
    assert asked == member.needed
    member.turns.all()
    assert member.may_apply()


async def another_member_sends_it(member: Member) -> None:
    await member.waits_for_a_damaged_page()
    member.exchange.answered(LEADER, member.page, member.stored)
    assert member.woken.is_set()
    assert member.may_apply()
    assert not member.core.needs_snapshot


async def no_member_has_it(member: Member) -> None:
    """The leader is asked for a newer state until it has arrived."""
    await member.waits_for_a_damaged_page()
    member.exchange.answered(LEADER, member.page, b"")
    for _ in range(2):
        assert await member.sent.get() == {"type": "snapshot_request", "applied": 7}
    assert member.core.needs_snapshot
    assert member.wait.is_on
    member.wait.reset()
    assert not member.core.needs_snapshot
    assert member.woken.is_set()


async def comes_after_all(member: Member) -> None:
    """A member that did not have the page has created it since."""
    await member.waits_for_a_damaged_page()
    member.exchange.answered(LEADER, member.page, b"")
    assert (await member.sent.get())["type"] == "snapshot_request"
    member.pages.add(member.page, member.stored)
    member.lost.on_replaced(member.page)
    assert not member.core.needs_snapshot
    assert member.may_apply()


async def leads(member: Member) -> None:
    """A leader transfers its leadership first."""
    member.core.leads = True
    await member.waits_for_a_damaged_page()
    member.exchange.answered(LEADER, member.page, b"")
    assert (await member.sent.get())["type"] == "snapshot_request"
    assert member.core.transfers == 1


async def no_state_comes(member: Member) -> None:
    """Afterwards the entry is tried without the page, which stops a node that needs it; other nodes continue."""
    await member.waits_for_a_damaged_page()
    member.exchange.answered(LEADER, member.page, b"")
    await member.woken.wait()
    assert member.may_apply()
    member.woken.clear()
    assert member.may_apply(), "the same page is not waited for again"
    assert not member.core.needs_snapshot


async def state_comes_slowly(member: Member) -> None:
    """The wait continues while blocks of a newer state arrive, or while it is being loaded."""
    await member.waits_for_a_damaged_page()
    member.exchange.answered(LEADER, member.page, b"")
    for _ in range(ROUNDS):
        assert (await member.sent.get())["type"] == "snapshot_request"
        member.core.blocks += 1
        assert member.wait.is_on
    member.core.loads = True
    for _ in range(ROUNDS):
        assert (await member.sent.get())["type"] == "snapshot_request"
        assert member.wait.is_on
    member.core.loads = False
    await member.woken.wait()


@pytest.mark.parametrize(
    "scenario",
    [
        reads_first,
        needs_none,
        more_than_fits_into_memory,
        reads_in_the_order_of_the_batch,
        another_member_sends_it,
        no_member_has_it,
        comes_after_all,
        leads,
        no_state_comes,
        state_comes_slowly,
    ],
)
def test_the_wait_for_pages(monkeypatch: pytest.MonkeyPatch, scenario: Callable[[Member], Any]) -> None:
    monkeypatch.setattr(snapshot_requests, "ASK_S", 0.01)
    if scenario in (no_state_comes, state_comes_slowly):
        monkeypatch.setattr(snapshot_requests, "PATIENCE_S", PATIENCE_S)
    if scenario is no_state_comes:
        monkeypatch.setattr(page_wait, "PATIENCE_S", DEADLINE_S)
    if scenario is state_comes_slowly:
        monkeypatch.setattr(page_wait, "PATIENCE_S", PATIENCE_S * ROUNDS / 5)

    async def main() -> None:
        member = Member()
        async with asyncio.timeout(DEADLINE_S):
            await scenario(member)
        member.wait.close()
        member.lost.close()
        member.exchange.close()

    asyncio.run(main())
