"""Estimates how many messages a command stores beyond those it carries, since these add to the cost of applying it."""

from __future__ import annotations

from .log.command_layout import QUEUE, steps_of, target_of_push, targets_of_copies
from .log.commands import Command
from .state.queue_table import QueueTable

__all__ = ["copies_of"]


def copies_of(state: QueueTable, command: Command) -> int:
    """Return about how many messages a command stores in queues with bindings or options; 0 for all other commands."""
    if len(command) > 1 and type(command[QUEUE]) is bytes:
        return _reach(state, command[QUEUE]) * target_of_push(command)[1] if _is_special(state, command[QUEUE]) else 0
    return sum(copies_of(state, step) for step in steps_of(command) if step is not command) + sum(
        _reach(state, name) for name in targets_of_copies(command)
    )


def _is_special(state: QueueTable, name: bytes) -> bool:
    queue = state.queues.get(name)
    return queue is not None and queue.special


def _reach(state: QueueTable, name: bytes) -> int:
    queue = state.queues.get(name)
    return 1 if queue is None else state.admission.reach(queue)
