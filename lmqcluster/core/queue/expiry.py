"""Expiry by log time: each batch ends a bounded number of rows before its commands run.

Every table whose rows expire is a `Source`. Before a batch is applied, each source ends the rows that are due, up to
its own limit; the rest follows with the next batches. If no row is due, this costs one comparison. If no batch
arrives, the leader proposes an empty one at `next_us`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

__all__ = ["NEVER", "Expiry", "Limited", "Source"]

NEVER = 1 << 62
"""A log time that is never reached."""


class Source(Protocol):
    """A table whose rows expire by log time."""

    def due_us(self) -> int | None:
        """Return a lower bound of the time at which the next row ends; None without rows."""

    def expire(self, now_us: int, limit: int | None) -> int:
        """End up to `limit` rows (None: all) that are due; return how many ended."""


class Limited(NamedTuple):
    """A source, and the most rows of it that one batch ends."""

    source: Source
    limit: int


class Expiry:
    """The sources, and the time at which their next row ends.

    Which rows end with which batch depends on the state alone, so replicas stay equal, including those that started
    from a snapshot: `next_us` may be too early, which is a no-op, but never too late.

    Attributes:
        next_us: no row ends before this log time.
    """

    def __init__(self) -> None:
        self.next_us = NEVER
        self._sources: Sequence[Limited] = ()

    def watch(self, sources: Sequence[Limited]) -> None:
        """Set the sources, in the order in which their rows end. Called once, before anything is applied."""
        self._sources = sources

    def at(self, due_us: int) -> None:
        """Note a new row that ends at this log time."""
        self.next_us = min(self.next_us, due_us)

    def run(self, now_us: int) -> None:
        """End the rows that are due, within the limits."""
        for source, limit in self._sources:
            due_us = source.due_us()
            if due_us is not None and due_us <= now_us:
                source.expire(now_us, limit)
        self.look()

    def look(self) -> None:
        """Recompute `next_us` from the sources."""
        dues = [source.due_us() for source, _ in self._sources]
        self.next_us = min((due for due in dues if due is not None), default=NEVER)
