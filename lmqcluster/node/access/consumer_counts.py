"""The number of consumers of each queue, at this node and at the others.

A consumer is an open connection whose pull waits for messages of the queue or that holds some under lease. Each node knows
only its own connections, so a node asks the others while a client requests the counts. Memory is bounded: a node reports
the queues and patterns that have most consumers.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from ...replication.replica import Replica
from ..peer_poll import ASK_PERIOD_S, PeerPoll
from ..process.fair_slices import FairSlices
from ..queues.patterns.patterns import client_pattern
from ..queues.pulls.wait_lists import PatternWaitList
from ..queues.service import QueueService
from .clients import NODE

__all__ = ["QUEUES_MAX", "ConsumerCounts", "Consumers"]

QUEUES_MAX: Final = 5_000
PATTERNS_MAX: Final = 64
PATIENCE_S: Final = 1.0
OLD_S: Final = 5.0
"""Age from which the answer of another node no longer counts."""


@dataclass(frozen=True, slots=True)
class Consumers:
    """Consumers of a queue at one node.

    Attributes:
        node: name of the node.
        waiting_pulls: pulls that wait for the queue, also by a pattern.
        consumers: open connections that wait for its messages or hold some.
    """

    node: str
    waiting_pulls: int
    consumers: int


@dataclass(slots=True)
class _Counted:
    """Waiting pulls, and the connections that wait or hold messages."""

    pulls: int = 0
    connections: set[Hashable] = field(default_factory=set)

    def row(self, name: bytes) -> list[Any]:
        return [name, self.pulls, len(self.connections)]


class _Report:
    """The counts of one node: by queue, and by pattern with its search."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._queues: dict[bytes, tuple[int, int]] = {
            name: (pulls, consumers) for name, pulls, consumers in fields["queues"]
        }
        self._patterns = [(client_pattern(name), pulls, consumers) for name, pulls, consumers in fields["patterns"]]

    def of(self, queue: bytes) -> tuple[int, int]:
        """Return the waiting pulls and the consumers of a queue."""
        pulls, consumers = self._queues.get(queue, (0, 0))
        for matches, more_pulls, more_consumers in self._patterns:
            if matches(queue):
                pulls += more_pulls
                consumers += more_consumers
        return pulls, consumers


class ConsumerCounts:
    """The counts of all nodes, at most a second old when they were requested.

    Args:
        replica: returns the current replica, which is replaced when the node joins or leaves a cluster.
        service: knows the pulls of this node.
        turns: grants slices of the event loop.
    """

    def __init__(self, replica: Callable[[], Replica], service: QueueService, turns: FairSlices) -> None:
        self._replica = replica
        self._service = service
        self._turns = turns
        self._loop = asyncio.get_running_loop()
        self._poll = PeerPoll(replica, "clients", ["consumers"], patience_s=PATIENCE_S)
        self._reports: dict[str, tuple[object, _Report]] = {}
        self._own: asyncio.Task[dict[str, Any]] | None = None
        self._counted_at = float("-inf")
        self.close = self._poll.close

    async def own(self) -> dict[str, Any]:
        """Return the counts of this node for the others; they are taken at most once a second."""
        now = self._loop.time()
        if self._own is None or now - self._counted_at >= ASK_PERIOD_S:
            self._counted_at = now
            self._own = self._loop.create_task(self._count())
        return await asyncio.shield(self._own)

    async def _count(self) -> dict[str, Any]:
        queues: dict[bytes, _Counted] = {}
        patterns: dict[bytes, _Counted] = {}
        pulls = self._service.pulls
        async for where, key, connection in self._turns.each(list(self._waiting(queues, patterns)), NODE):
            counted = where.setdefault(key, _Counted())
            counted.pulls += 1
            counted.connections.add(connection)
        async for place, queue in pulls.holders.connected(self._turns, NODE):
            queues.setdefault(queue, _Counted()).connections.add(place)
        return {"queues": _largest(queues, QUEUES_MAX), "patterns": _largest(patterns, PATTERNS_MAX)}

    def _waiting(
        self, queues: dict[bytes, _Counted], patterns: dict[bytes, _Counted]
    ) -> Iterator[tuple[dict[bytes, _Counted], bytes, Hashable]]:
        """Yield for each waiting pull the counts where it belongs, its queue or pattern, and its connection."""
        for line in self._service.pulls.lines():
            where = patterns if isinstance(line, PatternWaitList) else queues
            for waiter in line.waiters:
                if waiter.open:
                    # The pulls of a connection share the set of its waiting pulls.
                    yield where, line.key, waiter.puller.place or id(waiter.puller.waiting)

    async def look(self) -> list[str]:
        """Update the counts; return the names of the nodes whose counts are missing."""
        own, _ = await asyncio.gather(self.own(), self._poll.look())
        status = self._replica().status()
        reports: dict[str, tuple[object, _Report]] = {}
        silent = []
        for member in status.members or {status.id: status.address}:
            answer = None if member == status.id else self._poll.answer(member)
            fields: Any = own if member == status.id else answer and answer.result
            name = status.name_of(member)
            if not fields or (answer is not None and self._poll.age_s(answer) > OLD_S):
                silent.append(name)
                continue
            known = self._reports.get(name)
            reports[name] = known if known is not None and known[0] is fields else (fields, _Report(fields))
        self._reports = reports
        return sorted(silent)

    def of(self, queue: bytes) -> list[Consumers]:
        """Return the consumers of a queue by node, as of the last `look`."""
        return [Consumers(node, *report.of(queue)) for node, (_fields, report) in sorted(self._reports.items())]


def _largest(counts: dict[bytes, _Counted], most: int) -> list[list[Any]]:
    found = heapq.nlargest(most, counts.items(), key=lambda one: len(one[1].connections))
    return [counted.row(name) for name, counted in found]
