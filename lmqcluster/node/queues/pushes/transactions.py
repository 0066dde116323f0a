"""Several operations in one atomic step, for protocols; see `lmqcluster.core.handlers.transactions`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from ....core import PushFlag, State
from ....core.handlers.checks import checked_push
from ....core.handlers.push_plan import FLAG_BITS, known_push
from ....core.handlers.transactions import OPERATIONS_MAX, Conflict
from ....core.log.commands import Ack, Extend, Nack, Place, PushRows, Transaction
from ....wire.errors import LmqError
from ....wire.ids import ReceiptFormat
from ....wire.limits import NAME_BYTES_MAX
from ..sending.command_sender import CommandSender
from ..sending.push_items import PushItem, Stored, stored
from ..sending.times import lease_us, retry_delay_us

__all__ = ["AckStep", "ExtendStep", "NackStep", "PushStep", "Step", "run_transaction"]


@dataclass(frozen=True, slots=True)
class PushStep:
    """Store a message."""

    queue: bytes
    item: PushItem


@dataclass(frozen=True, slots=True)
class AckStep:
    """Acknowledge a delivery."""

    queue: bytes
    id: bytes


@dataclass(frozen=True, slots=True)
class NackStep:
    """Give a message back, perhaps for a reason; `delay_s` None takes the delay from the queue's properties."""

    queue: bytes
    id: bytes
    place: Place = Place.TAIL
    delay_s: float | None = None
    reason: bytes = b""


@dataclass(frozen=True, slots=True)
class ExtendStep:
    """Restart a lease; `lease_s` is None for the queue's timeout."""

    queue: bytes
    id: bytes
    lease_s: float | None = None


Step = PushStep | AckStep | NackStep | ExtendStep
_StepCommand = PushRows | Ack | Nack | Extend


def run_transaction(
    sender: CommandSender, receipts: ReceiptFormat, steps: Sequence[Step], owner: bytes, *, again: bool = False
) -> Coroutine[Any, Any, list[Stored | bool]]:
    """Carry out all steps, or none of them.

    The command is sent by this call itself, so it keeps its place among the client's requests.

    Args:
        again: the client repeats a transaction whose answer it has lost, so it may already have been carried out.

    Returns:
        Awaited: the result of each push, and True for each other step.

    Raises:
        LmqError: at once, or awaited. Nothing was done: ``lease_lost``, ``full``, ``too_large``, ``key_reused``,
            ``quota_exceeded`` with the step that failed; or ``unknown_outcome``.
    """
    if len(steps) > OPERATIONS_MAX:
        reason = f"a transaction has at most {OPERATIONS_MAX} operations, this has {len(steps)}"
        raise LmqError("too_large", reason)
    commands: list[_StepCommand] = []
    size = 64
    for step in steps:
        commands.append(_command(sender, receipts, step, owner))
        size += len(step.queue) + (step.item.size_bytes() if isinstance(step, PushStep) else 40)
    sent = sender.send(Transaction([command.encode() for command in commands], owner), size)
    return _outcome(sent, _Earlier(sender.state, commands, owner) if again else None)


async def _outcome(sent: asyncio.Future[list[Any] | Conflict], earlier: _Earlier | None) -> list[Stored | bool]:
    result = await sent
    if isinstance(result, Conflict):
        if earlier is None or not earlier.may_be_done(result):
            raise LmqError(result.code, f"operation {result.failed}: {result.reason}; nothing was done")
        return earlier.results(result)
    return [one if one is True else stored(*one) for one in result]


class _Earlier:
    """An earlier attempt of a transaction, reconstructed from its traces.

    If it was carried out, its settlements have ended their deliveries, and the keys of its pushes are known.
    """

    def __init__(self, state: Callable[[], State], commands: list[_StepCommand], owner: bytes) -> None:
        self._state = state
        self._commands = commands
        self._owner = owner

    def may_be_done(self, conflict: Conflict) -> bool:
        """Return whether the conflict may arise because the earlier attempt carried out the transaction."""
        settled = self._settlements()
        return False not in settled and (bool(settled) or conflict.code == "lease_lost")

    def results(self, conflict: Conflict) -> list[Stored | bool]:
        """Return the results of the earlier attempt, if it `may_be_done`.

        Raises:
            LmqError: ``unknown_outcome``: its results can no longer be determined.
        """
        settled = self._settlements()
        done = [self._pushed(one) if isinstance(one, PushRows) else True for one in self._commands]
        if not settled or None in settled or None in done:
            reason = "whether an earlier attempt carried the transaction out is not known any more"
            raise LmqError("unknown_outcome", f"{reason}; now it cannot be: {conflict.reason}")
        return [one for one in done if one is not None]

    def _settlements(self) -> list[bool | None]:
        is_repeated = self._state().is_repeated
        return [is_repeated(one, one.numbers[0]) for one in self._commands if isinstance(one, Ack | Nack)]

    def _pushed(self, command: PushRows) -> Stored | None:
        """Return the result of a push, None if its key is unknown.

        A push without a key counts as stored, because it has the same outcome as the other steps.
        """
        key, options = command.rows[0][3:5]
        if key is None:
            return Stored(PushFlag.STORED)
        known = known_push(self._state(), self._owner, command.queue, key, checked_push(options).group)
        if known is None:
            return None
        return stored(known.flag % (1 << FLAG_BITS) | PushFlag.REPLAYED, known.flag >> FLAG_BITS)


def _command(sender: CommandSender, receipts: ReceiptFormat, step: Step, owner: bytes) -> _StepCommand:
    if isinstance(step, PushStep):
        sender.check_name(step.queue, owner)
        sender.check_item(step.item)
        return PushRows(step.queue, [step.item.row(sender.due_times)])
    if len(step.queue) > NAME_BYTES_MAX:
        raise LmqError("lease_lost", "no queue has such a long name")
    numbers = [receipts.parse(step.id)]
    if isinstance(step, AckStep):
        return Ack(step.queue, numbers)
    if isinstance(step, NackStep):
        return sender.nack(step.queue, numbers, step.place, retry_delay_us(step.delay_s), step.reason)
    return Extend(step.queue, numbers, 0 if step.lease_s is None else lease_us(step.lease_s))
