"""Takes, receives and installs snapshots while the node runs: in small slices on the event loop, files in a worker thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import structlog

from ...core import Machine, Restoration, SnapshotView, State
from ...core.log.commands import Compile
from ..base.histogram import Histogram
from ..base.membership import PeerNode
from ..member import MemberView
from ..raft import snapshot_port
from ..storage.io.disk import DamagedFileError
from ..storage.io.worker import Worker
from ..storage.page_files import PageFiles
from ..storage.snapshots.snapshot_store import SnapshotInfo, SnapshotReceiver, SnapshotStore, SnapshotWriter
from ..storage.snapshots.stored_snapshot import StoredSnapshot
from .page_exchange import PageExchange

__all__ = ["SnapshotKeeper"]

log = structlog.get_logger("lmq.snapshots")

RECORDS_PER_SLICE = 2
"""Records packed or loaded in one turn of the event loop; each holds at most 500 messages or about 256 KiB."""
RETRY_S = 5.0
"""Pause after a snapshot could not be written, for example because the disk is full."""
IDLE_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of unneeded pages above which a snapshot is taken to free the disk."""
SPACE_PAUSE_S = 10.0
"""Shortest time between snapshots that are taken to free space."""
DENIAL_PAUSE_S = 5.0
"""Shortest time between checks after a denied page: a peer that receives a snapshot asks repeatedly."""
BACKLOG_BLOCKS_MAX = 8
"""Most received blocks that wait for the disk before requests for more stop; the sender's window limits the rest."""

_DURATION_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)

Loaded = Callable[[SnapshotInfo | None], bool]


