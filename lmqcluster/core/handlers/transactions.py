"""Several operations on any queues in one step: all of them are done, or none.

One command makes consume, work, produce exactly-once, because one log orders all queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from ..log.commands import Ack, Command, Encoded, Extend, Nack, PushRows, Transaction, decode
from ..log.results import Fault, RefusedError, shown
from ..messages.attributes import checked_reason
from ..owners.quotas import checked_owner
from ..queue.queue import Queue
from ..state.state import State
from .checks import Row, checked_row, checked_time
from .push_plan import PushPlan
from .settle import nack_of

__all__ = ["OPERATIONS_MAX", "Conflict", "Transactions", "single_commands"]

OPERATIONS_MAX = 1_000
"""Most operations of one transaction, which bounds the time of the command."""


class Conflict(NamedTuple):
    """The result of a transaction that failed; nothing was done.

    Attributes:
        failed: index of the operation that failed.
        code: ``lease_lost``, or the code of the push that was refused.
    """

    failed: int
    code: str
    reason: str


def single_commands(commands: Iterable[Encoded], results: Iterable[Any]) -> Iterator[tuple[Command, Any]]:
    """Yield the commands that succeeded with their results; those of a transaction as if sent one by one."""
    for encoded, result in zip(commands, results, strict=False):
        if isinstance(result, Fault):
            continue
        command = decode(encoded)
        if not isinstance(command, Transaction):
            yield command, result
        elif isinstance(result, list):
            yield from zip(map(decode, command.steps), ([one] for one in result), strict=True)


_Do = Callable[[], Any]
_Settlement = Ack | Nack | Extend


class Transactions:
    """The command."""

    def __init__(self, state: State) -> None:
        self._state = state

    def run(self, command: Transaction) -> list[Any] | Conflict:
        """Carry out the steps in their order. Each delivery may be named once.

        Returns:
            Flag and sequence of each push, True for all others; or the reason for which nothing was done.

        Raises:
            ValueError: a step is malformed, or there are too many.
        """
        if len(command.steps) > OPERATIONS_MAX:
            raise ValueError(f"a transaction has at most {OPERATIONS_MAX} operations")
        plan = PushPlan(self._state, checked_owner(command.owner))
        doing: list[_Do] = []
        used: set[int] = set()
        steps = [_checked(decode(step)) for step in command.steps]
        for index, step in enumerate(steps):
            try:
                doing.append(self._push(plan, step) if isinstance(step, _Push) else self._settle(plan, used, step))
            except RefusedError as exc:
                return Conflict(index, exc.code, exc.reason)
        return [do() for do in doing]

    def _push(self, plan: PushPlan, step: _Push) -> _Do:
        item, push = step.row
        queue = self._state.queue(step.queue)
        plan.add(queue, item, push)
        return lambda: plan.store(queue, item, push)

    def _settle(self, plan: PushPlan, used: set[int], step: _Settlement) -> _Do:
        state, number = self._state, step.numbers[0]
        queue = state.existing(step.queue)
        message = None if queue is None else queue.live(number, state.now_us)
        if queue is None or message is None or number in used:
            raise RefusedError(
                "lease_lost", f"delivery {number} of the queue {shown(step.queue)} is not leased any more"
            )
        used.add(number)
        if isinstance(step, Nack):
            plan.nack(queue, message, checked_reason(step.reason, step.attribute_bytes_max))
        return lambda: self._carry_out(queue, step)

    def _carry_out(self, queue: Queue, step: _Settlement) -> bool:
        state = self._state
        if isinstance(step, Ack):
            return queue.ack(state.now_us, step.numbers)[0]
        if isinstance(step, Extend):
            return state.deliveries.extend(queue, step.numbers, step.lease_us)[0]
        result = nack_of(step)(queue, state.now_us, step.numbers)
        state.note_due(queue)
        return result[0]


class _Push(NamedTuple):
    queue: bytes
    row: Row


def _checked(step: Command) -> _Push | _Settlement:
    """Return a step with its fields checked.

    Raises:
        ValueError: it is malformed.
    """
    if isinstance(step, PushRows):
        (row,) = step.rows
        if type(step.queue) is not bytes or step != PushRows(step.queue, step.rows):
            raise ValueError("a push of a transaction has a queue and one row")
        return _Push(step.queue, checked_row(row))
    if not isinstance(step, _Settlement):
        raise ValueError(f"a transaction has no operation {step.op.name}")
    (number,) = step.numbers
    if type(step.queue) is not bytes or type(number) is not int:
        raise ValueError("a queue name must be bytes and a delivery number an integer")
    if isinstance(step, Extend):
        checked_time(step.lease_us)
    if isinstance(step, Nack):
        nack_of(step)
        if step.undoes:
            raise ValueError("a transaction undoes no delivery")
    return step
