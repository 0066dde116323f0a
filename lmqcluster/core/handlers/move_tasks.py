"""Tasks that move messages. Every public method is one command of the state machine."""

from __future__ import annotations

from typing import Any, Final

from ..log import commands as log
from ..log.results import RefusedError, shown
from ..queue.queue import Queue
from ..routing.move_tasks import RATE_MAX, MoveTask
from ..state.state import State
from .checks import checked_text

__all__ = ["ORIGINS_MAX", "MoveTaskCommands"]

ORIGINS_MAX: Final = 100
"""Most queues that a task may name as origins."""


class MoveTaskCommands:
    """The commands."""

    def __init__(self, state: State) -> None:
        self._state = state

    def start(self, command: log.StartMoveTask) -> int:
        """Start a task.

        Raises:
            ValueError: a field is malformed, or the destination is the source.
            RefusedError: ``queue_not_found``; ``conflict`` if a task of the source runs.
        """
        state, rate, origins = self._state, command.rate, _checked_origins(command.origins)
        source, destination = checked_text(command.source), checked_text(command.destination)
        if type(rate) is not int or not 0 <= rate <= RATE_MAX:
            raise ValueError(f"a task moves at most {RATE_MAX} messages a second")
        if source == destination or (destination and origins is not None):
            raise ValueError("a task moves messages to another queue, or to their origins")
        queue = state.existing(source)
        for name, found in ((source, queue), (destination, state.queues.get(destination))):
            if name and found is None:
                raise RefusedError("queue_not_found", f"there is no queue {shown(name)}")
        if queue is None:
            raise ValueError("a task needs a source")
        if state.move_tasks.running(source) is not None:
            raise RefusedError("conflict", f"a task that moves the messages of the queue {shown(source)} is running")
        state.move_tasks.last += 1
        to_move = _movable(queue, has_target=bool(destination))
        state.move_tasks.start(
            MoveTask(state.move_tasks.last, source, destination, origins, rate, to_move, state.now_us)
        )
        return state.move_tasks.last

    def cancel(self, command: log.CancelMoveTask) -> int:
        """Cancel a running task; return how many messages it has moved.

        Raises:
            RefusedError: ``task_not_found`` if it does not run.
        """
        tasks = self._state.move_tasks
        task = tasks.running(checked_text(command.source))
        if task is None or task.number != command.number:
            raise RefusedError("task_not_found", "there is no such task, or it has ended")
        tasks.cancel(task)
        return task.moved


def _movable(queue: Queue, *, has_target: bool) -> int:
    """Return how many messages a task may have to move."""
    if has_target:
        return queue.store.waiting()
    return 0 if queue.store.rich is None else queue.store.rich.count_moved()


def _checked_origins(origins: Any) -> tuple[bytes, ...] | None:
    if origins is None:
        return None
    if type(origins) not in (list, tuple) or len(origins) > ORIGINS_MAX:
        raise ValueError(f"the origins of a task are at most {ORIGINS_MAX} queues")
    return tuple(map(checked_text, origins))
