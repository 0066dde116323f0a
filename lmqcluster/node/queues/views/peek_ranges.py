"""Ranges of sequences of nearly equal size, for reading a queue in parallel.

The ends of the ranges are estimated from samples. Together the ranges always cover the whole queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from operator import itemgetter
from typing import Final, NamedTuple

from ....core import Queue, State
from ....core.messages.message import content_bytes
from ....core.queue.paged_tail import MESSAGE_BYTES
from ...process.fair_slices import FairSlices
from ..sending.naming import no_queue

__all__ = ["RANGES_MAX", "PeekRanges", "RangeWish"]

RANGES_MAX: Final = 1_000
_SAMPLES: Final = 4 * RANGES_MAX
"""Number of messages outside of chunks that are sampled, and of chunks; of either fewer than twice as many."""


class RangeWish(NamedTuple):
    """The wanted division of a queue.

    Attributes:
        size: approximate bytes of a range; a message counts as its body and `MESSAGE_BYTES`.
        ranges_min: smallest number of ranges, if there are enough messages.
    """

    size: int
    ranges_min: int


class PeekRanges:
    """Divides queues; `state` returns the local replica's state, `turns` provides slices of the event loop."""

    def __init__(self, state: Callable[[], State], turns: FairSlices) -> None:
        self._state = state
        self._turns = turns

    async def bounds(self, name: bytes, wish: RangeWish, client: bytes) -> list[int]:
        """Return the beginnings of the ranges in order, and the end of the last one, which is behind all present messages.

        Every unleased message of the queue is in one of the ranges, of which there are at most `RANGES_MAX`. The cost
        depends on the number of samples, and of references to chunks.

        Raises:
            LmqError: ``queue_not_found``.
        """
        queue = self._state().queues.get(name)
        if queue is None:
            raise no_queue(name)
        end = self._state().last_sequence + 1
        samples = [sample async for sample in self._turns.each(_samples(queue), client)]
        samples.sort()
        starts = _starts(samples, wish)
        return [*starts, end]


def _samples(queue: Queue) -> Iterator[tuple[int, int]]:
    """Yield sequences, each with the bytes that it stands for."""
    line = queue.store.in_line()
    step = max(1, (len(line.messages) + sum(map(len, line.entries))) // _SAMPLES)
    entries = (map(itemgetter(-1), block[::step]) for block in line.entries)
    for message in chain(line.messages[::step], chain.from_iterable(entries)):
        yield message.sequence, (content_bytes(message.content) + MESSAGE_BYTES) * step
    step = max(1, len(line.chunks) // _SAMPLES)
    for chunk in line.chunks[::step]:
        yield chunk.low, chunk.memory_bytes() * step


def _starts(samples: list[tuple[int, int]], wish: RangeWish) -> list[int]:
    total = sum(weight for _, weight in samples)
    ranges = min(RANGES_MAX, max(1, wish.ranges_min, -(-total // wish.size)))
    starts, behind = [0], 0
    for sequence, weight in samples:
        if behind >= total * len(starts) // ranges and sequence > starts[-1]:
            starts.append(sequence)
        behind += weight
    return starts
