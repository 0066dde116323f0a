"""Pages that a node lacks: it stops only when every other member has reported that it lacks them too."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lmqcluster.replication.base.membership import PeerNode
from lmqcluster.replication.recovery import lost_pages, page_exchange
from lmqcluster.replication.recovery.lost_pages import LostPages
from lmqcluster.replication.recovery.page_exchange import PageExchange
from lmqcluster.replication.storage import page_files
from lmqcluster.replication.storage.io.disk import Folder
from lmqcluster.replication.storage.io.worker import ThreadWorker
from lmqcluster.replication.storage.page_files import PageFiles
from tests.simulation.disk import SimDisk
from tests.unit.replication.test_page_files import Turns

A, B = PeerNode("a", "h:1"), PeerNode("b", "h:2")
DEADLINE_S = 60.0


class Owner:
    """A node that lacks a page, and two other members, whose answers the test gives."""

    def __init__(self, folder: Path) -> None:
        self.worker = ThreadWorker("pages")
        theirs = PageFiles(Folder(folder / "theirs"), self.worker, sync=False)
        self.page = theirs.save([[1], [b"body"]])
        self.stored = page_files._stored(theirs.read(self.page))
        self.pages = PageFiles(Folder(folder / "ours"), self.worker, sync=False)
        self.asked: asyncio.Queue[PeerNode] = asyncio.Queue()
        self.held: list[bool] = []
        self.error: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self.here = asyncio.Event()
        pager = SimpleNamespace(lows=dict)
        self.exchange = PageExchange(self.pages, lambda: pager, self.send)  # type: ignore[arg-type,return-value]
        self.lost = LostPages(self, self.pages, self.exchange, [self.page], self.need_snapshot)  # type: ignore[arg-type]

    def send(self, node: PeerNode, _message: dict[str, Any]) -> bool:
        self.asked.put_nowait(node)
        return True

    def peers_now(self) -> list[PeerNode]:
        return [A, B]

    def others_count(self) -> int:
        return 2

    def hold_back(self, held: bool) -> None:
        self.held.append(held)
        if not held:
            self.here.set()

    def need_snapshot(self, in_vain: Callable[[], None]) -> None:
        in_vain()

    def failed(self, error: Exception) -> None:
        self.error.set_result(error)

    def close(self) -> None:
        self.lost.close()
        self.exchange.close()
        self.worker.close()


async def denied_by_all(owner: Owner) -> None:
    for node in (A, B):
        assert await owner.asked.get() == node
        owner.exchange.answered(node, owner.page, b"")
    assert "no member has them" in str(await owner.error)


async def lost_with_its_connection(owner: Owner) -> None:
    """The first one denies it, the second one's answer is lost: both are asked again."""
    assert await owner.asked.get() == A
    owner.exchange.answered(A, owner.page, b"")
    assert await owner.asked.get() == B
    owner.exchange.link_changed(B)
    assert await owner.asked.get() == A
    owner.exchange.answered(A, owner.page, b"")
    assert await owner.asked.get() == B
    owner.exchange.answered(B, owner.page, owner.stored)
    await owner.here.wait()
    assert owner.held == [True, False]


async def silent(owner: Owner) -> None:
    """The first one does not answer for long: the second one is asked, and then both again."""
    assert [await owner.asked.get() for _ in range(4)] == [A, B, A, B]
    owner.exchange.answered(B, owner.page, owner.stored)
    await owner.here.wait()
    assert not owner.error.done()


async def of_another_member(owner: Owner) -> None:
    """A changed link does not affect requests to another member."""
    assert await owner.asked.get() == A
    owner.exchange.link_changed(B)
    owner.exchange.answered(A, owner.page, owner.stored)
    await owner.here.wait()


async def two_at_once(owner: Owner) -> None:
    """The callback of one fetch begins another, which finds the next one complete too."""
    calls: list[str] = []

    def second(are_here: bool | None) -> None:
        calls.append(f"second {are_here}")

    def first(are_here: bool | None) -> None:
        calls.append(f"first {are_here}")
        owner.exchange.fetch(A, [], lambda are_here: calls.append(f"third {are_here}"))

    owner.exchange.fetch(B, [b"x"], first)
    owner.exchange.fetch(B, [b"y"], second)
    owner.exchange.link_changed(B)
    assert sorted(calls) == ["first None", "second None", "third True"]


@pytest.mark.parametrize("scenario", [two_at_once, denied_by_all, lost_with_its_connection, silent, of_another_member])
def test_members_are_asked_for_missing_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scenario: Callable[[Owner], Any]
) -> None:
    monkeypatch.setattr(lost_pages, "RETRY_S", 0.01)
    if scenario is silent:
        monkeypatch.setattr(page_exchange, "TIMEOUT_S", 0.05)

    async def main() -> None:
        owner = Owner(tmp_path)
        async with asyncio.timeout(DEADLINE_S):
            await scenario(owner)
        owner.close()

    asyncio.run(main())


COUNT = 300


def test_hundreds_of_damaged_pages_are_asked_for_together(tmp_path: Path) -> None:
    """The table of pages in memory is built a few times, and a page that is needed at once is among the first."""

    async def scenario() -> None:
        owner = Owner(tmp_path)
        owner.close()
        disk, tables, asked = SimDisk(random.Random(1)), [0], list[bytes]()
        turns = Turns()
        pages = PageFiles(disk, turns, sync=False)
        wanted = [pages.save([[number]]) for number in range(COUNT)]
        turns.all()
        whole = {page: page_files._stored(pages.read(page)) for page in wanted}

        def lows() -> dict[bytes, int]:
            tables[0] += 1
            return {}

        def send(_node: PeerNode, message: dict[str, Any]) -> bool:
            asked.append(message["page"])
            return True

        pager = SimpleNamespace(lows=lows)
        exchange = PageExchange(pages, lambda: pager, send)  # type: ignore[arg-type,return-value]
        lost = LostPages(owner, pages, exchange, [], owner.need_snapshot)  # type: ignore[arg-type]
        replaced: list[bytes] = []
        lost.on_replaced = replaced.append
        for page in wanted:
            disk.lose(f"{page.hex()}.page")
        pages.scrub()
        turns.all()
        assert pages.lost == set(wanted)
        urgent = wanted[-1]
        lost.replace(urgent, is_urgent=True)
        for page in asked:
            # Answers lead to more requests.
            exchange.answered(A, page, whole[page])
            turns.all()
        assert sorted(replaced) == sorted(wanted)
        assert not pages.lost
        assert len(asked) == COUNT
        assert asked.index(urgent) <= lost_pages.ROUND_PAGES + page_exchange.WINDOW
        assert tables[0] <= COUNT / lost_pages.ROUND_PAGES + 2
        lost.close()
        exchange.close()

    asyncio.run(scenario())
