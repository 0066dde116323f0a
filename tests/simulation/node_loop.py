"""The parts of the environment that a node's own code uses: event loop, threads, clocks, logger."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import sys
import types
from collections import deque
from typing import TYPE_CHECKING, Any
from unittest import mock

import lmqcluster.core.queue.paged_tail
import lmqcluster.node.commit.proposer
import lmqcluster.node.leader_commands
import lmqcluster.node.membership.incarnation
import lmqcluster.node.membership.replica_digests
import lmqcluster.node.node
import lmqcluster.node.schedule_upkeep
import lmqcluster.replication.base.log_clock
import lmqcluster.replication.recovery.lost_pages
import lmqcluster.replication.recovery.page_exchange
import lmqcluster.replication.recovery.page_wait
import lmqcluster.replication.recovery.snapshot_keeper
import lmqcluster.replication.recovery.snapshot_requests
import lmqcluster.replication.replica
import lmqcluster.replication.storage.meta
import lmqcluster.replication.storage.node_storage
import lmqcluster.replication.storage.page_files
import lmqcluster.replication.storage.snapshots.snapshot_file
from lmqcluster.core.queue.paged_tail import ChunkSizes
from lmqcluster.replication.storage.journal.disk_journal import DiskJournal
from tests.simulation.host import Host

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from contextvars import Context

    from tests.simulation.clock import Clock

__all__ = ["HostLoop", "SimWorker", "node_world", "storage_world"]

TURN_S = 0.00005
"""Duration of one turn of a process's event loop."""

JOURNAL_DEFAULTS = DiskJournal.open.__func__.__kwdefaults__  # type: ignore[attr-defined]
CACHE_BYTES = 4000
"""Size of the cache of journal commands; others are read back."""
BLOCK_BYTES = 600
"""Size of a snapshot block, small enough that a snapshot has many."""

TICK_S = 0.05
"""Longer than in production, because most ticks of a run are idle."""

EPOCH_S = 1_700_000_000


