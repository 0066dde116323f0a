"""Finds the queues whose leases have expired, and returns the messages to their lines."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from ..queue.expiry import NEVER
from ..queue.queue import Queue
from ..state_view import StateView

__all__ = ["LeaseExpiry"]

_SWEEP_MIN = 64


class LeaseExpiry:
    """The queues with leases, by a lower bound of the earliest deadline (`Queue.watched_us`).

    The bound is stored in the queue and in snapshots, because it decides with which batch a lease expires if very
    many expire at once. A bound that falls leaves its old entry in the heap, where it is skipped later.
    """

    def __init__(self, state: StateView) -> None:
        self._state = state
        self._heap: list[tuple[int, bytes]] = []
        self._watched = 0

    def load(self, queue: Queue) -> None:
        """Add a queue of a snapshot, which came with its bound."""
        if queue.watched_us != NEVER:
            heappush(self._heap, (queue.watched_us, queue.name))
            self._watched += 1

    def note(self, queue: Queue, deadline_us: int) -> None:
        """Note that a lease of the queue ends at this log time."""
        if deadline_us >= queue.watched_us:
            return
        if queue.watched_us == NEVER:
            self._watched += 1
        queue.watched_us = deadline_us
        heappush(self._heap, (deadline_us, queue.name))
        self._state.expiry.at(deadline_us)
        if len(self._heap) > 2 * self._watched + _SWEEP_MIN:
            self._rebuild()

    def deleted(self, queue: Queue) -> None:
        """Remove a deleted queue; its entry is skipped later."""
        if queue.watched_us != NEVER:
            self._watched -= 1

    def due_us(self) -> int | None:
        """Return the earliest bound, perhaps an outdated one."""
        return self._heap[0][0] if self._heap else None

    def due(self, now_us: int) -> Iterator[bytes]:
        """Yield names of queues whose leases may have expired, in no order; costs one step each."""
        places = [0]
        while places:
            place = places.pop()
            if place < len(self._heap) and self._heap[place][0] <= now_us:
                yield self._heap[place][1]
                places += (2 * place + 1, 2 * place + 2)

    def expire(self, now_us: int, limit: int | None) -> int:
        """Expire up to `limit` leases, visiting at most as many queues; return how many."""
        ended = looked = 0
        heap, state = self._heap, self._state
        while heap and heap[0][0] <= now_us and (limit is None or (ended < limit and looked < limit)):
            bound_us, name = heappop(heap)
            queue = state.existing(name)
            if queue is None or queue.watched_us != bound_us:
                continue
            looked += 1
            # A bound that was too early is only corrected: the queues whose leases expire first come first.
            if queue.store.leases.head_us() == bound_us:
                ended += self._end(queue, now_us, None if limit is None else limit - ended)
            self._watch_again(queue)
        return ended

    def _end(self, queue: Queue, now_us: int, limit: int | None) -> int:
        ended = queue.end_leases(now_us, limit)
        if ended:
            self._state.note_due(queue)
        return ended

    def _watch_again(self, queue: Queue) -> None:
        head_us = queue.store.leases.head_us() if queue.store.leases.messages else None
        if head_us is None:
            queue.watched_us = NEVER
            self._watched -= 1
        else:
            queue.watched_us = head_us
            heappush(self._heap, (head_us, queue.name))

    def _rebuild(self) -> None:
        queues = self._state.queues.values()
        self._heap = [(queue.watched_us, queue.name) for queue in queues if queue.watched_us != NEVER]
        self._watched = len(self._heap)
        heapify(self._heap)
