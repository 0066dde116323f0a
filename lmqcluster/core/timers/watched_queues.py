"""What tables of queues that end by log time need of the queues' state."""

from __future__ import annotations

from typing import Protocol

from ..queue.expiry import Expiry
from ..queue.queue import Queue

__all__ = ["WatchedQueues"]


class WatchedQueues(Protocol):
    """The part of `QueueTable` that they use.

    Attributes:
        version, now_us, queues, expiry, aged_total: as there.
    """

    version: int
    now_us: int
    queues: dict[bytes, Queue]
    expiry: Expiry
    aged_total: int

    def existing(self, name: bytes) -> Queue | None:
        """The queue of that name, ready to be changed, None if there is none."""

    def touched(self, queue: Queue) -> Queue:
        """The queue, ready to be changed."""

    def note_due(self, queue: Queue) -> None:
        """Messages of the queue may be due earlier than before."""

    def delete(self, name: bytes) -> bool:
        """Delete a queue with all it holds; whether there was one."""
