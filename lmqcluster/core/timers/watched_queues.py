"""The part of the queues' state that the timers use."""

from __future__ import annotations

from typing import Protocol

from ..queue.expiry import Expiry
from ..queue.queue import Queue

__all__ = ["WatchedQueues"]


class WatchedQueues(Protocol):
    """The part of `QueueTable` that the timers use.

    Attributes:
        version, now_us, queues, expiry, aged_total: see `QueueTable`.
    """

    version: int
    now_us: int
    queues: dict[bytes, Queue]
    expiry: Expiry
    aged_total: int

    def existing(self, name: bytes) -> Queue | None:
        """Return the queue of that name for modification, None if there is none."""

    def touched(self, queue: Queue) -> Queue:
        """Return the queue for modification."""

    def note_due(self, queue: Queue) -> None:
        """Report that messages of the queue may be due earlier than before."""

    def delete(self, name: bytes) -> bool:
        """Delete a queue with its contents; return whether it existed."""
