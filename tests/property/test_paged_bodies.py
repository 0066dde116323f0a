"""A machine with bodies in pages answers like one with everything in memory, and like the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from lmqcluster.core import Machine, Op
from lmqcluster.core.messages.bodies import Body, BodyChunk, BodyTail
from lmqcluster.core.queue import paged_tail as backlog
from lmqcluster.core.queue import pager
from lmqcluster.core.queue.paged_tail import ChunkSizes
from lmqcluster.core.snapshot.records import Restoration
from tests.unit.core.page_store import MemoryPages

from .announced_pages import AnnouncedPages, watch
from .driver import SECOND, compile_pattern, over_the_wire
from .test_rich_machine import ATTRIBUTES, PULL, PUSH, SETTLE, STEPS_US, RichMachineAgainstModel

__all__ = ["PagedBodiesAgainstModel", "shrink"]

pytestmark = pytest.mark.usefixtures("keep_idle_queues")

BODIES = st.binary(min_size=1, max_size=3)
URGENT_ROWS = st.tuples(
    BODIES,
    st.none(),
    ATTRIBUTES,
    st.none(),
    st.tuples(
        st.sampled_from([-1, SECOND]), st.just(0), st.just(0), st.integers(-1, 1), st.just(b""), st.just(b"")
    ).map(list),
).map(list)


@pytest.fixture(autouse=True, scope="module")
def small_chunks() -> Iterator[None]:
    """Makes bodies be gathered and chunked at the sizes that these logs reach."""
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        yield


def shrink(patch: pytest.MonkeyPatch) -> None:
    """Apply the settings of the fixture."""
    sizes = ChunkSizes(
        head_messages=3,
        head_bytes=3,
        head_messages_min=1,
        messages=3,
        bytes=6,
        crowd_bytes=1_500,
        crowd_head=1,
        crowd_messages=1,
        body=1,
        gather_bytes=0,
        gather_bytes_all=0,
    )
    patch.setattr(backlog, "CHUNK_SIZES", sizes)
    patch.setattr(pager, "READ_BACK_BYTES", 6)
    patch.setattr(pager, "SPARSE_MAX", 1)
    watch(patch)


class PagedBodiesAgainstModel(RichMachineAgainstModel):
    """Queues with priorities, delays, groups, labels.

    The machine has as much as possible in pages. The replica has everything in memory, and is restored from snapshots
    that hold all messages. The twin has everything in memory too, but has the same pages, because it is restored from
    snapshots that name them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pages = AnnouncedPages()
        self.machine = empty(self.pages, resident=False)
        self.twin = empty(self.pages, resident=True)
        self.commands: list[list[Any]] = []

    @initialize()
    def found(self) -> None:
        super().found()
        self.twin.apply(self.stamp_us, b"n", 1, 1, [[Op.SET_SALT, b"0123456789"]])

    def _batch(self, step_us: int, commands: list[list[Any]]) -> None:
        self.commands = []
        super()._batch(step_us, commands)
        self.twin.apply(self.stamp_us, b"n", 1, self.sequence, self.commands)
        self.machine.state.pager.page_out(1 + self.sequence % 3)

    def _expected(self, command: list[Any]) -> Any:
        self.commands.append(command)
        return super()._expected(command)

    @rule(step_us=STEPS_US, rows=st.lists(URGENT_ROWS, min_size=2, max_size=6), command=PULL)
    def push_much(self, step_us: int, rows: list[list[Any]], command: list[Any]) -> None:
        self._batch(step_us, [[Op.PUSH_ROWS, b"a", rows]])
        self._batch(0, [command])

    @rule(rows=st.lists(URGENT_ROWS, min_size=3, max_size=6), ages=st.lists(st.integers(0, 5), min_size=1, max_size=5))
    def most_of_a_chunk_leaves(self, rows: list[list[Any]], ages: list[int]) -> None:
        self._batch(0, [[Op.SET_PROPERTIES, b"a", [[b"timeout", 30]]], [Op.PUSH_ROWS, b"a", rows]])
        self._batch(0, [[Op.PULL, b"a", 6]])
        self._batch(0, [[Op.ACK, b"a", [age]] for age in ages])
        for _ in list(self.machine.state.pager.sparse):
            self._batch(0, [])
        for queue in self.machine.state.queues.values():
            assert queue.store.gathered is None or not any(chunk.is_sparse() for chunk in queue.store.gathered.chunks)

    @rule(step_us=STEPS_US, commands=st.lists(PUSH | PULL | SETTLE, min_size=1, max_size=6), pages=st.booleans())
    def continue_beside_a_view(self, step_us: int, commands: list[list[Any]], *, pages: bool) -> None:
        """A view gives the state at its opening, whatever happens to bodies before they are read."""
        before = restored(self.pages, self.machine, pages=False, resident=True)
        with self.machine.freeze_view(pages=pages) as view:
            for command in commands:
                self._batch(step_us, [command])
            rows = [over_the_wire(record) for record in view.records()]
        after = Restoration(empty(self.pages, resident=True).state)
        for row in rows:
            after.take(row)
        assert list(Machine(compile_pattern, after.finish()).snapshot()) == list(before.snapshot())

    @rule(which=st.sampled_from(["machine", "twin"]))
    def restart_from_pages(self, which: str) -> None:
        setattr(self, which, restored(self.pages, getattr(self, which), pages=True, resident=which == "twin"))

    @rule()
    def restart_from_all_messages(self) -> None:
        """Only the replica may forget which bodies share a page."""
        self.replica = restored(self.pages, self.replica, pages=False, resident=True)

    def restart_from_a_snapshot(self, which: str) -> None:
        """Use `restart_from_pages` instead, because a replica restored from all messages has other pages."""

    @invariant()
    def nodes_have_the_same_pages(self) -> None:
        assert named(self.machine) == named(self.twin)

    @invariant()
    def sums_are_right(self) -> None:
        check_sums(self.machine)
        check_sums(self.twin)


