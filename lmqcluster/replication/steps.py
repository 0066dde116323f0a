"""Scheduling of a member's Raft core and of the syncs before its messages: one coalesced step per wake-up.

A step has three parts. First the core processes received messages. A follower syncs and acknowledges the entries
stored by this before it applies them; the leader continues in parallel. Then the core advances: it commits, applies
and appends. The entries that a leader appends are sent to the followers while its own sync runs. Finally the step is
finished. A sync runs in a thread while the event loop continues to decode requests; the core and the machine are not
touched during the sync. Heartbeats continue as long as the disk makes progress.

A process may stall, because its machine does or because it copies a large message. Messages of other members wait in
its sockets for that time, so the silence says nothing about the others and does not count.
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

TICK_S = 0.05
"""A deadline of the core is noticed at most about this much late; messages and proposals run a step at once."""
STALL_S = 0.2
"""An event loop blocked for this long counts as stalled."""
DISK_PATIENCE_S = 3.0
"""If the disk makes no progress for this long, heartbeats stop, so that followers elect another leader."""


class Sender(Protocol):
    """Sends messages to peers."""

    def flush(self, *, synced: bool = True) -> None:
        """Write queued messages to the network; unless the journal is `synced`, hold back promises that data is on disk."""


class Steps:
    """The steps of one member.

    Args:
        owner: carries out their parts.
        journal: the log to sync.
        sender: holds back messages that wait for a sync.
        worker: carries out the syncs; None if the journal syncs without waiting for a disk.

    Attributes:
        is_syncing: whether a step waits for the disk.
        syncs_total: number of syncs for which a step waited.
        sync_durations: seconds from handing the log's writes to their thread until their completion is reported.
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
        # Time of the last progress of the disk, and its count.
        self._moved_s, self._progress = 0.0, 0
        # Time at which the event loop last ran.
        self._turned_s = library.monotonicTime()
        self._next_part: Callable[[], None] = self._advance
        self._scheduled = False
        self._again = False
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None

    def tick(self) -> None:
        """Run a step now and every `TICK_S` from then on."""
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
        """Wait for the running sync, so that no file is closed under it."""
        if self._worker is not None:
            self._worker.close()

    def step(self) -> None:
        """Run a step now, or after the running sync."""
        self._scheduled = False
        if self.is_syncing:
            # Entries added during the sync promise nothing, so they may be sent.
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
        except Exception as exc:  # noqa: BLE001 - after any failed step, continuing could break a promise
            self._owner.failed(exc)

    def _note_stall(self) -> None:
        """Report a stall if the event loop was blocked since the last call; otherwise every tick gets here."""
        # The loop's cached time does not advance while it is blocked.
        now_s = library.monotonicTime()
        stall_s, self._turned_s = now_s - self._turned_s, now_s
        if stall_s >= STALL_S:
            # The disk may have been given work since.
            self._moved_s = min(self._moved_s + stall_s, self._loop.time())
            self._owner.on_event_loop_stall(stall_s)

    def _pass_time(self) -> None:
        """Send heartbeats and entries during a sync."""
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
        # Storing the received entries may have taken long.
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
