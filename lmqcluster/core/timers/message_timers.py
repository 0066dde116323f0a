"""Timers of queues by log time: messages become due or expire, and queues become too old."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from ..messages.sorted_list import SortedList
from ..queue.expiry import NEVER
from ..queue.queue import Queue
from ..state_view import StateView

__all__ = ["RichTimers"]


class RichTimers:
    """Queues by a lower bound of the time at which their next timer is due (`Queue.timer_us`).

    Timers run in the order of their due times: a bound that turns out too early is corrected before it counts. So the
    order is the same on replicas with different bounds, and these need not be part of a snapshot.
    """

    def __init__(self, state: StateView) -> None:
        self._state = state
        self._line: SortedList[Queue] = SortedList()

    def note(self, queue: Queue) -> None:
        """Update the bound of a queue whose next timer may be due earlier than before."""
        due_us = queue.next_timer_us()
        if due_us < queue.timer_us:
            self._move(queue, due_us)
            self._state.expiry.at(due_us)

    def deleted(self, queue: Queue) -> None:
        """Remove a deleted queue."""
        self._move(queue, NEVER)

    def due_us(self) -> int | None:
        """Return the earliest bound."""
        first = self._line.first()
        return None if first is None else first.timer_us

    def due(self, now_us: int) -> Iterator[Queue]:
        """Yield queues whose timers may be due, the earliest first."""
        return takewhile(lambda queue: queue.timer_us <= now_us, self._line)

    def expire(self, now_us: int, limit: int | None) -> int:
        """Run up to `limit` timers that are due; return how many."""
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
