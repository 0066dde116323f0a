"""What becomes of queues by log time alone: messages become due or expire, and queues grow too old."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from ..messages.sorted_list import SortedList
from ..queue.expiry import NEVER
from ..queue.queue import Queue
from .watched_queues import WatchedQueues

__all__ = ["RichTimers"]


class RichTimers:
    """Queues by a lower bound of the time at which something happens in them (`Queue.timer_us`).

    What happens first is done first: a bound that turns out too early is put right before it counts. So the order is the same
    on a replica whose bounds are other ones, and they need not be part of a snapshot.
    """

    def __init__(self, state: WatchedQueues) -> None:
        self._state = state
        self._line: SortedList[Queue] = SortedList()

    def note(self, queue: Queue) -> None:
        """Something may happen in the queue earlier than before."""
        due_us = queue.next_timer_us()
        if due_us < queue.timer_us:
            self._move(queue, due_us)
            self._state.expiry.at(due_us)

    def deleted(self, queue: Queue) -> None:
        """The queue is gone."""
        self._move(queue, NEVER)

    def due_us(self) -> int | None:
        """The earliest bound."""
        first = self._line.first()
        return None if first is None else first.timer_us

    def due(self, now_us: int) -> Iterator[Queue]:
        """Queues in which something may happen by now, the earliest first."""
        return takewhile(lambda queue: queue.timer_us <= now_us, self._line)

    def expire(self, now_us: int, limit: int | None) -> int:
        """Let up to `limit` things happen that are due by now."""
        done = 0
        while limit is None or done < limit:
            first = self._line.first()
            if first is None or first.timer_us > now_us:
                break
            queue = self._state.touched(first)
            due_us = queue.next_timer_us()
            if due_us == queue.timer_us:
                done += self._let_happen(queue, now_us, None if limit is None else limit - done)
                due_us = queue.next_timer_us() if self._state.queues.get(queue.name) is queue else NEVER
            self._move(queue, due_us)
        return done

    def _let_happen(self, queue: Queue, now_us: int, limit: int | None) -> int:
        if queue.is_too_old(now_us):
            self._state.delete(queue.name)
            self._state.aged_total += 1
            return 1
        done = queue.run_timers(now_us, limit)
        self._state.note_due(queue)
        return done

    def _move(self, queue: Queue, due_us: int) -> None:
        if due_us == queue.timer_us:
            return
        if queue.timer_us != NEVER:
            self._line.remove((queue.timer_us, queue.name))
        queue.timer_us = due_us
        if due_us != NEVER:
            self._line.add((due_us, queue.name), queue)
