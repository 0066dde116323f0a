"""Commands on queues whose messages are addressed by id and tag. Every public method is one command of the state machine.

Only `create` creates a queue. A queue created otherwise gets its index with the first of these commands.
"""

from __future__ import annotations

from typing import Any

from ..log.commands import Delivered, RefusedError, shown
from ..owners.quotas import checked_owner
from ..queue.indexed_queue import IndexedQueue
from ..queue.limits import Endpoint, PollLimits
from ..queue.options import TIME_US_MAX
from ..queue.properties import checked_properties
from ..queue.queue import PASSES_MAX
from ..state.state import State
from .traits import TraitCommands

__all__ = ["PollCommands"]

PAIRS_MAX = 10_000
_INT_MAX = 1 << 64


class PollCommands:
    """The commands."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._pushes = TraitCommands(state)

    # --- queues ---------------------------------------------------------------------------------------------------

    def create(self, name: bytes, pairs: list[Any], owner: bytes = b"") -> bool:
        """Create a queue with an index and these properties; False if it exists already.

        Raises:
            RefusedError: ``quota_exceeded``.
        """
        state = self._state
        if name in state.queues:
            return False
        properties = {key: value for key, value in checked_properties(pairs) if value is not None}
        queue = state.create(name, checked_owner(owner))
        state.set_own(queue, properties)
        state.refresh(queue)
        state.index_messages(queue)
        return True

    def _queue(self, name: bytes) -> IndexedQueue:
        queue = self._state.existing(name)
        if queue is None:
            raise RefusedError("queue_not_found", f"there is no queue {shown(name)}")
        return self._state.index_messages(queue)

    def _open(self, name: bytes, endpoint: Endpoint) -> IndexedQueue:
        """Return the queue unless such requests are suspended.

        Raises:
            RefusedError: ``queue_not_found``, ``suspended``.
        """
        queue = self._queue(name)
        total, own = self._state.poll_limits, queue.index().limits
        if total.suspended[endpoint] or own.suspended[endpoint]:
            total.count_suspended(endpoint)
            own.count_suspended(endpoint)
            whose = f"queue {shown(name)}" if own.suspended[endpoint] else "cluster"
            raise RefusedError("suspended", f"{endpoint.name.lower()} is suspended for the {whose}; resume it")
        return queue

    def _count(self, queue: IndexedQueue, counter: str, more: int = 1) -> None:
        self._state.poll_limits.count(counter, more)
        queue.index().limits.count(counter, more)

    # --- messages -------------------------------------------------------------------------------------------------

    def push(self, name: bytes, rows: list[list[Any] | bytes], owner: bytes = b"") -> list[tuple[int, int]]:
        """Store messages like `TraitCommands.push`, in a queue that must exist.

        Raises:
            RefusedError: ``queue_not_found``, ``suspended``, or an error of `TraitCommands.push`.
        """
        self._open(name, Endpoint.PUSH)
        return self._pushes.push(name, rows, owner)

    def poll(self, name: bytes, count: Any, hide_us: int, takes_hidden: Any, is_again: Any) -> list[Delivered] | None:
        """Deliver up to `count` messages, hidden for a time; None if the poll must be repeated.

        Args:
            name: the queue.
            count: most messages.
            hide_us: how long they are hidden; with 0 or less they are not.
            takes_hidden: also take hidden messages.
            is_again: True if the poll was counted before and has been waiting since.

        Raises:
            ValueError: an argument is out of range.
            RefusedError: ``queue_not_found``, ``suspended``, ``exclusive``, ``throttled``.
        """
        if type(count) is not int or type(takes_hidden) is not bool or type(is_again) is not bool:
            raise ValueError("a count must be an integer, and the other arguments of a poll true or false")
        _check_time(hide_us)
        state = self._state
        queue = self._open(name, Endpoint.POLL)
        state.check_pull(queue)
        if not is_again:
            self._take_turn(queue)
        passed_before = queue.passed_over
        delivered = queue.poll(state.now_us, count, state.last_delivery, hide_us, takes_hidden=takes_hidden)
        state.polled(queue, delivered, hide_us)
        if not delivered:
            if queue.passed_over - passed_before >= PASSES_MAX:
                return None
            self._count(queue, "empty_poll")
        return delivered

    def _take_turn(self, queue: IndexedQueue) -> None:
        """Count a poll, unless a throttle refuses it.

        Raises:
            RefusedError: ``throttled``.
        """
        now_us = self._state.now_us
        throttles: list[PollLimits] = [self._state.poll_limits, queue.index().limits]
        if not all(one.has_room(now_us) for one in throttles):
            self._count(queue, "throttled_poll")
            raise RefusedError(
                "throttled", f"the queue {shown(queue.name)} is polled more often than its throttle allows"
            )
        for one in throttles:
            one.take(now_us)

    def update(self, name: bytes, sequence: int, tag: int, hide_us: int) -> int | None:
        """Hide a message again; return the number from which its new tag derives, None if it is gone or the tag is outdated.

        Raises:
            ValueError: an argument is out of range.
            RefusedError: ``queue_not_found``, ``suspended``.
        """
        _check_pair(sequence, tag)
        _check_time(hide_us)
        state = self._state
        queue = self._open(name, Endpoint.UPDATE)
        number = state.last_delivery + 1
        if not queue.hide(state.now_us, sequence, tag, hide_us, number):
            self._count(queue, "missing_update")
            return None
        state.updated(queue, number, hide_us)
        self._count(queue, "updated")
        return number

    def delete(self, name: bytes, pairs: list[tuple[int, int]]) -> list[bool]:
        """Remove messages; False for each that is gone or whose tag is outdated.

        Raises:
            ValueError: an argument is out of range.
            RefusedError: ``queue_not_found``, ``suspended``.
        """
        if len(pairs) > PAIRS_MAX:
            raise ValueError(f"a command removes at most {PAIRS_MAX} messages")
        for sequence, tag in pairs:
            _check_pair(sequence, tag)
        queue = self._open(name, Endpoint.DELETE)
        results = queue.remove_named(self._state.now_us, pairs)
        self._count(queue, "missing_delete", results.count(False))
        self._state.note_due(queue)
        return results

    # --- limits ---------------------------------------------------------------------------------------------------

    def _limits(self, name: bytes) -> PollLimits:
        return self._queue(name).index().limits if name else self._state.poll_limits

    def suspend(self, name: bytes, switches: list[bool | None]) -> list[bool]:
        """Suspend or resume kinds of requests, of one queue or, without a name, of all; return all switches.

        Raises:
            ValueError: they are malformed.
            RefusedError: ``queue_not_found``.
        """
        limits = self._limits(name)
        limits.set_suspended(switches)
        if name:
            self._state.note_due(self._queue(name))
        return limits.suspended.copy()

    def throttle(self, name: bytes, polls_max: int | None, window_us: int) -> bool:
        """Limit the polls of one queue or, without a name, of all together; None removes the limit.

        Raises:
            ValueError: a number is out of range.
            RefusedError: ``queue_not_found``.
        """
        self._limits(name).set_throttle(polls_max, window_us)
        return True


def _check_time(time_us: int) -> None:
    if type(time_us) is not int or abs(time_us) > TIME_US_MAX:
        raise ValueError("a time must be an integer of 60 bits")


def _check_pair(sequence: int, tag: int) -> None:
    if {type(sequence), type(tag)} != {int} or not 0 <= sequence < _INT_MAX or not 0 <= tag < _INT_MAX:
        raise ValueError("an id and a tag must be integers of at most 64 bits")
