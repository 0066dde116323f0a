"""A machine with long queues in pages answers like one with everything in memory, and like the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from lmqcluster.core import Machine, Op
from lmqcluster.core.messages.pages import PageError
from lmqcluster.core.queue import paged_tail as backlog
from lmqcluster.core.queue.paged_tail import ChunkSizes
from lmqcluster.core.snapshot.records import Restoration
from tests.unit.core.page_store import MemoryPages

from .announced_pages import AnnouncedPages, watch
from .driver import compile_pattern, over_the_wire
from .test_machine import NODES, PULL, PUSH, SETTLE, STEPS_US, MachineAgainstModel, sweep_often

__all__ = ["sweep_often"]

pytestmark = pytest.mark.usefixtures("keep_idle_queues", "sweep_often")


@pytest.fixture(autouse=True, scope="module")
def small_chunks() -> Iterator[None]:
    """Makes a queue have a paged tail with chunks at the sizes that these logs reach."""
    with pytest.MonkeyPatch.context() as patch:
        sizes = ChunkSizes(
            head_messages=3,
            head_bytes=3,
            head_messages_min=1,
            messages=2,
            bytes=4,
            crowd_bytes=1_500,
            crowd_head=1,
            crowd_messages=1,
        )
        patch.setattr(backlog, "CHUNK_SIZES", sizes)
        watch(patch)
        yield


class PagedMachineAgainstModel(MachineAgainstModel):
    """One machine has as much as possible in pages, and is restored from snapshots that name them; the other
    has none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pages = AnnouncedPages()
        self.machine.state.pager.store = self.pages
        self.machine.state.pager.resident_bytes_max = 0

    def _send(self, node: bytes, incarnation: int, sequence: int, commands: list[list[Any]]) -> str:
        status = super()._send(node, incarnation, sequence, commands)
        self.machine.state.pager.page_out(1 + sequence % 3)
        return status

    @rule(node=NODES, step_us=STEPS_US, commands=st.lists(PUSH | PUSH | PULL, min_size=3, max_size=8))
    def push_much(self, node: bytes, step_us: int, commands: list[list[Any]]) -> None:
        self._batch(node, step_us, commands)

    @rule(node=NODES, step_us=STEPS_US, commands=st.lists(PULL | SETTLE, min_size=1, max_size=6), pages=st.booleans())
    def continue_beside_a_view(self, node: bytes, step_us: int, commands: list[list[Any]], *, pages: bool) -> None:
        """A view gives the state at its opening, whatever happens to its chunks before they are read."""
        before = _restored(self.pages, self.machine, pages=False)
        with self.machine.freeze_view(pages=pages) as view:
            self._batch(node, step_us, [self._resolved(command) for command in commands])
            rows = [over_the_wire(record) for record in view.records()]
        after = Restoration(_empty(self.pages).state)
        for row in rows:
            after.take(row)
        assert list(Machine(compile_pattern, after.finish()).snapshot()) == list(before.snapshot())

    @rule(pages=st.booleans())
    def restart_from_pages(self, *, pages: bool) -> None:
        self.machine = _restored(self.pages, self.machine, pages=pages)

    def restart_from_a_snapshot(self, which: str) -> None:
        """Use `restart_from_pages` instead, which restores the machine here."""
        if which == "replica":
            super().restart_from_a_snapshot(which)

    def teardown(self) -> None:
        pager = self.machine.state.pager
        chunks = [
            chunk
            for queue in self.machine.state.queues.values()
            if queue.store.backlog
            for chunk in queue.store.backlog.chunks
        ]
        assert len(pager) == len(chunks)
        assert pager.paged_messages == sum(chunk.bodies for chunk in chunks if chunk.messages is None)
        assert pager.paged_bytes == sum(chunk.body_bytes for chunk in chunks if chunk.messages is None)
        assert pager.resident_bytes == sum(chunk.memory_bytes() for chunk in chunks if chunk.messages is not None)
        assert sorted(pager.pages()) == sorted(chunk.page for chunk in chunks if chunk.page)


def _empty(store: MemoryPages) -> Machine:
    machine = Machine(compile_pattern)
    machine.state.pager.store = store
    machine.state.pager.resident_bytes_max = 0
    return machine


def _restored(store: MemoryPages, machine: Machine, *, pages: bool) -> Machine:
    restoration = Restoration(_empty(store).state)
    with machine.freeze_view(pages=pages) as view:
        for record in view.records():
            restoration.take(over_the_wire(record))
    if pages:
        assert set(restoration.pages) <= set(store.payloads)
    return Machine(compile_pattern, restoration.finish())


TestPagedMachineAgainstModel = PagedMachineAgainstModel.TestCase
TestPagedMachineAgainstModel.settings = settings(stateful_step_count=40)


def test_a_lost_page_stops_the_machine() -> None:
    """A replica that cannot apply what the others apply must not answer at all."""
    pages = MemoryPages()
    machine = _empty(pages)
    push = [Op.PUSH, b"q", None, [b"x", b"y", b"z", b"u", b"v", b"w"], None, 0]
    machine.apply(1, b"n", 1, 1, [[Op.BARRIER]])
    machine.apply(1, b"n", 1, 2, [push, push])
    assert machine.state.pager.page_out(10)
    pages.payloads.clear()
    with pytest.raises(PageError):
        machine.apply(2, b"n", 1, 3, [[Op.PULL, b"q", 12]])


class BusyPages(MemoryPages):
    """A store with a lagging disk."""

    busy = True

    def is_busy(self) -> bool:
        return self.busy


def _long_line(pages: MemoryPages) -> Machine:
    machine = _empty(pages)
    machine.apply(1, b"n", 1, 1, [[Op.BARRIER]])
    pushes = [[Op.PUSH, b"q", None, [b"%d" % number], None, 0] for number in range(40)]
    machine.apply(1, b"n", 1, 2, pushes)
    return machine


def test_while_the_disk_lags_only_chunks_that_have_pages_leave_memory() -> None:
    pages = BusyPages()
    machine = _long_line(pages)
    pager = machine.state.pager
    resident = pager.resident_bytes
    assert pager.page_out(10) == 0
    pager.resident_bytes_max = resident
    with machine.freeze_view(pages=True) as view:
        assert list(view.records())
    assert pager.resident_bytes == resident
    pager.resident_bytes_max = 0
    assert pager.page_out(3) == 3
    assert pager.page_out(1_000) == len(pager) - 3
    assert pager.resident_bytes == 0
    pulled = machine.apply(2, b"n", 1, 3, [[Op.PULL, b"q", 40]]).results[0]
    assert len(pulled) == 40


def test_a_snapshot_releases_its_chunks_if_far_too_much_is_in_memory() -> None:
    machine = _long_line(BusyPages())
    pager = machine.state.pager
    pager.resident_bytes_max = pager.resident_bytes // 5
    with machine.freeze_view(pages=True) as view:
        assert list(view.records())
    assert 0 < pager.resident_bytes <= 2 * pager.resident_bytes_max
