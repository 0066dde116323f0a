"""The view that the parts of the state have of the whole."""

from __future__ import annotations

from typing import Protocol

from .log.notices import Notice
from .owners.quotas import Quotas
from .queue.expiry import Expiry
from .queue.queue import Queue

__all__ = ["StateView"]


class StateView(Protocol):
    """The view of the state; see `State`."""

    version: int
    now_us: int
    last_sequence: int
    last_delivery: int
    aged_total: int
    queues: dict[bytes, Queue]
    notices: list[Notice]
    ready: list[Queue]
    quotas: Quotas
    expiry: Expiry

    def queue(self, name: bytes) -> Queue:
        """Return the queue of that name for modification; create it if needed."""

    def existing(self, name: bytes) -> Queue | None:
        """Return the queue of that name for modification, None if there is none."""

    def touched(self, queue: Queue) -> Queue:
        """Return the queue for modification."""

    def add(self, name: bytes, owner: bytes) -> Queue:
        """Create a queue, regardless of the owner's quota."""

    def delete(self, name: bytes) -> bool:
        """Delete a queue with its contents; return whether it existed."""

    def resolve(self, queue: Queue) -> None:
        """Recompute the effective properties of a queue."""

    def note_due(self, queue: Queue) -> None:
        """Report that messages of the queue may be due earlier than before."""

    def note_room(self, queue: Queue) -> None:
        """Report that the queue may have room for waiting pushes."""
