"""Several operations in one step, as front ends use them; see `lmqcluster.core.transactions`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...core import Op
from ...core.commands import Place
from ...core.transactions import OPERATIONS_MAX, Conflict
from ...wire.errors import LmqError
from ...wire.ids import ReceiptFormat
from ...wire.limits import NAME_BYTES_MAX
from .proposals import Proposals
from .push_items import PushItem, Stored
from .times import lease_us, retry_delay_us

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
    """Give a message back; `delay_s` is None for what the queue says."""

    queue: bytes
    id: bytes
    place: Place = Place.TAIL
    delay_s: float | None = None


@dataclass(frozen=True, slots=True)
class ExtendStep:
    """Restart a lease; `lease_s` is None for the queue's timeout."""

    queue: bytes
    id: bytes
    lease_s: float | None = None


Step = PushStep | AckStep | NackStep | ExtendStep


async def run_transaction(
    proposals: Proposals, receipts: ReceiptFormat, steps: Sequence[Step], owner: bytes
) -> list[Stored | bool]:
    """Carry out all steps, or none of them.

    Returns:
        Of each push what became of it, of all others True.

    Raises:
        LmqError: nothing was done: ``lease_lost``, ``full``, ``too_large``, ``key_reused``, ``quota_exceeded`` with the step that
            failed; or ``unknown_outcome``.
    """
    proposals.check_version(3)
    if len(steps) > OPERATIONS_MAX:
        reason = f"a transaction has at most {OPERATIONS_MAX} operations, this has {len(steps)}"
        raise LmqError("too_large", reason)
    rows: list[list[Any]] = []
    size = 64
    for step in steps:
        rows.append(_row(proposals, receipts, step, owner))
        size += len(step.queue) + (step.item.size_bytes() if isinstance(step, PushStep) else 40)
    result: list[Any] | Conflict = await proposals.propose([Op.TRANSACTION, rows, *proposals.owned(owner)], size)
    if isinstance(result, Conflict):
        raise LmqError(result.code, f"operation {result.failed}: {result.reason}; nothing was done")
    return [one if one is True else Stored(*one) for one in result]


def _row(proposals: Proposals, receipts: ReceiptFormat, step: Step, owner: bytes) -> list[Any]:
    if isinstance(step, PushStep):
        proposals.check_name(step.queue, owner)
        proposals.check_item(step.item)
        return [Op.PUSH_TRAITS, step.queue, step.item.row_with_options()]
    if len(step.queue) > NAME_BYTES_MAX:
        raise LmqError("lease_lost", "no queue has such a long name")
    number = receipts.parse(step.id)
    if isinstance(step, AckStep):
        return [Op.ACK, step.queue, number]
    if isinstance(step, NackStep):
        return [Op.GIVE_BACK, step.queue, number, int(step.place), retry_delay_us(step.delay_s)]
    return [Op.EXTEND_BY, step.queue, number, 0 if step.lease_s is None else lease_us(step.lease_s)]
