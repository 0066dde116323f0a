"""Backpressure of a member whose disk does not accept pages as fast as they arrive, or not at all."""

from __future__ import annotations

import asyncio
import random

from lmqcluster.core import Machine
from lmqcluster.core.queue.paged_tail import ChunkSizes
from lmqcluster.replication.recovery.throttle import Throttle
from lmqcluster.replication.storage import page_files
from lmqcluster.replication.storage.io.worker import AtOnce, Done, Work, Worker
from lmqcluster.replication.storage.page_files import PageFiles
from tests.property.driver import Driver
from tests.simulation.disk import SimDisk

SIZES = ChunkSizes(head_messages=4, head_messages_min=4, messages=3, bytes=200)


class Slow(AtOnce):
    """A worker that begins when the test says so."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Work, Done]] = []

    def run(self, work: Work, done: Done) -> None:
        self._waiting.append((work, done))

    def proceed(self) -> None:
        while self._waiting:
            super().run(*self._waiting.pop(0))


def _flooded(worker: Worker, disk: SimDisk) -> tuple[Machine, PageFiles]:
    """Return a machine with far more in memory than it should have, so that the maximum number of pages waits."""
    files = PageFiles(disk, worker, sync=False)
    driver = Driver()
    pager = driver.machine.state.pager
    pager.store, pager.resident_bytes_max, pager.sizes = files, 0, SIZES
    for number in range(SIZES.messages * (page_files.UNWRITTEN_MAX + 10)):
        driver.push(b"q", b"%d" % number)
    pager.page_out(page_files.UNWRITTEN_MAX + 10)
    assert pager.is_flooded()
    return driver.machine, files


def test_a_member_applies_nothing_until_its_disk_has_caught_up() -> None:
    async def scenario() -> None:
        worker = Slow()
        machine, files = _flooded(worker, SimDisk(random.Random(1)))
        throttle = Throttle(files)
        assert throttle.update(machine.state.pager) is True
        worker.proceed()
        assert throttle.update(machine.state.pager) is False
        assert throttle.seconds_total > 0

    asyncio.run(scenario())


def test_a_full_disk_delays_nothing() -> None:
    """No write could end the wait."""

    async def scenario() -> None:
        disk = SimDisk(random.Random(1))
        disk.full = True
        machine, files = _flooded(AtOnce(), disk)
        assert Throttle(files).update(machine.state.pager) is False

    asyncio.run(scenario())
