"""Several operations on any queues in one step: all of them are done, or none.

One command makes consume, work, produce exactly-once, because one log orders all queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from ..log.commands import Command, Fault, Op, Place, RefusedError, shown
from ..log.items import checked_item
from ..owners.quotas import checked_owner
from ..queue.queue import Queue
from ..state.state import State
from .push_plan import PushPlan
from .traits import checked_push, checked_time

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


def single_commands(commands: Iterable[Command], results: Iterable[Any]) -> Iterator[tuple[Command, Any]]:
    """Yield the commands that succeeded with their results; those of a transaction as if sent one by one."""
    for command, result in zip(commands, results, strict=False):
        if isinstance(result, Fault):
            continue
        if command[0] != Op.TRANSACTION:
            yield command, result
        elif isinstance(result, list):
            for (op, queue, argument, *rest), one in zip(command[1], result, strict=True):
                yield [op, queue, [argument], *rest], [one]


_Step = Callable[[], Any]


class Transactions:
    """The command."""

    def __init__(self, state: State) -> None:
        self._state = state

    def run(self, operations: list[list[Any]], owner: bytes = b"") -> list[Any] | Conflict:
        """Carry out operations in their order.

        Args:
            operations: [op, queue, ...] of each: ``Op.PUSH_TRAITS`` with a row of that command; ``Op.ACK`` with a
                delivery number;
                ``Op.GIVE_BACK`` with number, place and delay; ``Op.EXTEND_BY`` with number and lease, 0 for the
                    queue's timeout. Each
                delivery may be named once.
            owner: owner of keys and new queues.

        Returns:
            Flag and sequence of each push, True for all others; or the reason for which nothing was done.

        Raises:
            ValueError: an operation is malformed, or there are too many.
        """
        if len(operations) > OPERATIONS_MAX:
            raise ValueError(f"a transaction has at most {OPERATIONS_MAX} operations")
        plan = PushPlan(self._state, checked_owner(owner))
        steps: list[_Step] = []
        used: set[int] = set()
        parsed = [_parsed(*operation) for operation in operations]
        for index, (op, name, argument) in enumerate(parsed):
            try:
                steps.append(
                    self._push(plan, name, argument)
                    if op is Op.PUSH_TRAITS
                    else self._settle(plan, used, op, name, argument)
                )
            except RefusedError as exc:
                return Conflict(index, exc.code, exc.reason)
        return [step() for step in steps]

    def _push(self, plan: PushPlan, name: bytes, argument: tuple[Any, ...]) -> _Step:
        item, push = argument
        queue = self._state.queue(name)
        plan.add(queue, item)
        return lambda: plan.store(queue, item, push)

    def _settle(self, plan: PushPlan, used: set[int], op: Op, name: bytes, argument: tuple[Any, ...]) -> _Step:
        state, number = self._state, argument[0]
        queue = state.existing(name)
        message = None if queue is None else queue.live(number, state.now_us)
        if queue is None or message is None or number in used:
            raise RefusedError("lease_lost", f"delivery {number} of the queue {shown(name)} is not leased any more")
        used.add(number)
        if op is Op.GIVE_BACK:
            plan.give_back(queue, message)
        return lambda: self._carry_out(queue, op, *argument)

    def _carry_out(self, queue: Queue, op: Op, number: int, *arguments: Any) -> bool:
        state = self._state
        if op is Op.EXTEND_BY:
            return state.extend(queue, [number], *arguments)[0]
        if op is Op.GIVE_BACK:
            result = queue.give_back(state.now_us, [number], *arguments)
            state.note_due(queue)
            return result[0]
        return queue.ack(state.now_us, [number])[0]


def _parsed(op: int, name: bytes, *arguments: Any) -> tuple[Op, bytes, tuple[Any, ...]]:
    """Return an operation with its arguments checked.

    Raises:
        ValueError: it is malformed.
    """
    if type(name) is not bytes:
        raise ValueError("a queue name must be bytes")
    if op == Op.PUSH_TRAITS:
        (row,) = arguments
        return Op.PUSH_TRAITS, name, (checked_item(row[:4]), checked_push(row[4]))
    number, *rest = arguments
    if type(number) is not int:
        raise ValueError("a delivery number must be an integer")
    if op == Op.ACK and not rest:
        return Op.ACK, name, (number,)
    if op == Op.GIVE_BACK:
        place, delay_us = rest
        return Op.GIVE_BACK, name, (number, Place(place), None if delay_us == -1 else checked_time(delay_us))
    if op == Op.EXTEND_BY:
        (lease_us,) = rest
        return Op.EXTEND_BY, name, (number, checked_time(lease_us))
    raise ValueError(f"a transaction has no operation {op!r}")
