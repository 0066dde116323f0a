"""The accounts of each process and of all: the pushed values, and what happened to them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .books import Key, Message

__all__ = ["Accounts", "account_for"]


@dataclass(frozen=True, slots=True)
class Accounts:
    """The accounts of one process, or of all.

    Attributes:
        attempted, acknowledged: values that it pushed.
        failed, unknown: attempts to push with this outcome.
        delivered, acked: number of the values that were; in the total, also values that no client pushed.
        recovered: delivered although no push was acknowledged.
        lost: acknowledged and lost; `lost_where` says ``prefix``, ``middle`` or ``suffix`` of the acknowledged values.
        lost_first, lost_last: numbers of the first and last one lost.
    """

    attempted: int = 0
    acknowledged: int = 0
    failed: int = 0
    unknown: int = 0
    delivered: int = 0
    acked: int = 0
    recovered: int = 0
    lost: int = 0
    lost_where: str | None = None
    lost_first: int | None = None
    lost_last: int | None = None


def account_for(messages: Mapping[Key, Message], lost: set[Key]) -> tuple[Accounts, dict[str, Accounts]]:
    """Return the accounts of all processes together, and of each."""
    rows: dict[str, list[tuple[Key, Message]]] = defaultdict(list)
    for key, message in messages.items():
        if message.pushes:
            rows[message.pushes[0].process].append((key, message))
    by_process = {process: _account(own, lost) for process, own in sorted(rows.items())}
    everything = _account(list(messages.items()), lost)
    # Numbers of different processes cannot be compared.
    places = {account.lost_where for account in by_process.values() if account.lost_where}
    where = ", ".join(sorted(places)) or None
    return replace(everything, lost_where=where, lost_first=None, lost_last=None), by_process


def _account(rows: Sequence[tuple[Key, Message]], lost: set[Key]) -> Accounts:
    outcomes = Counter(push.outcome for _key, message in rows for push in message.pushes)
    acknowledged = sorted((_number(key[1]), key in lost) for key, message in rows if message.acknowledged)
    gone = [sequence for sequence, is_lost in acknowledged if is_lost]
    kept = [sequence for sequence, is_lost in acknowledged if not is_lost]
    return Accounts(
        attempted=sum(bool(message.pushes) for _key, message in rows),
        acknowledged=sum(message.acknowledged for _key, message in rows),
        failed=outcomes["failed"],
        unknown=outcomes["unknown"],
        delivered=sum(bool(message.deliveries) for _key, message in rows),
        acked=sum(message.acked_us is not None for _key, message in rows),
        recovered=sum(
            bool(message.deliveries) and message.copies_max > 0 and not message.acknowledged for _key, message in rows
        ),
        lost=len(gone),
        lost_where=_place(gone, kept) if gone else None,
        lost_first=min(gone, default=None),
        lost_last=max(gone, default=None),
    )


def _number(value: str) -> int:
    """Return the number at the end of a value ``process-number``."""
    digits = value.rpartition("-")[2]
    return int(digits) if digits.isdigit() else 0


def _place(gone: Sequence[int], kept: Sequence[int]) -> str:
    if not kept:
        return "everything"
    if min(gone) > max(kept):
        return "suffix"
    if max(gone) < min(kept):
        return "prefix"
    return "middle"
