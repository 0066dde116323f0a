"""Tasks that move the messages of a queue elsewhere, at a rate, a few with each batch of the log.

A task advances with log time alone, so each message is moved exactly once and the next leader goes on where the last one
was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from itertools import islice
from typing import NamedTuple

from ..log.touches import Head, Moved, Touch
from ..messages.sorted_list import SortedList
from ..queue.queue import Queue
from ..state_view import StateView
from .dead_lettering import DeadLetterRouter
from .moving import move_to, returnable, send_back

__all__ = ["KEPT_MAX", "MOVED_MAX", "RATE_MAX", "STEP_US", "MoveTask", "MoveTasks", "TaskStatus"]

STEP_US = 100_000
"""A running task moves messages at most this often."""
RATE_MAX = 10_000
"""Most messages that a task may be asked to move in a second."""
KEPT_MAX = 10
"""Tasks of one source that are kept, the latest."""
MOVED_MAX = 1_000
"""Messages that a task moves in a step, unless its rate says less."""
ROW_BYTES = 512
"""Approximate memory of a task, and of the name of an origin."""
_STEPS_PER_S = 10
_TASKS_MAX = 100
_SAMPLE = 20


class TaskStatus(IntEnum):
    """The state of a task. Part of the format of snapshots."""

    RUNNING = 0
    COMPLETED = 1
    CANCELLED = 2
    FAILED = 3


class MoveTask(NamedTuple):
    """A task. Times are log times.

    Attributes:
        number: names it in the cluster; each task has a higher one than those before.
        source: the queue whose messages it moves.
        destination: where they go; empty for each message's origin. Messages without an origin then stay.
        origins: the queues to which messages may return; None for any, and once the task has ended.
        rate: most messages in a second, 0 for no limit.
        to_move: messages that the source had for it at the start; the task ends when it has moved as many.
        started_us: when it started.
        status: its state.
        moved: messages moved so far.
        failure: an error code if it failed, else empty.
        steps: how many times `STEP_US` have passed since its start up to its last step.
    """

    number: int
    source: bytes
    destination: bytes
    origins: tuple[bytes, ...] | None
    rate: int
    to_move: int
    started_us: int
    status: TaskStatus = TaskStatus.RUNNING
    moved: int = 0
    failure: bytes = b""
    steps: int = 0

    def due_us(self) -> int:
        """Return when the task next has something to move."""
        steps = self.steps + 1
        if self.rate:
            # The first step at which another message is allowed.
            allowed = self.rate * self.steps // _STEPS_PER_S + 1
            steps = -(-allowed * _STEPS_PER_S // self.rate)
        return self.started_us + steps * STEP_US

    def allowed(self, steps: int) -> int:
        """Return how many messages it may move when this many steps have passed. Those missed long before are not added."""
        if not self.rate:
            return MOVED_MAX
        since = max(self.steps, steps - 2 - _STEPS_PER_S // self.rate)
        return min(MOVED_MAX, self.rate * steps // _STEPS_PER_S - self.rate * since // _STEPS_PER_S)


class MoveTasks:
    """The tasks by source.

    Attributes:
        last: number of the last task.
        size_bytes: approximate memory of all tasks.
    """

    def __init__(self, state: StateView, exits: DeadLetterRouter) -> None:
        self._state = state
        self._exits = exits
        self._tasks: dict[bytes, list[MoveTask]] = {}
        # Sources of running tasks by the time of their next step.
        self._running: SortedList[bytes] = SortedList()
        self.last = 0
        self.size_bytes = 0

    def __len__(self) -> int:
        return sum(map(len, self._tasks.values()))

    def of(self, source: bytes) -> list[MoveTask]:
        """Return the tasks of a source, the latest first."""
        return self._tasks.get(source, [])[::-1]

    def running(self, source: bytes) -> MoveTask | None:
        """Return the running task of a source, None if there is none."""
        tasks = self._tasks.get(source)
        return tasks[-1] if tasks and tasks[-1].status is TaskStatus.RUNNING else None

    def start(self, task: MoveTask) -> None:
        """Add a task of a source that has no running one."""
        tasks = self._tasks.setdefault(task.source, [])
        tasks.append(task)
        self.size_bytes += _bytes_of(task)
        if len(tasks) > KEPT_MAX:
            self.size_bytes -= _bytes_of(tasks.pop(0))
        if task.status is TaskStatus.RUNNING:
            self._stand_in_line(task)

    def _stand_in_line(self, task: MoveTask) -> None:
        due_us = task.due_us()
        self._running.add((due_us, task.source), task.source)
        self._state.expiry.at(due_us)

    def cancel(self, task: MoveTask) -> None:
        """End a running task."""
        self._change(task, task._replace(status=TaskStatus.CANCELLED))

    def _change(self, before: MoveTask, after: MoveTask) -> None:
        self._running.remove((before.due_us(), before.source))
        if after.status is TaskStatus.RUNNING:
            self._stand_in_line(after)
        else:
            after = after._replace(origins=None)
            self.size_bytes += _bytes_of(after) - _bytes_of(before)
        self._tasks[after.source][-1] = after

    def deleted(self, source: bytes) -> None:
        """Forget the tasks of a queue that was deleted."""
        running = self.running(source)
        if running is not None:
            self._running.remove((running.due_us(), source))
        self.size_bytes -= sum(map(_bytes_of, self._tasks.pop(source, ())))

    # --- Source ---------------------------------------------------------------------------------------------------

    def due_us(self) -> int | None:
        """Return when the next task has something to move; None if none runs."""
        first = self._running.first_key()
        return None if first is None else int(first[0])

    def expire(self, now_us: int, limit: int | None) -> int:
        """Carry out due steps until `limit` messages have been moved or looked for; return how many."""
        done = 0
        while (
            (limit is None or done < limit) and (first := self._running.first_key()) is not None and first[0] <= now_us
        ):
            task = self._tasks[first[1]][-1]
            after = self._step(task, now_us)
            self._change(task, after)
            done += 1 + after.moved - task.moved
        return done

    def _step(self, task: MoveTask, now_us: int) -> MoveTask:
        steps = (now_us - task.started_us) // STEP_US
        count = min(task.allowed(steps), task.to_move - task.moved)
        queue = self._state.existing(task.source)
        assert queue is not None  # noqa: S101 - the tasks of a queue end with it
        moved, failure = self._move(queue, task, count)
        task = task._replace(moved=task.moved + moved, steps=steps, failure=failure)
        if failure:
            return task._replace(status=TaskStatus.FAILED)
        return task._replace(status=TaskStatus.COMPLETED) if moved < count or task.moved >= task.to_move else task

    def _move(self, queue: Queue, task: MoveTask, count: int) -> tuple[int, bytes]:
        """Move messages; return how many, and why no more can be moved."""
        state = self._state
        if task.destination:
            target = state.existing(task.destination)
            return (0, b"queue_not_found") if target is None else (move_to(state, queue, target, count), b"")
        found = returnable(queue, b"", count, None)
        sources = {message.traits.origin.queue for message in found if message.traits.origin is not None}
        allowed = {source for source in sources if source in state.queues}
        failure = b"queue_not_found" if allowed != sources else b""
        if task.origins is not None and not allowed <= {*task.origins}:
            allowed &= {*task.origins}
            failure = failure or b"forbidden"
        found = returnable(queue, b"", count, allowed) if failure else found
        return send_back(state, self._exits, queue, found), failure

    def touches(self, now_us: int) -> Iterator[Touch]:
        """Yield the messages that the steps of the next batch read or store."""
        for source in islice(self._running.between((0,), (now_us + 1,)), _TASKS_MAX):
            task = self._tasks[source][-1]
            count = min(task.allowed((now_us - task.started_us) // STEP_US), task.to_move - task.moved)
            if task.destination:
                yield Head(source, count)
            yield Moved(source, None if task.destination else b"", count)

    # --- snapshots ------------------------------------------------------------------------------------------------

    def sample(self, number: int) -> Iterator[str]:
        """Yield texts of the counts and of some tasks that the number selects; they are equal on equal replicas."""
        sources = list(self._tasks)
        yield repr((self.last, len(sources), len(self._running)))
        for place in range(min(len(sources), _SAMPLE)):
            source = sources[(number + place) % len(sources)]
            yield repr([tuple(task) for task in self._tasks[source]])

    def rows(self) -> Iterator[list[object]]:
        """Return a row for each task, as of now."""
        return map(_row, [task for tasks in self._tasks.values() for task in tasks])

    def load(self, tasks: Iterable[MoveTask]) -> None:
        """Add the tasks of a snapshot, in the order they were written."""
        for task in tasks:
            self.start(task)


def _bytes_of(task: MoveTask) -> int:
    return ROW_BYTES + sum(ROW_BYTES + len(name) for name in task.origins or ())


def _row(task: MoveTask) -> list[object]:
    origins = None if task.origins is None else list(task.origins)
    return [*task[:3], origins, *task[4:7], int(task.status), *task[8:]]
