"""The connections that hold the messages this node has delivered.

In the log, a lease has no owner: any client that presents its id may settle it, through any node. The node that
delivers a message therefore records the connection, and checks in its replica whether the lease still exists.

The record consists of runs of delivery numbers, one for each connection that a command has served. With each new run
two old runs are checked. They are dropped if their leases have ended, else they move to the end. So there are at most
twice as many runs as those that still hold a lease.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass

from ....core import State
from ....core.log.results import Delivered
from ....core.messages.message import Message
from ....core.queue.expiry import NEVER
from ....ports import ConnectionSlot
from ...process.fair_slices import FairSlices

__all__ = ["Holders", "Holding"]

RUNS_MAX = 20_000
"""Most runs to keep; beyond them the oldest one is dropped."""
NUMBERS_MAX = 500_000
"""Most delivery numbers that one list looks up."""
_STEPS_MAX = 8
"""Delivery numbers to check for each new run."""
_NONE: dict[int, Message] = {}


@dataclass(slots=True)
class Holding:
    """The leases that one connection holds of one queue.

    Attributes:
        place: the connection, which may be closed.
        queue: name of the queue.
        leased: number of messages.
        ends_us: log time at which the first of the leases ends; None if they end with a session.
    """

    place: ConnectionSlot
    queue: bytes
    leased: int = 0
    ends_us: int | None = None

    def add(self, message: Message) -> None:
        """Count one more lease."""
        self.leased += 1
        if message.due_us != NEVER and (self.ends_us is None or message.due_us < self.ends_us):
            self.ends_us = message.due_us


class _Run:
    """Deliveries of one command to one connection: those of `queue` with numbers from `first` to `last`."""

    __slots__ = ("first", "last", "place", "queue")

    def __init__(self, place: ConnectionSlot, queue: bytes, first: int, last: int) -> None:
        self.place = place
        self.queue = queue
        self.first = first
        self.last = last

    def holds(self, leases: Mapping[int, Message]) -> bool:
        """Return whether the run may hold a lease; advance `first` past some leases that have ended."""
        number, last = self.first, min(self.last, self.first + _STEPS_MAX - 1)
        while number <= last and number not in leases:
            number += 1
        self.first = number
        return number <= self.last and bool(leases)


class Holders:
    """Records the connections to which this node delivers.

    Args:
        state: returns the local replica's state, which a snapshot may replace.
    """

    def __init__(self, state: Callable[[], State]) -> None:
        self._state = state
        self._runs: deque[_Run] = deque()
        # Log time at which the last lease of the dropped runs ends.
        self._blind_until_us = 0

    def __len__(self) -> int:
        return len(self._runs)

    def note(self, place: ConnectionSlot | None, delivered: Sequence[Delivered], start: int, end: int) -> None:
        """Record deliveries from `start` up to but not including `end` for a connection; None if it is no client's."""
        if place is None or start == end:
            return
        queue, first = delivered[start][:2]
        if delivered[end - 1][0] == queue:
            self._remember(_Run(place, queue, first, delivered[end - 1][1]))
        else:
            for name, number, _remaining, _message in delivered[start:end]:
                self._remember(_Run(place, name, number, number))

    def _remember(self, run: _Run) -> None:
        runs = self._runs
        runs.append(run)
        # With one check for each new run, the list would grow while some runs still hold leases.
        for _ in range(min(2, len(runs))):
            oldest = runs.popleft()
            leases = self._leases(oldest.queue)
            if oldest.holds(leases):
                runs.append(oldest)
        if len(runs) > RUNS_MAX:
            forgotten = runs.popleft()
            message = self._leases(forgotten.queue).get(forgotten.first)
            if message is not None:
                self._blind_until_us = max(self._blind_until_us, message.due_us)

    def _leases(self, queue: bytes) -> dict[int, Message]:
        found = self._state().queues.get(queue)
        return _NONE if found is None else found.store.leases.messages

    async def held(self, turns: FairSlices, client: bytes, queue: bytes | None = None) -> tuple[list[Holding], bool]:
        """List the holdings of one queue or of all, largest first; look them up in slices for this client.

        The second value is False if the list may be incomplete: runs were dropped, or there are too many numbers for
        one list.
        """
        found: dict[tuple[ConnectionSlot, bytes], Holding] = {}
        looked_up = 0
        async for run in turns.each(list(self._runs), client):
            if queue is not None and run.queue != queue:
                continue
            looked_up += run.last - run.first + 1
            if looked_up > NUMBERS_MAX:
                break
            self._count(run, found)
        is_all = looked_up <= NUMBERS_MAX and self._blind_until_us <= self._state().now_us
        return sorted(found.values(), key=lambda one: -one.leased), is_all

    async def connected(self, turns: FairSlices, client: bytes) -> AsyncIterator[tuple[ConnectionSlot, bytes]]:
        """Yield each open connection that probably holds messages, with their queue; a pair may come several times.

        Look at the first deliveries of each run only, in slices for this client.
        """
        async for run in turns.each(list(self._runs), client):
            if not run.place.is_released and run.holds(self._leases(run.queue)):
                yield run.place, run.queue

    def _count(self, run: _Run, found: dict[tuple[ConnectionSlot, bytes], Holding]) -> None:
        leases = self._leases(run.queue)
        for number in range(run.first, run.last + 1):
            message = leases.get(number)
            if message is None:
                continue
            key = (run.place, run.queue)
            holding = found.get(key)
            if holding is None:
                holding = found[key] = Holding(*key)
            holding.add(message)