class SnapshotKeeper:
    """The core's `SnapshotPort` over a `SnapshotStore`.

    Attributes:
        taken_total, installed_total, failed_total: counters.
        durations: seconds to take a snapshot, from the frozen view to the durable file.
    """

    def __init__(
        self,
        owner: MemberView,
        store: SnapshotStore,
        pages: PageFiles,
        exchange: PageExchange,
        worker: Worker,
        compile_pattern: Compile,
        *,
        backlog_bytes: int,
    ) -> None:
        """Prepare the keeper; `backlog_bytes` is the part of its backlogs that a machine keeps in memory."""
        self._owner = owner
        self._store = store
        self._pages = pages
        self._exchange = exchange
        exchange.on_denied = self._denied
        # Pages that each snapshot names.
        self._pages_of: dict[SnapshotInfo, list[bytes]] = {}
        self._worker = worker
        self._compile = compile_pattern
        self._backlog_bytes = backlog_bytes
        self._loop = asyncio.get_running_loop()
        # Pages of the snapshot that is being loaded.
        self._receiving_pages: list[bytes] = []
        self._taking: _Taking | None = None
        self._not_before_s = 0.0
        self._no_space_before_s = 0.0
        self._no_denial_before_s = 0.0
        self._waiting: list[asyncio.Future[SnapshotInfo]] = []
        self._held: dict[SnapshotInfo, float] = {}
        self._portable: dict[int, asyncio.Task[StoredSnapshot]] = {}
        self._portable_until: dict[int, float] = {}
        self._closed = False
        self.taken_total = 0
        self.failed_total = 0
        self.durations = Histogram(_DURATION_S)
        self._began_s = 0.0
        self.installed_total = 0

    def close(self) -> None:
        """Stop, and abandon a snapshot being taken."""
        self._closed = True
        if self._taking is not None:
            self._taking.abandon()
            self._taking = None

    # --- taking ---------------------------------------------------------------------------------------------------

    def latest(self) -> SnapshotInfo | None:
        """Return the newest complete snapshot."""
        return self._store.latest

    def under_way(self) -> int | None:
        """Return the log index of the snapshot that is being taken."""
        return None if self._taking is None else self._taking.index

    def request(self) -> None:
        """Take a snapshot of the current state, unless one is being taken or has just failed. Call it in a step."""
        if self._taking is not None or self._closed or self._loop.time() < self._not_before_s:
            return
        index, term, members = self._owner.position()
        latest = self._store.latest
        if latest is not None and latest.index == index:
            self._tell(latest)
            return
        machine = self._owner.machine
        writer = self._store.create(index, term, members, machine.state.now_us)
        self._taking = _Taking(index, machine.freeze_view(pages=True), writer)
        self._began_s = time.monotonic()
        self._loop.call_soon(self._slice)

    def request_for_space(self) -> None:
        """Take a snapshot if that frees more disk space than it takes. Call it in a step."""
        files, needed = len(self._pages), len(self._owner.machine.state.pager)
        if files <= needed or self._loop.time() < self._no_space_before_s:
            return
        latest = self._store.latest
        idle_bytes = self._pages.size_bytes * (files - needed) // files
        if idle_bytes > max(IDLE_BYTES_MAX, 0 if latest is None else latest.size_bytes):
            # Snapshots being sent, or held for a backup, keep their pages, so the next one may free nothing.
            self._no_space_before_s = self._loop.time() + SPACE_PAUSE_S
            self.request()

    def _denied(self, page: bytes) -> None:
        """Take a new snapshot if the latest one names a lost page that the state does not need.

        A peer that receives the latest snapshot may have requested the page, and no other member may have it. A new
        snapshot does not name it.
        """
        latest = self._store.latest
        if latest is None or self._closed or self._loop.time() < self._no_denial_before_s:
            return
        self._no_denial_before_s = self._loop.time() + DENIAL_PAUSE_S
        if page in self._pages_of.get(latest, ()) and page not in set(self._owner.machine.state.pager.pages()):
            log.warning("a page of the latest snapshot is lost and of no other use, taking a new one", page=page.hex())
            self._owner.in_step(self.request)

    async def take(self) -> SnapshotInfo:
        """Take a snapshot now, or wait for the one under way.

        Raises:
            OSError: it could not be written.
        """
        future: asyncio.Future[SnapshotInfo] = self._loop.create_future()
        self._waiting.append(future)
        self._not_before_s = 0.0
        self._owner.in_step(self.request)
        return await future

    def _tell(self, info: SnapshotInfo) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(info)

    def _slice(self) -> None:
        """Pack some records, write them in the worker, then continue with the next slice."""
        taking = self._taking
        if taking is None:
            return
        if self._pages.is_writing and self._pages.is_flooded():
            # Pages that wait for the disk take memory.
            self._pages.when_written(self._slice)
            return
        exhausted = not taking.pack(RECORDS_PER_SLICE)
        if exhausted:
            taking.view.close()
            self._pages.sync(lambda error: self._pages_synced(taking, error))
            return
        work = taking.writer.take_work()
        if work is None:
            self._loop.call_soon(self._slice)
        else:
            self._worker.run(work, self._sliced)

    def _pages_synced(self, taking: _Taking, error: Exception | None) -> None:
        """Finish the snapshot, as its pages are durable; it must not become durable before them."""
        if error is not None:
            self._give_up(error)
        elif self._taking is taking:
            self._worker.run(taking.writer.finish_work(), self._finished)

    def _sliced(self, error: Exception | None) -> None:
        if error is None:
            self._slice()
        else:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Continue without a new snapshot: the log grows, nothing is lost."""
        if not isinstance(error, OSError):
            self._owner.failed(error)
            return
        taking, self._taking = self._taking, None
        if taking is not None:
            taking.abandon()
        self._not_before_s = self._loop.time() + RETRY_S
        self.failed_total += 1
        log.error("snapshot not written, trying again later", reason=str(error), pause_s=RETRY_S)
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_exception(error)

    def _finished(self, error: Exception | None) -> None:
        if error is not None:
            self._give_up(error)
            return
        self._owner.in_step(self._adopt_taken)

    def _adopt_taken(self) -> None:
        taking, self._taking = self._taking, None
        if taking is None:
            return
        info = self._store.adopt(taking.writer)
        self._pages_of[info] = taking.view.pages
        self.taken_total += 1
        self.durations.observe(time.monotonic() - self._began_s)
        log.info("snapshot taken", index=info.index, bytes=info.size_bytes, blocks=info.blocks)
        self._owner.snapshot_taken(info)
        self._remove_older()
        self._tell(info)

    # --- sending --------------------------------------------------------------------------------------------------

    def read_blocks(self, info: SnapshotInfo, numbers: range, done: Callable[[dict[int, bytes]], None]) -> None:
        """See `SnapshotPort.read_blocks`."""
        stored, blocks = self._store.find(info), dict[int, bytes]()

        def work() -> None:
            blocks.update((number, stored.read_block(number)) for number in numbers)

        def read(error: Exception | None) -> None:
            if error is not None:
                self._owner.failed(error)
            else:
                self._owner.in_step(lambda: done(blocks))

        # The same thread closes the file when it is no longer needed.
        self._worker.run(work, read)

    async def take_portable(self, seconds: float) -> SnapshotInfo:
        """Take a snapshot that needs no pages, and keep it for at least `seconds`, even if a newer one follows.

        Raises:
            OSError: it could not be written.
        """
        info = await self.take()
        # Its pages stay until it is copied.
        self._held[info] = self._loop.time() + seconds
        if not self._pages_of.get(info):
            return info
        copy = self._portable.get(info.index)
        if copy is None:
            copy = self._portable[info.index] = self._loop.create_task(self._copy(info))
        try:
            stored = await asyncio.shield(copy)
        except (OSError, ValueError, DamagedFileError):
            self._portable.pop(info.index, None)
            raise
        # The copy does not need the pages.
        self._held.pop(info, None)
        self._portable_until[info.index] = self._loop.time() + seconds
        self._loop.call_later(seconds, self._drop_portable, info.index)
        return stored.info

    async def _copy(self, info: SnapshotInfo) -> StoredSnapshot:
        return await asyncio.to_thread(self._store.write_portable, info, self._pages.read)

    async def portable_block(self, index: int, number: int) -> bytes | None:
        """Read a block of the portable snapshot of that log entry; None if there is none, or it is no longer kept."""
        stored = self._copied(index)
        if stored is None:
            held = next((info for info in self._held if info.index == index and not self._pages_of.get(info)), None)
            stored = None if held is None else self._store.find(held)
        if stored is None or number >= stored.info.blocks:
            return None
        read: asyncio.Future[bytes] = self._loop.create_future()
        box: list[bytes] = []

        def have_read(error: Exception | None) -> None:
            if read.done():
                return
            if error is None:
                read.set_result(box[0])
            else:
                read.set_exception(error)

        self._worker.run(lambda: box.append(stored.read_block(number)), have_read)
        return await read

    def _copied(self, index: int) -> StoredSnapshot | None:
        copy = self._portable.get(index)
        return copy.result() if copy is not None and copy.done() else None

    def _drop_portable(self, index: int) -> None:
        stored = self._copied(index)
        # It may have been requested again.
        if stored is not None and self._portable_until[index] <= self._loop.time():
            del self._portable[index], self._portable_until[index]
            self._worker.run(lambda: self._store.remove_portable(stored), _removed)

    # --- receiving ------------------------------------------------------------------------------------------------

    def receive(self, index: int, term: int) -> snapshot_port.SnapshotReceiver:
        """Begin to receive a snapshot."""
        return _Receiving(self._store.receive(index, term), self._worker, self._owner)

    def install(self, receiver: snapshot_port.SnapshotReceiver, source: PeerNode, loaded: Loaded) -> None:
        """See `SnapshotPort.install`. The state is loaded before the file gets its name, so that no useless file has one."""
        if not isinstance(receiver, _Receiving):
            raise TypeError("only what `receive` gave can be installed")
        incoming = receiver.incoming
        if not incoming.complete:
            log.warning("received snapshot is damaged, asking for it again", blocks=incoming.next_block)
            self._owner.in_step(lambda: _ignore(loaded(None)))
            return
        loading = _Loading(incoming, Restoration(self._empty_state()), source, loaded)

        def written(error: Exception | None) -> None:
            if error is not None:
                self._owner.failed(error)
            else:
                loading.records = incoming.records()
                self._load_slice(loading)

        self._worker.run(incoming.take_work() or _nothing, written)

    def _load_slice(self, loading: _Loading) -> None:
        if self._closed:
            return
        try:
            more = loading.take(RECORDS_PER_SLICE)
        except (DamagedFileError, ValueError, OSError) as exc:
            # Its checksums were right, so either this program or this disk is faulty.
            self._owner.failed(exc)
            return
        if more:
            self._loop.call_soon(self._load_slice, loading)
        else:
            self._receiving_pages = loading.restoration.pages
            lacking = [page for page in loading.restoration.pages if page not in self._pages]
            self._exchange.fetch(loading.source, lacking, lambda are_here: self._have_pages(loading, are_here=are_here))

    def _have_pages(self, loading: _Loading, *, are_here: bool | None) -> None:
        """Continue after the fetch of the snapshot's pages, which the sender of the snapshot may lack."""
        if are_here:
            self._pages.sync(lambda error: self._finish_received(loading, error))
        else:
            log.warning("pages of the received snapshot are missing, asking for another snapshot")
            self._abandon(loading)

    def _finish_received(self, loading: _Loading, error: Exception | None) -> None:
        if error is None:
            self._worker.run(loading.incoming.finish_work(), lambda error: self._named(loading, error))
        elif isinstance(error, OSError):
            log.error("pages of the received snapshot not written", reason=str(error))
            self._abandon(loading)
        else:
            self._owner.failed(error)

    def _abandon(self, loading: _Loading) -> None:
        self._receiving_pages = []
        loading.incoming.abandon()
        self._owner.in_step(lambda: _ignore(loading.loaded(None)))

    def _named(self, loading: _Loading, error: Exception | None) -> None:
        if error is not None:
            self._owner.failed(error)
        else:
            self._owner.in_step(lambda: self._swap(loading))

    def _swap(self, loading: _Loading) -> None:
        self._receiving_pages = []
        if not loading.loaded(loading.incoming.info):
            # The log has reached the snapshot's index since, so the snapshot is useless.
            loading.incoming.abandon()
            return
        info = self._store.adopt(loading.incoming)
        self._pages_of[info] = loading.restoration.pages
        self.installed_total += 1
        # A snapshot being taken is of the replaced machine, at an older index.
        if self._taking is not None:
            self._taking.abandon()
            self._taking = None
        machine = Machine(self._compile, loading.restoration.finish())
        log.info("snapshot installed", index=info.index, queues=len(machine.state.queues), bytes=info.size_bytes)
        self._owner.replace_machine(machine)
        self._remove_older()

    def _remove_older(self) -> None:
        """Remove all snapshots except the latest, those being sent and those held."""
        now = self._loop.time()
        self._held = {info: until_s for info, until_s in self._held.items() if until_s > now}
        in_use = [*self._owner.snapshots_in_use(), *self._held]
        for info in in_use:
            self._store.pin(info)
        work = self._store.remove_older_work()
        for info in in_use:
            self._store.unpin(info)
        self._worker.run(work, _removed)
        self._sweep()

    # --- pages ----------------------------------------------------------------------------------------------------

    def _empty_state(self) -> State:
        state = State(self._compile)
        state.pager.store = self._pages
        state.pager.resident_bytes_max = self._backlog_bytes
        return state

    def restore(self, info: SnapshotInfo | None) -> tuple[Machine, list[bytes]]:
        """Return the machine of the snapshot with which the node starts, if any, and the pages that it needs and lacks.

        Pages that the snapshot does not name are removed.

        Raises:
            DamagedFileError: it is damaged.
            OSError: a file cannot be read or removed.
        """
        if info is None:
            return Machine(self._compile, self._empty_state()), self._pages.open(())
        restoration = Restoration(self._empty_state())
        for record in self._store.records(info):
            restoration.take(record)
        self._pages_of[info] = restoration.pages
        machine = Machine(self._compile, restoration.finish())
        lacking = self._pages.open(restoration.pages)
        for queue in machine.state.queues.values():
            if queue.store.backlog is not None:
                queue.store.backlog.look_ahead()
        self._pages.scrub()
        return machine, lacking

    def _sweep(self) -> None:
        """Remove pages that neither a snapshot nor the state needs, unless a snapshot is being taken."""
        machine = self._owner.machine
        if self._taking is not None or machine.state.view is not None:
            return
        stored = self._store.infos()
        self._pages_of = {info: pages for info, pages in self._pages_of.items() if info in stored}
        self._pages.sweep(chain(machine.state.pager.pages(), self._receiving_pages, *self._pages_of.values()))


