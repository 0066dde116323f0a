"""Estimates how many messages a command stores beyond those it carries, since these add to the cost of applying it."""

from __future__ import annotations

from .log.commands import Command, Transaction, decode
from .log.touches import Copies, Tail
from .state.state import State

__all__ = ["copies_of"]


def copies_of(state: State, command: Command) -> int:
    """Return about how many messages a command stores in queues with bindings or options; 0 for all other commands."""
    if isinstance(command, Transaction):
        return sum(copies_of(state, decode(step)) for step in command.steps)
    copies = 0
    for touch in command.touches():
        if type(touch) is Tail:
            queue = state.queues.get(touch.queue)
            copies += 0 if queue is None or not queue.special else state.admission.reach(queue) * touch.most
        elif type(touch) is Copies:
            copies += sum(_reach(state, name) for name in touch.queues)
    return copies


def _reach(state: State, name: bytes) -> int:
    queue = state.queues.get(name)
    return 1 if queue is None else state.admission.reach(queue)