def empty(store: MemoryPages, *, resident: bool) -> Machine:
    """Return a machine with this store, which it uses only if necessary with `resident`."""
    machine = Machine(compile_pattern)
    machine.state.pager.store = store
    if not resident:
        machine.state.pager.resident_bytes_max = 0
    return machine


def restored(store: MemoryPages, machine: Machine, *, pages: bool, resident: bool) -> Machine:
    """Return a machine restored from a snapshot of this one, which names pages if `pages`."""
    restoration = Restoration(empty(store, resident=resident).state)
    with machine.freeze_view(pages=pages) as view:
        for record in view.records():
            restoration.take(over_the_wire(record))
    if pages:
        assert set(restoration.pages) <= set(store.payloads)
    return Machine(compile_pattern, restoration.finish())


def named(machine: Machine) -> list[Any]:
    """Return the records of a snapshot that names pages."""
    with machine.freeze_view(pages=True) as view:
        return [over_the_wire(record) for record in view.records()]


def check_sums(machine: Machine) -> None:
    """Compare the counts of a machine with the contents of its queues."""
    common = machine.state.pager
    gathered = [queue.store.gathered for queue in machine.state.queues.values() if queue.store.gathered is not None]
    chunks = [chunk for bodies in gathered for chunk in bodies.chunks]
    lines = [queue.store.backlog.chunks for queue in machine.state.queues.values() if queue.store.backlog is not None]
    assert len(common) == len(chunks) + sum(map(len, lines))
    assert common.paged_body_bytes == sum(chunk.live_bytes for chunk in chunks if not chunk.is_here())
    assert common.idle_bytes == sum(chunk.size_bytes - chunk.live_bytes for chunk in chunks if chunk.is_here())
    resident = [*chunks, *(chunk for line in lines for chunk in line)]
    assert common.resident_bytes == sum(chunk.memory_bytes() for chunk in resident if chunk.is_here())
    assert {chunk.page for chunk in resident if chunk.page} <= set(common.pages())
    sparse = {found() for _, _, found in common.sparse}
    assert {chunk for chunk in chunks if chunk.is_sparse()} <= sparse
    for queue in machine.state.queues.values():
        held = {id(body) for body in _bodies(machine, queue.name)}
        known = [] if queue.store.gathered is None else [id(body) for body in _standing(queue.store.gathered.chunks)]
        tails = (
            [] if queue.store.gathered is None else [queue.store.gathered.again, *queue.store.gathered.tails.values()]
        )
        known += [id(body) for tail in tails for body in tail.bodies]
        assert len(known) == len(set(known))
        assert set(known) == held
        assert all(tail.size_bytes == sum(body.size for body in tail.bodies) for tail in tails)


def _standing(chunks: Any) -> Iterator[Body]:
    for chunk in chunks:
        assert isinstance(chunk, BodyChunk)
        assert chunk.live_bytes == sum(body.size for body in chunk.lives if body is not None)
        for place, body in enumerate(chunk.lives):
            if body is not None:
                assert (body.home, body.place, body.data) == (chunk, place, None)
                yield body


def _bodies(machine: Machine, name: bytes) -> Iterator[Body]:
    queue = machine.state.queues[name]
    line = queue.store.in_line()
    entries: Iterator[Any] = (entry[-1] for block in line.entries for entry in block)
    for message in [*line.messages, *entries, *queue.store.leases.messages.values()]:
        if isinstance(message.content, Body):
            assert isinstance(message.content.home, BodyChunk | BodyTail)
            yield message.content


TestPagedBodiesAgainstModel = PagedBodiesAgainstModel.TestCase
TestPagedBodiesAgainstModel.settings = settings(stateful_step_count=40)