def _removed(error: Exception | None) -> None:
    if error is not None:
        log.warning("old snapshots not removed", reason=str(error))


def _ignore(_accepted: bool) -> None:
    """Do nothing: a damaged snapshot is never accepted."""


class _Taking:
    """A snapshot being written."""

    def __init__(self, index: int, view: SnapshotView, writer: SnapshotWriter) -> None:
        self.index = index
        self.view = view
        self.writer = writer
        self._records = view.records()

    def pack(self, count: int) -> bool:
        """Pack up to `count` records; False if there are no more."""
        for _ in range(count):
            record = next(self._records, None)
            if record is None:
                return False
            self.writer.add(record)
        return True

    def abandon(self) -> None:
        self.view.close()
        self.writer.abandon()


def _nothing() -> None:
    """Do nothing: everything is written already."""


class _Loading:
    """A received snapshot that is being loaded into a machine."""

    def __init__(self, incoming: SnapshotReceiver, restoration: Restoration, source: PeerNode, loaded: Loaded) -> None:
        self.incoming = incoming
        self.restoration = restoration
        self.source = source
        self.loaded = loaded
        self.records: Iterator[list[Any]] = iter(())

    def take(self, count: int) -> bool:
        """Load up to `count` records; False if there are no more."""
        for _ in range(count):
            record = next(self.records, None)
            if record is None:
                self.restoration.finish()
                return False
            self.restoration.take(record)
        return True


class _Receiving:
    """A snapshot being received, written as it arrives."""

    def __init__(self, incoming: SnapshotReceiver, worker: Worker, owner: MemberView) -> None:
        self.incoming = incoming
        self._worker = worker
        self._owner = owner
        self._backlog = 0

    @property
    def next_block(self) -> int:
        return self.incoming.next_block

    def is_busy(self) -> bool:
        return self._backlog >= BACKLOG_BLOCKS_MAX

    def resumes(self, first_block: bytes) -> bool:
        return self.incoming.resumes(first_block)

    def take(self, number: int, block: bytes) -> None:
        self.incoming.take(number, block)
        work = self.incoming.take_work()
        if work is not None:
            self._backlog += 1
            self._worker.run(work, self._written)

    def _written(self, error: Exception | None) -> None:
        was_busy = self.is_busy()
        self._backlog -= 1
        if error is not None:
            self._owner.failed(error)
        elif was_busy and not self.is_busy():
            self._owner.in_step(self._owner.acknowledge_blocks)

    def abandon(self) -> None:
        self.incoming.abandon()
