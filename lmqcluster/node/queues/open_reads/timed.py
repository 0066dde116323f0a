"""Open reads with a time limit, which outlive the connection that opened them."""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ....wire.errors import LmqError
from ..pulls.deliveries import Delivery
from .open_reads import OpenReads

__all__ = ["TIMED_READS_MAX", "TimedReads"]

TIMED_READS_MAX = 100_000
"""Most timed reads that may be open at a node."""
_STALE_MIN = 1_000


class _Timed(NamedTuple):
    ends_s: float
    sequence: int
    queue: bytes
    opened: Counter[bytes]


class TimedReads:
    """The timed reads of the node. Any client may confirm or abort them, through any node, until their time is over.

    Args:
        reads: the open reads to which these messages belong. If the node dies, they return to the head like all others.
    """

    def __init__(self, reads: OpenReads) -> None:
        self._reads = reads
        self._loop = asyncio.get_running_loop()
        self._timed: dict[bytes, _Timed] = {}
        # By the end of their time. Settled reads are removed when their time is over, or when they are too many.
        self._ends: list[tuple[float, bytes]] = []
        self._timer: asyncio.TimerHandle | None = None
        reads.on_lost(self._forget_all)

    def __len__(self) -> int:
        return len(self._timed)

    def check_room(self) -> None:
        """Refuse another read if there are too many.

        Raises:
            LmqError: ``overloaded``.
        """
        if len(self._timed) >= TIMED_READS_MAX:
            raise LmqError("overloaded", f"{TIMED_READS_MAX} reads are open at this node; confirm or abort some")

    def begin(self, queue: bytes, opened: Iterable[Delivery], seconds: float, counts: Counter[bytes]) -> None:
        """Start the time limit of these reads, `seconds` from now.

        `counts` holds the number of open reads by queue, and is kept up to date.
        """
        ends_s = self._loop.time() + seconds
        for one in opened:
            self._timed[one.id] = _Timed(ends_s, one.sequence, queue, counts)
            heapq.heappush(self._ends, (ends_s, one.id))
            counts[queue] += 1
        self._set_timer()

    async def confirm(self, queue: bytes, ids: Sequence[bytes]) -> int:
        """Remove the messages; return how many of them were open. Raises like `OpenReads.confirm`."""
        return self._settled(ids, await self._reads.confirm(queue, ids))

    async def abort(self, queue: bytes, ids: Sequence[bytes]) -> int:
        """Return the messages to the head in this order; return how many of them were open.

        Raises like `OpenReads.abort`.
        """
        return self._settled(ids, await self._reads.abort(queue, ids))

    def _settled(self, ids: Sequence[bytes], were_open: Sequence[bool]) -> int:
        for one, was_open in zip(ids, were_open, strict=True):
            if was_open:
                self._forget(one)
        if len(self._ends) > 2 * len(self._timed) + _STALE_MIN:
            self._ends = [(timed.ends_s, one) for one, timed in self._timed.items()]
            heapq.heapify(self._ends)
        return sum(were_open)

    def _forget(self, one: bytes) -> _Timed | None:
        timed = self._timed.pop(one, None)
        if timed is not None:
            timed.opened[timed.queue] -= 1
            if not timed.opened[timed.queue]:
                del timed.opened[timed.queue]
        return timed

    def _forget_all(self) -> None:
        """Drop all reads, because other clients have the messages or the node's session ends."""
        for one in list(self._timed):
            self._forget(one)
        self._ends.clear()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._ends[0][0], self._end) if self._ends else None

    def _end(self) -> None:
        """Abort the reads whose time is over."""
        now_s = self._loop.time()
        over: dict[bytes, list[tuple[int, bytes]]] = {}
        while self._ends and self._ends[0][0] <= now_s:
            _, one = heapq.heappop(self._ends)
            timed = self._forget(one)
            if timed is not None:
                over.setdefault(timed.queue, []).append((timed.sequence, one))
        if over:
            self._reads.abort_soon({queue: [one for _, one in sorted(rows)] for queue, rows in over.items()})
        self._set_timer()

    def close(self) -> None:
        """Stop aborting reads: the node's session ends, and with it all reads."""
        if self._timer is not None:
            self._timer.cancel()
        self._forget_all()
