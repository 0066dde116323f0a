"""Open reads of one connection."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterable
from itertools import islice

from ...core.log.results import Delivered
from ...node.queues.open_reads.open_reads import OpenReads

__all__ = ["HeldReads"]


class HeldReads:
    """Open reads by queue, in the order in which they were opened.

    A read stays here until the cluster has confirmed it. If the connection ends before that, the read is aborted too;
    the abort has no effect on a confirmed read.

    Attributes:
        timed: number of open reads with a time limit that the connection began, by queue. They outlive it.
    """

    def __init__(self, reads: OpenReads) -> None:
        self.timed: Counter[bytes] = Counter()
        self._reads = reads
        # Pairs of message sequence, which gives the order of the puts, and delivery number.
        self._held: dict[bytes, deque[tuple[int, int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._held)

    def count(self, queue: bytes) -> int:
        """Return the number of open reads on a queue."""
        return len(self._held.get(queue, ()))

    def add(self, queue: bytes, opened: Iterable[Delivered]) -> None:
        """Add deliveries that were opened."""
        more = [(message.sequence, number) for _, number, _, message in opened]
        if more:
            self._held.setdefault(queue, deque()).extend(more)

    def _oldest(self, queue: bytes, count: int) -> list[int]:
        return [number for _, number in islice(self._held.get(queue, ()), count)]

    async def confirm(self, queue: bytes, count: int = 1) -> None:
        """Confirm the `count` oldest reads of a queue, or all if there are fewer.

        Raises:
            LmqError: the reads are not confirmed, or the outcome is unknown; the connection has to end.
        """
        if closing := self.confirm_soon(queue, count):
            await self.confirmed(queue, *closing)

    def confirm_soon(self, queue: bytes, count: int = 1) -> tuple[asyncio.Future[list[bool] | None], int] | None:
        """Send the confirmation of the `count` oldest reads ahead of the next open; None if nothing is open. See `confirmed`."""
        numbers = self._oldest(queue, count)
        if not numbers:
            return None
        closing = self._reads.confirm_soon(queue, numbers)
        closing.add_done_callback(_note)
        return closing, len(numbers)

    async def confirmed(self, queue: bytes, closing: asyncio.Future[list[bool] | None], count: int) -> None:
        """Wait until the cluster has confirmed the reads sent by `confirm_soon`. Raises like `confirm`."""
        await closing
        self.forget(queue, count)

    async def abort(self, queue: bytes) -> None:
        """Abort the oldest read of a queue: its item returns to the head. Raises like `confirm`."""
        numbers = self._oldest(queue, 1)
        if numbers:
            await self._reads.abort_numbers(queue, numbers)
            self.forget(queue, 1)

    def forget(self, queue: bytes, count: int = 1) -> None:
        """Remove the `count` oldest reads, which the cluster has confirmed or returned."""
        held = self._held.get(queue)
        if held is None:
            return
        for _ in range(min(count, len(held))):
            held.popleft()
        if not held:
            del self._held[queue]

    def abort_all(self) -> None:
        """Abort all reads after the connection has closed: their items return to the heads in the order of the puts."""
        held, self._held = self._held, {}
        if held:
            self._reads.abort_numbers_soon(
                {queue: [number for _, number in sorted(rows)] for queue, rows in held.items()}
            )


def _note(closing: asyncio.Future[list[bool] | None]) -> None:
    """Retrieve the exception, because the client may have disconnected."""
    if not closing.cancelled():
        closing.exception()
