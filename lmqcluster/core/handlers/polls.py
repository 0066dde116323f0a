"""Commands on queues whose messages are addressed by id and tag. Every public method is one command of the state machine.

None of them creates a queue. A queue without an index gets it with the first of them.
"""

from __future__ import annotations

from ..dedup.attempts import attempt_key
from ..log import commands as log
from ..log.results import Delivered, RefusedError, TagState, Updated, shown
from ..owners.quotas import checked_owner
from ..queue.limits import Endpoint, PollLimits
from ..queue.options import TIME_US_MAX
from ..queue.queue import PASSES_MAX, Queue
from ..state.state import State
from .checks import checked_time

__all__ = ["REMEMBERED_US_MAX", "PollCommands"]

REMEMBERED_US_MAX = 300 * 1_000_000
"""Longest time for which the attempt of a poll is remembered."""

PAIRS_MAX = 10_000
_INT_MAX = 1 << 64


class PollCommands:
    """The commands."""

    def __init__(self, state: State) -> None:
        self._state = state

    def _queue(self, name: bytes) -> Queue:
        queue = self._state.existing(name)
        if queue is None:
            raise RefusedError("queue_not_found", f"there is no queue {shown(name)}")
        return self._state.index_messages(queue)

    def check_push(self, name: bytes) -> None:
        """Refuse pushes to a queue that does not exist or has them suspended.

        Raises:
            RefusedError: ``queue_not_found``, ``suspended``.
        """
        self._open(name, Endpoint.PUSH)

    def _open(self, name: bytes, endpoint: Endpoint) -> Queue:
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

    def _count(self, queue: Queue, counter: str, more: int = 1) -> None:
        self._state.poll_limits.count(counter, more)
        queue.index().limits.count(counter, more)

    # --- messages -------------------------------------------------------------------------------------------------

    def poll(self, command: log.Poll) -> list[Delivered] | None:
        """Deliver messages, hidden for a time; None if the poll must be repeated. With 0 or less they are not hidden.

        Raises:
            ValueError: a field is out of range.
            RefusedError: ``queue_not_found``, ``suspended``, ``exclusive``, ``throttled``.
        """
        count, hide_us, takes_hidden, is_again = command.count, command.hide_us, command.takes_hidden, command.is_again
        if type(count) is not int or {type(takes_hidden), type(is_again)} != {bool}:
            raise ValueError("a count must be an integer, and the other arguments of a poll true or false")
        _check_time(hide_us)
        state = self._state
        queue = self._open(command.queue, Endpoint.POLL)
        state.deliveries.check_pull(queue)
        attempt = self._attempt(command)
        if attempt is not None and (before := self._polled_before(queue, command, attempt)):
            return before
        if not is_again:
            self._take_turn(queue)
        passed_before = queue.passed_over
        delivered = queue.poll(state.now_us, count, state.last_delivery, hide_us, takes_hidden=takes_hidden)
        state.deliveries.polled(queue, delivered, hide_us)
        if not delivered:
            if queue.passed_over - passed_before >= PASSES_MAX:
                return None
            self._count(queue, "empty_poll")
        elif attempt is not None and hide_us > 0:
            ends_us = state.now_us + command.remember_us
            numbers = tuple(number for _name, number, _remaining, _message in delivered)
            state.received.remember(command.owner, [(attempt, numbers)], ends_us)
            state.expiry.at(ends_us)
        return delivered

    def _attempt(self, command: log.Poll) -> bytes | None:
        """Return the key of a poll's attempt, None if it has none.

        Raises:
            ValueError: a field is malformed.
        """
        if command.attempt == b"":
            return None
        if checked_time(command.remember_us) > REMEMBERED_US_MAX:
            raise ValueError(f"an attempt of a poll is remembered for at most {REMEMBERED_US_MAX} microseconds")
        checked_owner(command.owner)
        return attempt_key(command.queue, command.attempt)

    def _polled_before(self, queue: Queue, command: log.Poll, attempt: bytes) -> list[Delivered]:
        """Return the deliveries of a known poll under the same attempt, hidden again; none if one of them has changed."""
        state, hide_us = self._state, command.hide_us
        numbers = state.received.find(command.owner, attempt, state.now_us) or ()
        if not numbers or hide_us <= 0 or queue.suspended or len(numbers) > command.count:
            return []
        if any(queue.live(number, state.now_us) is None for number in numbers):
            return []
        return state.deliveries.polled_again(queue, list(numbers), hide_us)

    def _take_turn(self, queue: Queue) -> None:
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

    def update(self, command: log.Update) -> Updated:
        """Hide a message again if its tag is valid, under a new tag or the same one.

        Raises:
            ValueError: a field is out of range.
            RefusedError: ``queue_not_found``, ``suspended``.
        """
        sequence, tag, hide_us = command.message, command.tag, command.hide_us
        _check_pair(sequence, tag)
        _check_time(hide_us)
        if type(command.keeps_tag) is not bool:
            raise ValueError("whether a message keeps its tag must be true or false")
        state = self._state
        queue = self._open(command.queue, Endpoint.UPDATE)
        number = None if command.keeps_tag else state.last_delivery + 1
        result = queue.hide(state.now_us, sequence, tag, hide_us, number)
        if result.state is not TagState.VALID:
            self._count(queue, "missing_update")
            return result
        state.deliveries.updated(queue, result.number, hide_us)
        self._count(queue, "updated")
        return result

    def delete(self, command: log.DeletePolled) -> list[TagState]:
        """Remove the messages whose tags are valid; return the state of each tag.

        Raises:
            ValueError: a field is out of range.
            RefusedError: ``queue_not_found``, ``suspended``.
        """
        pairs = command.pairs
        if len(pairs) > PAIRS_MAX:
            raise ValueError(f"a command removes at most {PAIRS_MAX} messages")
        for sequence, tag in pairs:
            _check_pair(sequence, tag)
        queue = self._open(command.queue, Endpoint.DELETE)
        results = queue.remove_named(self._state.now_us, pairs)
        self._count(queue, "missing_delete", sum(one is not TagState.VALID for one in results))
        self._state.note_due(queue)
        return results

    # --- limits ---------------------------------------------------------------------------------------------------

    def _limits(self, name: bytes) -> PollLimits:
        return self._queue(name).index().limits if name else self._state.poll_limits

    def set_limits(self, command: log.SetPollLimits) -> list[bool]:
        """Suspend, resume or throttle kinds of requests, of one queue or, without a name, of all; return all switches.

        Raises:
            ValueError: a field is malformed.
            RefusedError: ``queue_not_found``.
        """
        limits = self._limits(command.queue)
        if command.suspended is not None:
            limits.set_suspended(command.suspended)
        if command.throttle is not None:
            limits.set_throttle(*command.throttle)
        if command.queue:
            self._state.note_due(self._queue(command.queue))
        return limits.suspended.copy()


def _check_time(time_us: int) -> None:
    if type(time_us) is not int or abs(time_us) > TIME_US_MAX:
        raise ValueError("a time must be an integer of 60 bits")


def _check_pair(sequence: int, tag: int) -> None:
    if type(sequence) is not int or type(tag) is not int or not (0 <= sequence < _INT_MAX and 0 <= tag < _INT_MAX):
        raise ValueError("an id and a tag must be integers of at most 64 bits")
