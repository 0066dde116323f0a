"""Deliveries of all queues: numbered, leased, and settled by their numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..log.results import Delivered, RefusedError, shown
from ..queue.queue import PASSES_MAX, Queue
from ..state_view import StateView
from ..timers.idle_queues import IdleQueues
from ..timers.lease_expiry import LeaseExpiry

__all__ = ["Deliveries", "are_all", "check_numbers"]

_SEQUENCES = (list, tuple)


class Deliveries:
    """Delivers messages of queues and settles deliveries, and keeps the timers of their leases."""

    def __init__(self, state: StateView, lease_watch: LeaseExpiry, idle: IdleQueues) -> None:
        self._state = state
        self._lease_watch = lease_watch
        self._idle = idle

    def pull_from(self, queue: Queue, count: int) -> list[Delivered]:
        """Lease up to `count` messages of a queue to a client."""
        return self._counted(queue, queue.pull(self._state.now_us, count, self._state.last_delivery))

    def take(
        self, queue: Queue, count: int, deadline_us: int, charge: int, *, in_turn: bool = False
    ) -> list[Delivered]:
        """Lease up to `count` messages of a queue until `deadline_us`; `charge` is the number of deliveries charged, 0 or 1."""
        delivered = queue.lease(
            self._state.now_us, count, self._state.last_delivery, deadline_us, charge, in_turn=in_turn
        )
        return self._counted(queue, delivered)

    def delivered_again(self, queue: Queue, numbers: list[int], deadline_us: int) -> list[Delivered]:
        """Return the live deliveries under these numbers; their leases are extended to `deadline_us` at least."""
        leases = queue.store.leases.messages
        ending = [number for number in numbers if leases[number].due_us < deadline_us]
        queue.extend_to(self._state.now_us, ending, deadline_us)
        return [(queue.name, number, leases[number].remaining, leases[number]) for number in numbers]

    def take_groups(self, queue: Queue, count: int, deadline_us: int) -> list[Delivered]:
        """Take messages together with those behind them in their groups, up to `count`, uncharged."""
        delivered = queue.lease(self._state.now_us, count, self._state.last_delivery, deadline_us, 0, whole_groups=True)
        return self._counted(queue, delivered)

    def take_followers(self, queue: Queue, count: int, deadline_us: int, leader: int) -> list[Delivered]:
        """Take the messages behind the one under the delivery number `leader` in its group, uncharged."""
        delivered = queue.lease_followers(self._state.now_us, count, self._state.last_delivery, deadline_us, leader)
        return self._counted(queue, delivered)

    def check_pull(self, queue: Queue) -> None:
        """Refuse a pull without a session from an exclusive queue.

        Raises:
            RefusedError: ``exclusive``.
        """
        if queue.is_exclusive():
            raise RefusedError("exclusive", f"the queue {shown(queue.name)} is exclusive; pull from it in a session")

    def pulled_nothing(self, queue: Queue, passed_before: int) -> list[Delivered] | None:
        """Return the result of a pull that got no message: an empty list, or None if it must be repeated."""
        if queue.passed_over - passed_before >= PASSES_MAX:
            return None
        self._idle.pulled(queue)
        return []

    def _counted(self, queue: Queue, delivered: list[Delivered]) -> list[Delivered]:
        self._state.last_delivery += len(delivered)
        if delivered and delivered[0][3].due_us < queue.watched_us:
            self._lease_watch.note(queue, delivered[0][3].due_us)
        if queue.settings.timeout_us < 0:
            # The leases ended before they began, so the queue's earliest due time may have fallen.
            self._state.ready.append(queue)
        return delivered

    def polled(self, queue: Queue, delivered: list[Delivered], hide_us: int) -> None:
        """Account for messages that a poll delivered."""
        if hide_us > 0:
            self._counted(queue, delivered)
        elif delivered:
            self._state.last_delivery += len(delivered)
            self._state.note_due(queue)

    def polled_again(self, queue: Queue, numbers: list[int], hide_us: int) -> list[Delivered]:
        """Return the live deliveries under these numbers, hidden for a time from now on; they cannot be undone any more."""
        leases, deadline_us = queue.store.leases.messages, self._state.now_us + hide_us
        queue.extend_to(self._state.now_us, numbers, deadline_us)
        self._lease_watch.note(queue, deadline_us)
        self._state.note_due(queue)
        for number in numbers:
            queue.index().delivered_again(leases[number].sequence)
        return [(queue.name, number, leases[number].remaining, leases[number]) for number in numbers]

    def updated(self, queue: Queue, number: int, hide_us: int) -> None:
        """Account for a message that was hidden again under the next number, or under the one that it had."""
        self._state.last_delivery = max(self._state.last_delivery, number)
        self._state.note_due(queue)
        if hide_us > 0:
            self._lease_watch.note(queue, self._state.now_us + hide_us)

    def settle(
        self, name: bytes, numbers: list[int], verb: Callable[[Queue, int, list[int]], list[bool]]
    ) -> list[bool] | None:
        """Apply `verb` to leases by their numbers; None if there is no such queue."""
        queue = self._state.existing(name)
        if queue is None:
            return None
        check_numbers(numbers)
        results = verb(queue, self._state.now_us, numbers)
        self._state.note_due(queue)
        return results

    def extend(self, queue: Queue, numbers: list[int], lease_us: int = 0) -> list[bool]:
        """Extend leases to `lease_us` from now; 0 means the queue's timeout."""
        check_numbers(numbers)
        deadline_us = self._state.now_us + (lease_us or queue.settings.timeout_us)
        results = queue.extend_to(self._state.now_us, numbers, deadline_us)
        self._state.note_due(queue)
        if results:
            self._lease_watch.note(queue, deadline_us)
        return results


def check_numbers(numbers: list[int]) -> None:
    """Raise ValueError unless all are integers. Checked before the first is settled, because a command fails as a whole."""
    if type(numbers) not in _SEQUENCES or not are_all(int, numbers):
        raise ValueError("delivery numbers must be integers")


def are_all(kind: type, values: list[Any]) -> bool:
    """Return whether all values are of exactly this type."""
    # Nearly always there is one.
    return type(values[0]) is kind if len(values) == 1 else set(map(type, values)) <= {kind}
