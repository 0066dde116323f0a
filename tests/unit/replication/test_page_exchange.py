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
