"""Commands that remove or move many messages. Every public method is one command of the state machine."""

from __future__ import annotations

from ..log import commands as log
from ..routing.moving import move_to, returnable, send_back
from ..state.state import State
from .checks import STEP_MAX, check_limit, checked_text

__all__ = ["BulkCommands"]


class BulkCommands:
    """The commands. Each returns None if the queue does not exist: none of them creates it."""

    def __init__(self, state: State) -> None:
        self._state = state

    def purge(self, command: log.Purge) -> int | None:
        """Remove messages that are not leased: those with a label in the order of arrival, others in that of delivery.

        Sequences without a label select messages that the cluster has moved here.

        Without a limit, the queue's exact keys are forgotten. With `everything`, leased messages are removed before
        the others, as if they were acknowledged.

        Raises:
            ValueError: a field is out of range.
        """
        limit, label, sequences = command.limit, checked_text(command.label), command.sequences
        if limit != 0 or label:
            check_limit(limit)
        _check_sequences(sequences, limit)
        if {type(command.everything)} != {bool} or (command.everything and (label or sequences is not None)):
            raise ValueError("a purge of everything is true or false, and has no label and no sequences")
        state, queue = self._state, self._state.existing(command.queue)
        if queue is None:
            return None
        if label:
            found = [] if queue.store.rich is None else queue.store.rich.labelled(label, limit, sequences)
            queue.remove(found, state.now_us)
            queue.counters.withdrawn_total += len(found)
            return len(found)
        if sequences is not None:
            found = returnable(queue, b"", limit, None, sequences)
            queue.remove(found, state.now_us)
            queue.counters.purged_total += len(found)
            return len(found)
        purged = 0
        if not limit:
            purged = queue.clear_line()
            state.forget_keys(queue.name)
        left = limit or STEP_MAX
        if command.everything:
            leased = queue.remove_leased(state.now_us, left)
            purged, left = purged + leased, left - leased
        purged += len(queue.withdraw(state.now_us, left, also_delayed=True))
        queue.counters.purged_total += purged
        return purged

    def move(self, command: log.Move) -> int | None:
        """Move messages to the end of another queue.

        Each becomes a fresh message with its label, group and priority, in the same order; limits of the target do not
        apply.

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
        return move_to(state, queue, target, command.limit)

    def redrive(self, command: log.Redrive) -> int | None:
        """Send messages that the cluster has moved here back, or elsewhere.

        Each becomes a fresh message with its label, group and priority. Limits of the target do not apply.

        Raises:
            ValueError: a field is out of range, or the target is the queue itself.
        """
        limit, given = command.limit, command.target
        check_limit(limit)
        _check_sequences(command.sequences, limit)
        sources = {checked_text(one) for one in given} if isinstance(given, list) else None
        target = given if isinstance(given, bytes) else b""
        if target == command.queue:
            raise ValueError("messages cannot be sent back to the queue in which they are")
        state = self._state
        queue = state.existing(command.queue)
        if queue is None:
            return None
        found = returnable(queue, checked_text(command.label), limit, sources, command.sequences)
        if target:
            state.queue(target)
        return send_back(state, state.exits, queue, found, target)


def _check_sequences(sequences: list[int] | None, limit: int) -> None:
    if sequences is None:
        return
    if type(sequences) is not list or len(sequences) > limit or any(type(number) is not int for number in sequences):
        raise ValueError("sequences are a list of at most `limit` integers")
