"""What Kestrel's clients have done at this node since it started."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from ...core import Queue

__all__ = ["KestrelCounts"]


@dataclass(slots=True)
class KestrelCounts:
    """The names are those of Kestrel's statistics, but for `connections`, which is ``total_connections``.

    Attributes:
        status: tells the name of the status of the server.
        flushes: ``total_flushes`` of queues, as long as they are there.
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
    queue_deletes: int = 0
    flushes: WeakKeyDictionary[Queue, int] = field(default_factory=WeakKeyDictionary)

    def flushed(self, queue: Queue) -> None:
        """A queue was flushed."""
        self.flushes[queue] = self.flushes.get(queue, 0) + 1
