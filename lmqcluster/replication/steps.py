"""When a member's Raft core moves, and what has to be on the disk before anybody hears of it: one coalesced step per wake-up.

A step has three parts. First the core takes note of what has arrived. What a follower stores by that is synced and answered
before it is applied, while the leader goes on. Then the core advances: it commits, applies and appends. What a leader appends
leaves for the followers while its own sync runs. At last the step is finished. A sync runs in a thread while the event loop goes
on decoding requests; the core and the machine are not touched meanwhile. Signs of life go on, as long as the disk shows some too.

A process that stands still for a while, because its machine does or because it copies a large message, hears nobody meanwhile.
What it would have heard waits in its sockets, so that time says nothing about the others and does not count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from pysyncobj import syncobj as library

from .base.histogram import Histogram
from .member import MemberView
from .storage.io.worker import Worker
from .storage.journal.journal import Journal

__all__ = ["Steps"]

TICK_S = 0.02
STALL_S = 0.2
"""A member whose event loop has not turned for so long has stood still."""
DISK_PATIENCE_S = 3.0
"""A disk that gets on with nothing for so long has failed, as far as the others are concerned."""


class Sender(Protocol):
    """What brings messages to peers."""

    def flush(self, *, synced: bool = True) -> None:
        """Hand what is queued to the network; unless the journal is `synced`, without what promises that something is on disk."""


class Steps:
    """The steps of one member.

    Args:
        owner: carries out their parts.
        journal: what has to be synced.
        sender: holds back what waits for a sync.
        worker: carries out the syncs; None if the journal syncs without waiting for a disk.

    Attributes:
        is_syncing: whether a step waits for the disk.
        syncs_total: how many syncs a disk was waited for.
        sync_durations: seconds from handing the log's writes to their thread until it was heard that they are on the disk.
    """

    def __init__(self, owner: MemberView, journal: Journal, sender: Sender, worker: Worker | None) -> None:
        self.is_syncing = False
        self.syncs_total = 0
        self.sync_durations = Histogram()
        self._owner = owner
        self._journal = journal
        self._sender = sender
        self._worker = worker
        self._loop = asyncio.get_running_loop()
        self._sync_began_s = 0.0
        # When the disk has shown a sign of life, and what it was.
        self._moved_s, self._progress = 0.0, 0
        # When the event loop was last known to turn.
        self._turned_s = library.monotonicTime()
        self._next_part: Callable[[], None] = self._advance
        self._scheduled = False
        self._again = False
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None

    def tick(self) -> None:
        """Run a step now and then from now on, whatever happens."""
        if self._timer is None:
            self._turned_s = library.monotonicTime()
        self._timer = self._loop.call_later(TICK_S, self.tick)
        self.wake()

    def wake(self) -> None:
        """Run a step in this turn of the event loop."""
        if not self._scheduled and not self._stopped:
            self._scheduled = True
            self._loop.call_soon(self.step)

    def stop(self) -> None:
        """Run no more steps."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def close(self) -> None:
        """Let a sync under way end, so that its files are closed in peace."""
        if self._worker is not None:
            self._worker.close()

    def step(self) -> None:
        """Run a step here and now, or after the sync that is under way."""
        self._scheduled = False
        if self.is_syncing:
            # What has been added meanwhile promises nothing, so it may leave.
            self._again = True
            self._guarded(self._pass_time)
        else:
            self._guarded(self._begin)

    def _guarded(self, part: Callable[[], None]) -> None:
        if self._stopped:
            return
        try:
            self._note_stall()
            part()
        except Exception as exc:  # noqa: BLE001 - whatever went wrong in a step, going on could break a promise
            self._owner.failed(exc)

    def _note_stall(self) -> None:
        """Do not count the time since the last call if the loop has not turned in it, as it does with every tick."""
        # The loop's own clock stands still while it does not turn.
        now_s = library.monotonicTime()
        stall_s, self._turned_s = now_s - self._turned_s, now_s
        if stall_s >= STALL_S:
            # The disk may have been given work since.
            self._moved_s = min(self._moved_s + stall_s, self._loop.time())
            self._owner.stood_still(stall_s)

    def _pass_time(self) -> None:
        """A sync is under way."""
        now_s, progress = self._loop.time(), self._journal.progress
        if progress != self._progress:
            self._moved_s, self._progress = now_s, progress
        if now_s - self._moved_s < DISK_PATIENCE_S:
            self._owner.keep_alive()
        self._sender.flush(synced=False)

    def _begin(self) -> None:
        self._owner.take_input()
        self._sync_then(self._advance)

    def _advance(self) -> None:
        # What has arrived may have taken long to store.
        self._note_stall()
        self._owner.advance()
        self._sync_then(self._end)

    def _end(self) -> None:
        self._sender.flush()
        if self._owner.finish() or self._again:
            self._again = False
            self.wake()

    def _sync_then(self, next_part: Callable[[], None]) -> None:
        journal = self._journal
        if not journal.dirty:
            next_part()
        elif self._worker is None:
            journal.sync()
            self._sender.flush()
            next_part()
        else:
            self.is_syncing = True
            self._next_part = next_part
            self._sync_began_s = self._moved_s = self._loop.time()
            # Appended entries may leave before our own sync; answers may not.
            self._sender.flush(synced=False)
            self._worker.run(journal.take_work(), self._synced)

    def _synced(self, error: Exception | None) -> None:
        self.is_syncing = False
        if self._stopped:
            return
        if error is not None:
            self._owner.failed(error)
            return
        self.syncs_total += 1
        self.sync_durations.observe(self._loop.time() - self._sync_began_s)
        self._guarded(self._go_on)

    def _go_on(self) -> None:
        self._journal.written()
        self._sender.flush()
        self._next_part()
