"""Pages from other members, while the local disk does not always accept them."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from lmqcluster.core import Op
from lmqcluster.core.messages.totals import Totals
from lmqcluster.core.queue.paged_tail import ChunkSizes
from lmqcluster.core.queue.pager import Pager
from lmqcluster.replication.base.membership import PeerNode
from lmqcluster.replication.recovery import page_exchange
from lmqcluster.replication.recovery.page_exchange import PageExchange
from lmqcluster.replication.storage import page_files
from lmqcluster.replication.storage.io.worker import AtOnce
from lmqcluster.replication.storage.page_files import PageFiles
from tests.property.driver import Driver
from tests.simulation.disk import SimDisk

PEER = PeerNode("a" * 32, "127.0.0.1:1")
OTHER = PeerNode("b" * 32, "127.0.0.1:2")


def _files() -> tuple[SimDisk, PageFiles]:
    disk = SimDisk(random.Random(1))
    return disk, PageFiles(disk, AtOnce(), sync=False)


def test_a_fetch_continues_when_a_full_disk_has_room_again() -> None:
    """The maximum number of pages waits for the disk; nothing else triggers their write."""

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
        exchange = PageExchange(files, lambda: Pager(Totals()), send)
        exchange.fetch(PEER, [wanted], done.set_result)
        assert not asked.done()
        disk.full = False
        async with asyncio.timeout(5):
            assert (await asked)["page"] == wanted
            exchange.answered(PEER, wanted, page_files._stored(theirs.read(wanted)))
            assert await done
        exchange.close()

    asyncio.run(scenario())


def test_thousands_of_pages_are_requested_from_the_next_member_when_one_is_lost() -> None:
    """Each is a separate fetch, and the callback of an ended one begins the next."""
    count = 3_000

    async def scenario() -> None:
        _, theirs = _files()
        wanted = [theirs.save([[number]]) for number in range(count)]
        _, files = _files()
        asked: list[tuple[PeerNode, bytes]] = []

        def send(node: PeerNode, message: dict[str, Any]) -> bool:
            asked.append((node, message["page"]))
            return True

        exchange = PageExchange(files, lambda: Pager(Totals()), send)
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
            exchange.answered(OTHER, page, page_files._stored(theirs.read(page)))
        assert outcomes == [True] * count
        exchange.close()

    asyncio.run(scenario())


def test_a_denied_page_is_not_reported_as_present() -> None:
    async def scenario() -> None:
        _, theirs = _files()
        here, denied = theirs.save([["here"]]), theirs.save([["denied"]])
        _, files = _files()
        outcomes: list[bool | None] = []
        exchange = PageExchange(files, lambda: Pager(Totals()), lambda _node, _message: True)
        exchange.fetch(PEER, [here, denied], outcomes.append)
        exchange.answered(PEER, denied, b"")
        exchange.answered(PEER, here, page_files._stored(theirs.read(here)))
        assert outcomes == [False]
        assert here in files
        assert denied not in files
        exchange.close()

    asyncio.run(scenario())


def test_messages_and_bodies_in_memory_become_pages_on_request() -> None:
    """Pages of messages and of bodies have numbers of different signs."""

    async def scenario() -> None:
        here, there = Holder(resident_bytes_max=0), Holder(resident_bytes_max=1 << 30)
        wanted = set(here.machine.state.pager.pages())
        assert {low > 0 for low in here.machine.state.pager.lows().values()} == {True, False}
        assert not len(there.files)
        _, files = _files()

        def ask(_node: PeerNode, message: dict[str, Any]) -> bool:
            asyncio.get_running_loop().call_soon(there.exchange.asked, PEER, message["page"], message["low"])
            return True

        def answer(_node: PeerNode, message: dict[str, Any]) -> bool:
            asyncio.get_running_loop().call_soon(exchange.answered, PEER, message["page"], message["data"])
            return True

        exchange = PageExchange(files, lambda: here.machine.state.pager, ask)
        there.exchange = PageExchange(there.files, lambda: there.machine.state.pager, answer)
        done: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()
        exchange.fetch(PEER, wanted, done.set_result)
        async with asyncio.timeout(30):
            assert await done
        assert all(page in files for page in wanted)
        exchange.close()

    asyncio.run(scenario())


class Holder:
    """A member with a long queue of messages, and long bodies of others with priorities."""

    exchange: PageExchange

    def __init__(self, *, resident_bytes_max: int) -> None:
        _, self.files = _files()
        driver = Driver()
        self.machine = driver.machine
        pager = self.machine.state.pager
        pager.store, pager.resident_bytes_max = self.files, resident_bytes_max
        pager.sizes = ChunkSizes(
            head_messages=4, head_messages_min=4, messages=3, bytes=200, body=1, gather_bytes=0, gather_bytes_all=0
        )
        for number in range(30):
            driver.push(b"plain", b"%d" % number)
            traits = [-1, 0, 0, 1, b"", b""]
            driver.do(Op.PUSH_ROWS, b"rich", [[b"%050d" % number, None, b"", None, traits]])
        pager.page_out(100)


def test_missing_pages_of_a_member_do_not_block_others() -> None:
    """There are few requests, and the tables that they need are built once for all of them."""

    async def scenario() -> None:
        _, theirs = _files()
        wanted = [theirs.save([[number]]) for number in range(20)]
        _, files = _files()
        asked: list[bytes] = []

        def send(_node: PeerNode, message: dict[str, Any]) -> bool:
            asked.append(message["page"])
            return True

        exchange = PageExchange(files, lambda: Pager(Totals()), send)
        outcomes: list[bool | None] = []
        exchange.fetch(PEER, wanted, outcomes.append)
        for count, page in enumerate(wanted):
            assert asked == wanted[: count + page_exchange.WINDOW]
            data = b"" if count == 3 else page_files._stored(theirs.read(page))
            exchange.answered(PEER, page, data)
        assert outcomes == [False]
        assert [page in files for page in wanted] == [number != 3 for number in range(20)]
        exchange.close()

    asyncio.run(scenario())
