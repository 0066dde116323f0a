"""The batches that a leader has appended to its log, so that it appends none again."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .base.batch_entry import batch_number
from .raft.view import RaftView

__all__ = ["TakenBatches"]


class _Run(NamedTuple):
    """Consecutive batches of one origin."""

    incarnation: int
    first: int
    last: int


class TakenBatches:
    """Appends each batch once in a term.

    A node sends a batch again if it is not applied soon. Appending it again would be useless, because an entry stays in
    the log of the leader that has appended it. And if slow disks had to write every copy, the next batches would be late
    too and be sent again, and so forever.

    The machine applies a batch only after its predecessor. If that one was lost, the node sends both again, first the
    predecessor. So of each origin only the last batches that follow each other count.

    Args:
        core: this node's Raft core.
    """

    def __init__(self, core: RaftView) -> None:
        self._core = core
        self._term = 0
        self._runs: dict[bytes, _Run] = {}

    def has(self, batch: bytes) -> bool:
        """Return whether this node leads and has appended the batch in this term."""
        return self._has(batch_number(batch))

    def take(self, batch: bytes, append: Callable[[], bool]) -> bool:
        """Call `append`, which proposes the batch, unless that was done in this term; return whether the log has it."""
        number = batch_number(batch)
        if self._has(number):
            return True
        if not append():
            return False
        if number is not None:
            self._note(*number)
        return True

    def _has(self, number: tuple[bytes, int, int] | None) -> bool:
        if number is None or self._term != self._core.term() or not self._core.is_leader():
            return False
        origin, incarnation, sequence = number
        run = self._runs.get(origin)
        return run is not None and run.incarnation == incarnation and run.first <= sequence <= run.last

    def _note(self, origin: bytes, incarnation: int, sequence: int) -> None:
        if self._term != self._core.term():
            self._term = self._core.term()
            self._runs.clear()
        run = self._runs.get(origin)
        first = sequence
        if run is not None and (run.incarnation, run.last + 1) == (incarnation, sequence):
            first = run.first
        self._runs[origin] = _Run(incarnation, first, sequence)
