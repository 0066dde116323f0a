"""Idle queues: created by a pull and never pushed to. They are deleted an hour after the last pull.

A pull creates its queue, as in LMQ, so that a push to all queues of a pattern reaches the waiting client. Without
deletion, pulls of ever new names would fill the memory of all nodes permanently.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from ..dedup.keys import IdempotencyKeys
from ..queue.queue import Queue
from ..state_view import StateView

__all__ = ["KEEP_US", "TOUCH_US", "IdleQueues"]

KEEP_US = 3_600 * 1_000_000
"""How long such a queue is kept after the last pull."""
TOUCH_US = KEEP_US // 4
"""Pulls within this time of the last counted one are not counted."""
_SWEEP_MIN = 64


class IdleQueues:
    """The queues that may be deleted, by the log time of the last pull (`Queue.idle_us`, 0 for all other queues)."""

    def __init__(self, state: StateView, keys: IdempotencyKeys) -> None:
        self._state = state
        self._keys = keys
        self._heap: list[tuple[int, bytes]] = []
        self._count = 0

    def pulled(self, queue: Queue) -> None:
        """Record a pull that has found nothing in a queue."""
        state = self._state
        if not self._is_unused(queue):
            return
        if queue.idle_us and state.now_us - queue.idle_us < TOUCH_US:
            return
        self._count += not queue.idle_us
        queue.idle_us = max(1, state.now_us)
        heappush(self._heap, (queue.idle_us, queue.name))
        state.expiry.at(queue.idle_us + KEEP_US)
        if len(self._heap) > 2 * self._count + _SWEEP_MIN:
            self._heap = [(one.idle_us, one.name) for one in state.queues.values() if one.idle_us]
            heapify(self._heap)

    def load(self, queue: Queue) -> None:
        """Add a queue of a snapshot."""
        if queue.idle_us:
            heappush(self._heap, (queue.idle_us, queue.name))
            self._count += 1

    def deleted(self, queue: Queue) -> None:
        """Remove a deleted queue; its entry is skipped later."""
        self._count -= bool(queue.idle_us)

    def due_us(self) -> int | None:
        """Return a lower bound of the time at which the next queue is deleted."""
        return self._heap[0][0] + KEEP_US if self._heap else None

    def expire(self, now_us: int, limit: int | None) -> int:
        """Delete up to `limit` idle queues, visiting at most as many; return how many."""
        ended = looked = 0
        heap, state = self._heap, self._state
        while heap and heap[0][0] + KEEP_US <= now_us and (limit is None or looked < limit):
            idle_us, name = heappop(heap)
            queue = state.queues.get(name)
            if queue is None or queue.idle_us != idle_us:
                continue
            looked += 1
            state.touched(queue).idle_us = 0
            self._count -= 1
            if self._is_unused(queue):
                state.delete(name)
                ended += 1
        return ended

    def _is_unused(self, queue: Queue) -> bool:
        if queue.counters.pushed_total or queue.counters.moved_in_total or queue.own or queue.suspended:
            return False
        # An alias by a default rule stores nothing, and may have keys.
        return queue.name not in self._keys.exact
