"""Which clients hold the messages that this node has delivered.

A lease belongs to nobody in the log: whoever shows its id may settle it, through any node. So the node that delivers a message
remembers over which connection, and looks into its replica whether the lease is still there. What it remembers are runs of
delivery numbers, one for each connection that a command has served. With each new run two old ones are looked at: they go if
their leases have ended, else they are looked at last. So there are at most twice as many runs as those that hold something.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ....core import Machine
from ....core.log.commands import Delivered
from ....core.messages.message import Message
from ....core.queue.expiry import NEVER
from ....ports import ConnectionSlot
from ...process.fair_slices import FairSlices

__all__ = ["Holders", "Holding"]

RUNS_MAX = 20_000
"""Runs to remember; beyond them the oldest one is forgotten."""
NUMBERS_MAX = 500_000
"""Delivery numbers that one list looks up."""
_STEPS_MAX = 8
"""Delivery numbers to look up for each new run."""
_NONE: dict[int, Message] = {}


@dataclass(slots=True)
class Holding:
    """What one connection holds of one queue.

    Attributes:
        place: the connection, which may be over.
        queue: name of the queue.
        leased: how many messages.
        ends_us: log time at which the first of the leases ends; None if they end with a session.
    """

    place: ConnectionSlot
    queue: bytes
    leased: int = 0
    ends_us: int | None = None

    def add(self, message: Message) -> None:
        """Count one lease more."""
        self.leased += 1
        if message.due_us != NEVER and (self.ends_us is None or message.due_us < self.ends_us):
            self.ends_us = message.due_us


class _Run:
    """Deliveries of one command to one connection: those under the numbers from `first` to `last` that are of the queue."""

    __slots__ = ("first", "last", "place", "queue")

    def __init__(self, place: ConnectionSlot, queue: bytes, first: int, last: int) -> None:
        self.place = place
        self.queue = queue
        self.first = first
        self.last = last

    def holds(self, leases: Mapping[int, Message]) -> bool:
        """Whether it may hold something; leaves out the first of its leases that have ended, some at a time."""
        number, last = self.first, min(self.last, self.first + _STEPS_MAX - 1)
        while number <= last and number not in leases:
            number += 1
        self.first = number
        return number <= self.last and bool(leases)


class Holders:
    """Remembers to whom this node delivers.

    Args:
        machine: returns the local replica's machine, which a snapshot may replace.
    """

    def __init__(self, machine: Callable[[], Machine]) -> None:
        self._machine = machine
        self._runs: deque[_Run] = deque()
        # Log time at which the last lease of those ends that had to be forgotten.
        self._blind_until_us = 0

    def __len__(self) -> int:
        return len(self._runs)

    def note(self, place: ConnectionSlot | None, delivered: Sequence[Delivered], start: int, end: int) -> None:
        """The deliveries from `start` on and before `end` go to a connection; None if it is no client's."""
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
        # Were it one, the list would grow as long as some hold something.
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
        found = self._machine().queues.get(queue)
        return _NONE if found is None else found.leases.messages

    async def held(self, turns: FairSlices, client: bytes, queue: bytes | None = None) -> tuple[list[Holding], bool]:
        """Who holds what, of one queue or of all, who holds most first; looked up in slices for this client.

        The second value is False if that may not be all: some had to be forgotten, or it is too much for one list.
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
        is_all = looked_up <= NUMBERS_MAX and self._blind_until_us <= self._machine().now_us
        return sorted(found.values(), key=lambda one: -one.leased), is_all

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
