"""Pushes numbered by a producer: stored as a whole or not at all, and only once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..log.results import PushFlag, Refusal, RefusedError
from ..owners.quotas import checked_owner
from ..state.state import REMEMBER_US, State

__all__ = ["Numbers", "checked_numbers", "store_once"]

_INT_MAX = (1 << 63) - 1
_REFUSALS = {"full": PushFlag.FULL, "too_large": PushFlag.OVERSIZED}
_KNOWN = (int(PushFlag.STORED | PushFlag.REPLAYED), 0)

Stored = tuple[int, int]
"""Flag and sequence; 0 for a push that was stored before."""


class Numbers(NamedTuple):
    """Owner and producer of pushes, and the number of the first."""

    owner: bytes
    producer: bytes
    first: int


def checked_numbers(owner: bytes, producer: bytes, first: int) -> Numbers:
    """Return the numbers that a command names.

    Raises:
        ValueError: they are malformed.
    """
    if type(producer) is not bytes or type(first) is not int or abs(first) > _INT_MAX:
        raise ValueError("a producer must be bytes and its sequence an integer of 63 bits")
    return Numbers(checked_owner(owner), producer, first)


def store_once(
    state: State, numbers: Numbers, count: int, store: Callable[[Sequence[int]], list[Stored]]
) -> list[Stored]:
    """Store those of `count` pushes that are not stored yet, together; return a flag and the sequence of each.

    Args:
        store: stores the pushes with these positions, all of them or none.

    Raises:
        RefusedError: any error of `store` except ``full`` and ``too_large``, which become flags: like other numbered
            pushes, one
            that a queue refuses does not block later ones, and is tried again when it is resent.
    """
    owner, producer, first = numbers
    refused = state.producers.refused
    duplicates = state.producers.admit(owner, producer, first, count, state.now_us)
    state.expiry.at(state.now_us + REMEMBER_US)
    again = [number - first for number in refused.among(owner, producer, first, duplicates)] if refused else []
    due = [*again, *range(duplicates, count)]
    results = [_KNOWN] * count
    if not due:
        return results
    try:
        stored = store(due)
    except RefusedError as exc:
        for position in due[len(again) :]:
            refused.note(owner, producer, first + position)
        if exc.code not in _REFUSALS:
            raise
        stored = [(Refusal(_REFUSALS[exc.code], exc.reason), 0)] * len(due)
    else:
        for position in again:
            refused.stored(owner, producer, first + position)
    for position, result in zip(due, stored, strict=True):
        results[position] = result
    return results
