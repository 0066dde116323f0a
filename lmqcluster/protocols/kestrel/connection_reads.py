"""The open reads of one connection."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterable
from itertools import islice

from ...core.log.commands import Delivered
from ...node.queues.open_reads.open_reads import OpenReads

__all__ = ["HeldReads"]


class HeldReads:
    """By queue, in the order in which they were opened.

    What is confirmed stays here until the cluster has confirmed it: should the connection end before, it is aborted too, which
    does nothing to what is confirmed.

    Attributes:
        timed: by queue, the number of open reads with a time limit that the connection began. They outlive it.
    """

    def __init__(self, reads: OpenReads) -> None:
        self.timed: Counter[bytes] = Counter()
        self._reads = reads
        # Sequences of messages, which say in which order they were put, and numbers of deliveries.
        self._held: dict[bytes, deque[tuple[int, int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._held)

    def count(self, queue: bytes) -> int:
        """How many are open on a queue."""
        return len(self._held.get(queue, ()))

    def add(self, queue: bytes, opened: Iterable[Delivered]) -> None:
        """These were opened."""
        more = [(message.sequence, number) for _, number, _, message in opened]
        if more:
            self._held.setdefault(queue, deque()).extend(more)

    def _oldest(self, queue: bytes, count: int) -> list[int]:
        return [number for _, number in islice(self._held.get(queue, ()), count)]

    async def confirm(self, queue: bytes, count: int = 1) -> None:
        """Confirm the `count` oldest of a queue, or all if they are fewer.

        Raises:
            LmqError: it is not known whether they are confirmed, or they are not; the connection has to end.
        """
        if closing := self.confirm_soon(queue, count):
            await self.confirmed(queue, *closing)

    def confirm_soon(self, queue: bytes, count: int = 1) -> tuple[asyncio.Future[list[bool] | None], int] | None:
        """Send the end of the `count` oldest, before what is opened next; None if nothing is open. See `confirmed`."""
        numbers = self._oldest(queue, count)
        if not numbers:
            return None
        closing = self._reads.confirm_soon(queue, numbers)
        closing.add_done_callback(_note)
        return closing, len(numbers)

    async def confirmed(self, queue: bytes, closing: asyncio.Future[list[bool] | None], count: int) -> None:
        """Wait until the cluster has confirmed what `confirm_soon` has sent. Raises as `confirm`."""
        await closing
        self.forget(queue, count)

    async def abort(self, queue: bytes) -> None:
        """Give the oldest of a queue back to the head. Raises as `confirm`."""
        numbers = self._oldest(queue, 1)
        if numbers:
            await self._reads.abort_numbers(queue, numbers)
            self.forget(queue, 1)

    def forget(self, queue: bytes, count: int = 1) -> None:
        """The cluster has confirmed the `count` oldest, or has them back."""
        held = self._held.get(queue)
        if held is None:
            return
        for _ in range(min(count, len(held))):
            held.popleft()
        if not held:
            del self._held[queue]

    def abort_all(self) -> None:
        """The connection is gone: everything goes back to the head, in the order in which it was put."""
        held, self._held = self._held, {}
        if held:
            self._reads.abort_numbers_soon(
                {queue: [number for _, number in sorted(rows)] for queue, rows in held.items()}
            )


def _note(closing: asyncio.Future[list[bool] | None]) -> None:
    """The client that asked may be gone by now."""
    if not closing.cancelled():
        closing.exception()
