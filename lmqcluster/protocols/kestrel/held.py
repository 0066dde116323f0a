"""The open reads of one connection."""

from __future__ import annotations

from collections import deque
from itertools import islice

from ...node.queues.deliveries import Delivery
from ...node.queues.open_reads import OpenReads

__all__ = ["HeldReads"]


class HeldReads:
    """By queue, in the order in which they were opened.

    What is confirmed stays here until the cluster has confirmed it: should the connection end before, it is aborted too, which
    does nothing to what is confirmed.
    """

    def __init__(self, reads: OpenReads) -> None:
        self._reads = reads
        self._ids: dict[bytes, deque[tuple[int, bytes]]] = {}

    def __bool__(self) -> bool:
        return bool(self._ids)

    def count(self, queue: bytes) -> int:
        """How many are open on a queue."""
        return len(self._ids.get(queue, ()))

    def add(self, queue: bytes, opened: Delivery) -> None:
        """One was opened."""
        self._ids.setdefault(queue, deque()).append((opened.sequence, opened.id))

    async def confirm(self, queue: bytes, count: int = 1) -> None:
        """Confirm the `count` oldest of a queue, or all if they are fewer.

        Raises:
            LmqError: it is not known whether they are confirmed, or they are not; the connection has to end.
        """
        receipts = [receipt for _, receipt in islice(self._ids.get(queue, ()), count)]
        if receipts:
            await self._reads.confirm(queue, receipts)
            self._forget(queue, len(receipts))

    async def abort(self, queue: bytes) -> None:
        """Give the oldest of a queue back to the head. Raises as `confirm`."""
        receipts = [receipt for _, receipt in islice(self._ids.get(queue, ()), 1)]
        if receipts:
            await self._reads.abort(queue, receipts)
            self._forget(queue, 1)

    def _forget(self, queue: bytes, count: int) -> None:
        held = self._ids.get(queue)
        if held is None:
            return
        for _ in range(min(count, len(held))):
            held.popleft()
        if not held:
            del self._ids[queue]

    def abort_all(self) -> None:
        """The connection is gone: everything goes back to the head, in the order in which it was put."""
        held, self._ids = self._ids, {}
        if held:
            self._reads.abort_soon({queue: [receipt for _, receipt in sorted(rows)] for queue, rows in held.items()})
