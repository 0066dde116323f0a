"""Bugs in tasks that move messages. Each is a patch for the duration of a run, as in `switches`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lmqcluster.core.queue.queue import Queue
from lmqcluster.core.routing import move_tasks
from lmqcluster.core.routing.move_tasks import MoveTask, MoveTasks, TaskStatus
from tests.simulation.switches import switch

__all__ = ["PLANTED_MOVES"]

_allowed = MoveTask.allowed
_load = MoveTasks.load


def _forgotten(self: MoveTasks, tasks: Iterable[MoveTask]) -> None:
    """Lose the running tasks in a snapshot: they stay, but nothing wakes them."""
    kept = [*tasks]
    _load(self, [task._replace(status=TaskStatus.CANCELLED) for task in kept])
    for task in kept:
        self._tasks[task.source][-1] = task


def _losing(state: Any, queue: Queue, target: Queue, count: int) -> int:
    """Move one message fewer than are taken."""
    messages = queue.withdraw(state.now_us, count, also_delayed=False)
    target.append(state.now_us, state.last_sequence + 1, messages[1:])
    state.last_sequence += len(messages)
    state.note_due(target)
    return len(messages)


PLANTED_MOVES: dict[str, Any] = {
    "running tasks lost in snapshots": switch([(MoveTasks, "load", _forgotten)]),
    "messages lost by steps": switch([(move_tasks, "move_to", _losing)]),
    "three times the rate": switch([(MoveTask, "allowed", lambda self, steps: 3 * _allowed(self, steps))]),
}
"""By name, the context manager of each bug."""
