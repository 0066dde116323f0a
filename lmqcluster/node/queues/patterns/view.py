"""The queues that match one pattern, and which of them has the earliest message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace

from ....core import Queue
from ....wire.errors import LmqError
from .patterns import client_pattern

__all__ = ["View"]

_SWEEP_MIN = 64


def _nothing(*_arguments: object) -> None:
    """Ignore an event of a view that has no listener."""


class View:
    """The queues that match one pattern, with a heap ordered by a lower bound of each queue's next due time.

    Attributes:
        client: the client that opened the view first; the view counts against its quota of patterns.
        users: number of users; while there are any, the view is kept.
        complete: a future, done when all queues have been matched; fails with the `LmqError` that ended the view.
        on_change: called when the view shows more or earlier messages.
        on_end: called with the error when the view cannot be kept.
    """

    __slots__ = (
        "_bounds", "_heap", "client", "complete", "filling", "matches", "on_change", "on_end", "pattern", "queues", "used_s",
        "users",
    )  # fmt: skip

    def __init__(self, pattern: bytes, client: bytes, complete: asyncio.Future[None]) -> None:
        self.queues: dict[bytes, Queue] = {}
        self._heap: list[tuple[int, bytes]] = []
        self._bounds: dict[bytes, int] = {}
        self.pattern = pattern
        self.client = client
        self.matches = client_pattern(pattern)
        self.users = 0
        self.used_s = 0.0
        self.complete = complete
        self.filling: asyncio.Task[None] | None = None
        self.on_change: Callable[[], None] = _nothing
        self.on_end: Callable[[LmqError], None] = _nothing

    @property
    def is_complete(self) -> bool:
        """Return whether the view can be used."""
        return self.complete.done() and self.complete.exception() is None

    def ignore_events(self) -> None:
        """Stop calling the callbacks when the view changes or ends."""
        self.on_change = self.on_end = _nothing

    def add(self, queue: Queue) -> None:
        """Add a queue that matches."""
        self.queues[queue.name] = queue
        self.note(queue)

    def remove(self, queue: Queue) -> None:
        """Remove a queue; its heap entries are skipped later."""
        del self.queues[queue.name]
        self._bounds.pop(queue.name, None)

    def note(self, queue: Queue) -> None:
        """Update the bound of a queue whose earliest due time may have fallen."""
        head_us = queue.head_us()
        if head_us is None:
            return
        bound_us = self._bounds.get(queue.name)
        if bound_us is None or head_us < bound_us:
            self._bounds[queue.name] = head_us
            heappush(self._heap, (head_us, queue.name))
            self._sweep_if_worn()

    def _sweep_if_worn(self) -> None:
        # When a bound falls, its old entry remains, and may stay deep in the heap for the length of a lease.
        if len(self._heap) > 2 * len(self._bounds) + _SWEEP_MIN:
            self._heap = [(bound_us, name) for name, bound_us in self._bounds.items()]
            heapify(self._heap)

    def earliest(self) -> tuple[int, Queue] | None:
        """Return the smallest (due time, queue) of all non-empty queues, or None."""
        heap, bounds = self._heap, self._bounds
        while heap:
            bound_us, name = heap[0]
            if bounds.get(name) != bound_us:
                heappop(heap)
                continue
            queue = self.queues[name]
            head_us = queue.head_us()
            if head_us is None:
                heappop(heap)
                del bounds[name]
            elif head_us != bound_us:
                bounds[name] = head_us
                heapreplace(heap, (head_us, name))
            else:
                return head_us, queue
        return None

    def first(self, count: int, until_us: int) -> list[Queue]:
        """Return up to `count` queues whose first message is due by `until_us`, the earliest first."""
        found: list[Queue] = []
        while len(found) < count:
            earliest = self.earliest()
            if earliest is None or earliest[0] > until_us:
                break
            queue = earliest[1]
            found.append(queue)
            # Removed to expose the next one; put back below.
            heappop(self._heap)
            del self._bounds[queue.name]
        for queue in found:
            self.note(queue)
        return found