class _Timer:
    """The result of `call_later`."""

    __slots__ = ("cancelled",)

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class HostLoop:
    """The part of asyncio's event loop that the node's synchronous code uses, on virtual time, for one life
    of a process.
    """

    def __init__(self, host: Host, clock: Clock) -> None:
        self._host = host
        self._clock = clock
        self._life = host.life

    def time(self) -> float:
        return self._clock.now

    def get_debug(self) -> bool:
        return False

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)  # type: ignore[arg-type]  # it needs only what is here

    def call_exception_handler(self, _context: dict[str, Any]) -> None:
        """Ignore the exceptions of futures whose process has died."""

    def call_soon(self, callback: Callable[..., None], *arguments: Any, context: Context | None = None) -> _Timer:
        return self.call_later(TURN_S, callback, *arguments)

    def call_later(self, delay_s: float, callback: Callable[..., None], *arguments: Any) -> _Timer:
        timer = _Timer()
        self._clock.after(delay_s, self._fire, timer, callback, arguments)
        return timer

    def _fire(self, timer: _Timer, callback: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if not timer.cancelled and self._host.life == self._life:
            self._host.input(self._run, timer, callback, arguments)

    def _run(self, timer: _Timer, callback: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        # The timer may have been cancelled while the process was paused.
        if not timer.cancelled:
            callback(*arguments)


class SimWorker:
    """A `Worker` that executes each piece of work after a delay of the disk, and reports it a moment later."""

    def __init__(self, host: Host, loop: HostLoop) -> None:
        self._host = host
        self._loop = loop
        self._queue: deque[tuple[Any, Any]] = deque()
        self._busy = False

    def run(self, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        self._queue.append((work, done))
        if not self._busy:
            self._begin()

    def close(self) -> None:
        self._queue.clear()

    def _begin(self) -> None:
        self._busy = True
        self._loop.call_later(self._host.rng.uniform(*self._host.disk_s), self._carry_out)

    def _carry_out(self) -> None:
        if not self._queue:
            return
        work, done = self._queue.popleft()
        error: Exception | None = None
        try:
            work()
        except Exception as exc:  # noqa: BLE001 - the caller receives it
            error = exc
        self._loop.call_soon(done, error)
        self._busy = False
        if self._queue:
            self._begin()


class _Silence:
    """A logger without output."""

    def __getattr__(self, _level: str) -> Callable[..., None]:
        return lambda *_arguments, **_fields: None


class _ProposerLog(_Silence):
    """Reports to the host the exceptions raised while an answer is given, because the node itself continues."""

    def exception(self, _event: str, **_fields: Any) -> None:
        error = sys.exc_info()[1]
        if Host.acting is not None and isinstance(error, Exception):
            Host.acting.answer_failed(error)


def _boot() -> str:
    return f"boot {Host.acting.boots}" if Host.acting is not None else ""


def _token(size_bytes: int) -> str:
    """Return the identity of a data directory; not drawn, so that it does not change other draws."""
    host = Host.acting
    name = "" if host is None else f"{host.id} {host.life}"
    return hashlib.blake2b(name.encode(), digest_size=size_bytes).hexdigest()


def _below(limit: int) -> int:
    """Return the identity of a life, likewise not drawn."""
    return int(_token(8), 16) % limit


def _clocks(clock: Clock) -> types.SimpleNamespace:
    """Return the module `time` as the running process sees it."""

    def wall_s() -> float:
        return EPOCH_S + clock.now + (0.0 if Host.acting is None else Host.acting.wall_offset_s)

    return types.SimpleNamespace(
        time=wall_s,
        time_ns=lambda: int(wall_s() * 1e9),
        monotonic=lambda: clock.now,
        monotonic_ns=lambda: int(clock.now * 1e9),
        perf_counter=lambda: clock.now,
    )


@contextlib.contextmanager
def storage_world(clock: Clock) -> Iterator[None]:
    """Return the replacements for the storage modules."""
    replication = lmqcluster.replication
    with contextlib.ExitStack() as patches, mock.patch.dict(JOURNAL_DEFAULTS, cache_bytes=CACHE_BYTES):
        for module, name, value in (
            (replication.storage.meta, "time", _clocks(clock)),
            (replication.storage.meta, "secrets", types.SimpleNamespace(token_hex=_token, randbelow=_below)),
            (replication.storage.meta, "log", _Silence()),
            (replication.storage.node_storage, "log", _Silence()),
            (replication.storage.node_storage, "boot_id", _boot),
            (replication.storage.snapshots.snapshot_file, "RAW_BYTES", BLOCK_BYTES),
            (replication.storage.snapshots.snapshot_file, "RAW_BYTES_MAX", BLOCK_BYTES),
        ):
            patches.enter_context(mock.patch.object(module, name, value))
        yield


PATIENCE_S = 0.1
"""Short enough that in networks much slower than real ones entries often arrive in time and often do not."""
CHUNK_SIZES = ChunkSizes(head_messages=4, messages=3, body=1, gather_bytes=0, gather_bytes_all=0)
"""Small, because queues in the simulation are short."""
UNWRITTEN_MAX = 2
"""Low, so that disks are often too slow for the load."""


@contextlib.contextmanager
def node_world(clock: Clock, rng: random.Random) -> Iterator[None]:
    """Return the replacements for the node's modules: virtual clocks, seeded random numbers, no logs."""
    time = _clocks(clock)
    randomness = types.SimpleNamespace(Random=lambda: rng)
    silence = _Silence()
    modules = lmqcluster
    with storage_world(clock), contextlib.ExitStack() as patches:
        for module, name, value in (
            (modules.node.commit.proposer, "time", time),
            (modules.node.leader_commands, "time", time),
            (modules.node.schedule_upkeep, "time", time),
            (modules.node.schedule_upkeep, "log", silence),
            (modules.replication.base.log_clock, "time", time),
            (modules.replication.replica, "random", randomness),
            (modules.replication.steps, "TICK_S", TICK_S),
            (modules.replication.replica, "PATIENCE_S", PATIENCE_S),
            (modules.replication.raft.commit_notifier, "PATIENCE_S", PATIENCE_S),
            (modules.node.leader_commands, "os", types.SimpleNamespace(urandom=rng.randbytes)),
            (modules.node.commit.proposer, "log", _ProposerLog()),
            (modules.replication.replica, "log", silence),
            (modules.replication.recovery.snapshot_keeper, "log", silence),
            (modules.node.node, "log", silence),
            (modules.node.leader_commands, "log", silence),
            (modules.node.membership.replica_digests, "os", types.SimpleNamespace(urandom=rng.randbytes)),
            (modules.node.membership.replica_digests, "log", silence),
            (modules.node.membership.replica_digests, "DIGEST_EVERY", 5),
            (modules.node.membership.incarnation, "log", silence),
            (modules.replication.storage.page_files, "log", silence),
            (modules.replication.storage.page_files, "UNWRITTEN_MAX", UNWRITTEN_MAX),
            (modules.replication.storage.page_files, "WRITE_BYTES", 1),
            (modules.replication.recovery.page_exchange, "log", silence),
            (modules.replication.recovery.lost_pages, "log", silence),
            (modules.replication.recovery.page_wait, "log", silence),
            (modules.replication.recovery.snapshot_requests, "log", silence),
            (modules.core.queue.paged_tail, "CHUNK_SIZES", CHUNK_SIZES),
        ):
            patches.enter_context(mock.patch.object(module, name, value))
        yield
