"""Pages from other members, while the own disk does not always take them."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from lmqcluster.core.backlogs import Backlogs
from lmqcluster.core.stock import Stock
from lmqcluster.replication.membership import PeerNode
from lmqcluster.replication.page_exchange import PageExchange
from lmqcluster.replication.storage import page_files
from lmqcluster.replication.storage.page_files import PageFiles
from lmqcluster.replication.storage.worker import AtOnce
from tests.simulation.disk import SimDisk

PEER = PeerNode("a" * 32, "127.0.0.1:1")
OTHER = PeerNode("b" * 32, "127.0.0.1:2")


def _files() -> tuple[SimDisk, PageFiles]:
    disk = SimDisk(random.Random(1))
    return disk, PageFiles(disk, AtOnce(), sync=False)


def test_a_fetch_goes_on_when_a_disk_that_was_full_has_room_again() -> None:
    """As many pages wait for the disk as may; nothing else comes that would have them written."""

    async def scenario() -> None:
        _, theirs = _files()
        wanted = theirs.save([["wanted"]])
        disk, files = _files()
        disk.full = True
        for number in range(page_files.UNWRITTEN_MAX):
            files.save([[number]])
        assert files.is_busy()
        asked: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

        def send(_node: PeerNode, message: dict[str, Any]) -> bool:
            asked.set_result(message)
            return True

        done: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()
        exchange = PageExchange(files, lambda: Backlogs(Stock()), send)
        exchange.fetch(PEER, [wanted], done.set_result)
        assert not asked.done()
        disk.full = False
        async with asyncio.timeout(5):
            assert (await asked)["page"] == wanted
            exchange.answered(PEER, wanted, theirs.stored(wanted) or b"")
            assert await done
        exchange.close()

    asyncio.run(scenario())


def test_thousands_of_pages_are_asked_of_the_next_member_when_one_is_gone() -> None:
    """Each is a fetch of its own, and who is told that one is over begins the next."""
    count = 3_000

    async def scenario() -> None:
        _, theirs = _files()
        wanted = [theirs.save([[number]]) for number in range(count)]
        _, files = _files()
        asked: list[tuple[PeerNode, bytes]] = []

        def send(node: PeerNode, message: dict[str, Any]) -> bool:
            asked.append((node, message["page"]))
            return True

        exchange = PageExchange(files, lambda: Backlogs(Stock()), send)
        outcomes: list[bool | None] = []
        for page in wanted:

            def ask_the_other(outcome: bool | None, page: bytes = page) -> None:
                assert outcome is None
                exchange.fetch(OTHER, [page], outcomes.append)

            exchange.fetch(PEER, [page], ask_the_other)
        assert asked == [(PEER, page) for page in wanted]
        asked.clear()
        exchange.link_changed(PEER)
        assert asked == [(OTHER, page) for page in wanted]
        for page in wanted:
            exchange.answered(OTHER, page, theirs.stored(page) or b"")
        assert outcomes == [True] * count
        exchange.close()

    asyncio.run(scenario())
