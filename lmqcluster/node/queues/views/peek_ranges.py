"""Ranges of sequences in which to read a queue in parallel, of nearly equal size.

Where a range ends is an estimate from samples; that the ranges put together are the whole queue is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from operator import itemgetter
from typing import Final, NamedTuple

from ....core import Machine, Queue
from ....core.messages.message import content_bytes
from ....core.queue.paged_tail import MESSAGE_BYTES
from ...process.fair_slices import FairSlices
from ..sending.naming import no_queue

__all__ = ["RANGES_MAX", "PeekRanges", "RangeWish"]

RANGES_MAX: Final = 1_000
_SAMPLES: Final = 4 * RANGES_MAX
"""So many messages outside of chunks are looked at, and so many chunks; of either less than twice as many."""


class RangeWish(NamedTuple):
    """How a queue is to be divided.

    Attributes:
        size: a range is to have about so many bytes; a message counts as its body and `MESSAGE_BYTES`.
        ranges_min: there are at least so many ranges, as far as there are messages.
    """

    size: int
    ranges_min: int


class PeekRanges:
    """Divides queues; `machine` returns the local replica's, `turns` hands out slices of the event loop."""

    def __init__(self, machine: Callable[[], Machine], turns: FairSlices) -> None:
        self._machine = machine
        self._turns = turns

    async def bounds(self, name: bytes, wish: RangeWish, client: bytes) -> list[int]:
        """Return where ranges begin, in order, and behind all messages that are there now the end of the last one.

        Every message of the queue that nobody holds is in one of the ranges, at most `RANGES_MAX` of them. The cost follows
        from the number of samples, and of references to chunks.

        Raises:
            LmqError: ``queue_not_found``.
        """
        queue = self._machine().queues.get(name)
        if queue is None:
            raise no_queue(name)
        end = self._machine().last_sequence + 1
        samples = [sample async for sample in self._turns.each(_samples(queue), client)]
        samples.sort()
        starts = _starts(samples, wish)
        return [*starts, end]


def _samples(queue: Queue) -> Iterator[tuple[int, int]]:
    """Sequences, each with the bytes that it stands for."""
    line = queue.in_line()
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
