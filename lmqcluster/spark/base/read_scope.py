"""The messages that a batch read has to return."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Interval", "ReadScope"]


@dataclass(frozen=True)
class Interval:
    """Integers from `start` on and before `end`; None is unbounded."""

    start: int | None = None
    end: int | None = None

    def within(self, other: Interval) -> Interval:
        """Return the integers that are in both."""
        starts = [one for one in (self.start, other.start) if one is not None]
        ends = [one for one in (self.end, other.end) if one is not None]
        return Interval(max(starts, default=None), min(ends, default=None))


@dataclass(frozen=True)
class ReadScope:
    """The messages that a batch read has to return.

    Attributes:
        queues: their names.
        offsets: sequences of messages.
        times_us: times at which messages became ready, in microseconds since 1970.
    """

    queues: tuple[str, ...]
    offsets: Interval = Interval()
    times_us: Interval = Interval()
