"""Counters of the Kestrel clients' operations on this node since its start."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from ...core import Queue

__all__ = ["KestrelCounts", "KestrelQueueCounts"]


@dataclass(slots=True)
class KestrelQueueCounts:
    """Counters of their operations on one queue. The names are those of Kestrel's statistics."""

    put_items: int = 0
    put_bytes: int = 0
    get_items_miss: int = 0
    transactions: int = 0
    total_flushes: int = 0


@dataclass(slots=True)
class KestrelCounts:
    """Counters of commands and connections with Kestrel's names, except `connections`, which is ``total_connections``.

    Figures that the replicated state counts, such as ``queue_deletes``, are not here.

    Attributes:
        status: returns the name of the server's status.
        of_queues: counters of existing queues.
    """

    status: Callable[[], str] = lambda: "UP"
    started_s: float = field(default_factory=time.monotonic)
    connections: int = 0
    cmd_get: int = 0
    cmd_set: int = 0
    cmd_peek: int = 0
    cmd_monitor: int = 0
    cmd_monitor_get: int = 0
    get_hits: int = 0
    get_misses: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    waiters_aborted: int = 0
    of_queues: WeakKeyDictionary[Queue, KestrelQueueCounts] = field(default_factory=WeakKeyDictionary)

    def of(self, queue: Queue) -> KestrelQueueCounts:
        """Return the counters of a queue."""
        found = self.of_queues.get(queue)
        if found is None:
            found = self.of_queues[queue] = KestrelQueueCounts()
        return found
