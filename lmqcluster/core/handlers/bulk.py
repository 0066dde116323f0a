"""Operations on whole queues: purge, move, suspend. Every method is one command of the state machine."""

from __future__ import annotations

from ..state.state import State

__all__ = ["STEP_MAX", "Operations", "check_limit"]

STEP_MAX = 10_000
"""Most messages that one command removes or moves, which bounds its time."""


class Operations:
    """The commands. Each returns None if the queue does not exist: none of them creates it."""

    def __init__(self, state: State) -> None:
        self._state = state

    def purge(self, name: bytes, limit: int) -> int | None:
        """Remove up to `limit` messages that are not leased, in the order of delivery.

        With a limit of 0, remove all due messages without traits, however many, and `STEP_MAX` of the others.

        Raises:
            ValueError: the limit is out of range.
        """
        is_whole = limit == 0
        if not is_whole:
            check_limit(limit)
        queue = self._state.existing(name)
        if queue is None:
            return None
        purged = queue.clear_line() if is_whole else 0
        purged += len(queue.withdraw(self._state.now_us, STEP_MAX if is_whole else limit, also_delayed=True))
        queue.purged_total += purged
        return purged

    def move(self, name: bytes, destination: bytes, limit: int) -> int | None:
        """Move up to `limit` messages that could be pulled now to the end of another queue, as fresh messages.

        Order, bodies, content types and headers are kept; the number of deliveries is that of the destination.

        Raises:
            ValueError: the limit is out of range, or the destination is the queue itself or no name.
        """
        check_limit(limit)
        state = self._state
        queue = state.existing(name)
        if queue is None:
            return None
        target = state.queue(destination)
        if target is queue:
            raise ValueError("a queue cannot be moved to itself")
        messages = queue.withdraw(state.now_us, limit, also_delayed=False)
        queue.moved_out_total += len(messages)
        target.append(state.now_us, state.last_sequence + 1, messages)
        state.last_sequence += len(messages)
        state.note_due(target)
        return len(messages)

    def suspend(self, name: bytes, suspended: bool) -> bool | None:
        """Suspend deliveries of a queue, or resume them.

        Raises:
            ValueError: the flag is no boolean.
        """
        if type(suspended) is not bool:
            raise ValueError("whether to suspend must be true or false")
        queue = self._state.existing(name)
        if queue is None:
            return None
        queue.suspended = suspended
        if not suspended:
            self._state.note_due(queue)
        return True


def check_limit(limit: int) -> None:
    """Raise ValueError unless a command may remove or move this number of messages."""
    if type(limit) is not int or not 0 < limit <= STEP_MAX:
        raise ValueError(f"a limit must be an integer from 1 to {STEP_MAX}")
