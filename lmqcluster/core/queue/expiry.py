"""What ends by log time ends by itself, a bounded number of things with each batch that is applied.

Every table whose rows end is a `Source`. Before a batch is carried out, those sources end what is due, each up to its own limit;
what is left over follows with the next batch. As long as nothing is due this costs one comparison. If no batch comes, the
node that leads proposes an empty one when `next_us` has come.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

__all__ = ["NEVER", "Expiry", "Limited", "Source"]

NEVER = 1 << 62
"""A log time that does not come."""


class Source(Protocol):
    """A table whose rows end by log time."""

    def due_us(self) -> int | None:
        """When its next row ends, or a time before that; None without rows."""

    def expire(self, now_us: int, limit: int | None) -> int:
        """End up to `limit` rows (None: all) that are due by now; returns how many."""


class Limited(NamedTuple):
    """A source, and how many rows of it end with one batch at most."""

    source: Source
    limit: int


class Expiry:
    """The sources, and when the next of their rows ends.

    Which rows end with which batch depends on the state alone, so that replicas stay equal, one that began with a snapshot
    included: `next_us` may be too early, which does nothing, but never too late.

    Attributes:
        next_us: no row ends before this log time.
    """

    def __init__(self) -> None:
        self.next_us = NEVER
        self._sources: Sequence[Limited] = ()

    def watch(self, sources: Sequence[Limited]) -> None:
        """Take the sources, in the order in which their rows end. Called once, before anything is applied."""
        self._sources = sources

    def at(self, due_us: int) -> None:
        """A row was added that ends at this log time."""
        self.next_us = min(self.next_us, due_us)

    def run(self, now_us: int) -> None:
        """End what is due, within the limits."""
        for source, limit in self._sources:
            due_us = source.due_us()
            if due_us is not None and due_us <= now_us:
                source.expire(now_us, limit)
        self.look()

    def look(self) -> None:
        """Find the time at which the next row ends, in the sources themselves."""
        dues = [source.due_us() for source, _ in self._sources]
        self.next_us = min((due for due in dues if due is not None), default=NEVER)
