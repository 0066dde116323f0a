"""Commands that remove or move many messages. Every public method is one command of the state machine."""

from __future__ import annotations

from itertools import takewhile

from ..log import commands as log
from ..messages.message import RichMessage
from ..state.state import State
from .checks import STEP_MAX, check_limit, checked_text

__all__ = ["BulkCommands"]


class BulkCommands:
    """The commands. Each returns None if the queue does not exist: none of them creates it."""

    def __init__(self, state: State) -> None:
        self._state = state

    def purge(self, command: log.Purge) -> int | None:
        """Remove messages that are not leased: those with a label in the order of arrival, others in that of delivery.

        Without a limit, the queue's exact keys are forgotten.

        Raises:
            ValueError: a field is out of range.
        """
        limit, label, sequences = command.limit, checked_text(command.label), command.sequences
        if limit != 0 or label:
            check_limit(limit)
        if sequences is not None and not (label and len(sequences) <= limit and all(type(n) is int for n in sequences)):
            raise ValueError("sequences are at most `limit` integers, beside a label")
        state, queue = self._state, self._state.existing(command.queue)
        if queue is None:
            return None
        if label:
            found = [] if queue.store.rich is None else queue.store.rich.labelled(label, limit, sequences)
            queue.remove(found, state.now_us)
            queue.counters.withdrawn_total += len(found)
            return len(found)
        purged = 0
        if not limit:
            purged = queue.clear_line()
            state.forget_keys(queue.name)
        purged += len(queue.withdraw(state.now_us, limit or STEP_MAX, also_delayed=True))
        queue.counters.purged_total += purged
        return purged

    def move(self, command: log.Move) -> int | None:
        """Move messages to the end of another queue.

        Order, bodies, content types and attributes are kept; the number of deliveries is that of the target.

        Raises:
            ValueError: the limit is out of range, or the target is the queue itself or no name.
        """
        check_limit(command.limit)
        state = self._state
        queue = state.existing(command.queue)
        if queue is None:
            return None
        target = state.queue(command.target)
        if target is queue:
            raise ValueError("a queue cannot be moved to itself")
        messages = queue.withdraw(state.now_us, command.limit, also_delayed=False)
        queue.counters.moved_out_total += len(messages)
        target.append(state.now_us, state.last_sequence + 1, messages)
        state.last_sequence += len(messages)
        state.note_due(target)
        return len(messages)

    def redrive(self, command: log.Redrive) -> int | None:
        """Send messages that the cluster has moved here back, or elsewhere.

        Each becomes a fresh message with its label, group and priority. Limits of the target do not apply.

        Raises:
            ValueError: a field is out of range, or the target is the queue itself.
        """
        limit, given = command.limit, command.target
        check_limit(limit)
        sources = {checked_text(one) for one in given} if isinstance(given, list) else None
        target = given if isinstance(given, bytes) else b""
        if target == command.queue:
            raise ValueError("messages cannot be sent back to the queue in which they are")
        state = self._state
        queue = state.existing(command.queue)
        if queue is None:
            return None
        found = [] if queue.store.rich is None else queue.store.rich.moved(checked_text(command.label), limit)
        if sources is not None:
            found = list(takewhile(lambda message: _source(message) in sources, found))
        if target:
            state.queue(target)
        queue.remove(found, state.now_us)
        queue.counters.moved_out_total += len(found)
        for message in found:
            state.exits.send(queue, message, target or _source(message))
        return len(found)


def _source(message: RichMessage) -> bytes:
    """Return the queue from which the cluster has moved a message."""
    assert message.traits.origin is not None  # noqa: S101 - for the type checker
    return message.traits.origin.queue
