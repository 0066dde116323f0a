"""Metrics of queues in queued's StatsD format: sent every second by UDP, with the queue's name in a tag.

The leader sends the counts of the replicated state. So if all nodes send, each event is counted once. A new leader continues
from the state of a second before. The node that answered an empty poll without a trace in the log sends that poll.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from ...core import Queue, State
from ..access.clients import NODE
from ..process.fair_slices import FairSlices
from ..queues.polls import PolledQueues
from .statsd_server import StatsdServer, clean

__all__ = ["QueuedStatsd"]

FLUSH_S: Final = 1.0
QUEUES_PER_TURN: Final = 200
EXACT_LEASES_MAX: Final = 100
"""With more leases, the time of the last message is a lower bound, because visiting all leases each second costs too much."""
_IN_TAGS: Final = bytes.maketrans(b",#", b"__")


class QueuedStatsd:
    """Sender of the figures of all queues whose messages are named by id and tag."""

    def __init__(
        self,
        server: StatsdServer,
        prefix: str,
        tags: Sequence[str],
        state: Callable[[], State],
        polled: PolledQueues,
        is_leader: Callable[[], bool],
        turns: FairSlices,
    ) -> None:
        """Store the target and the sources of the figures; `run` sends.

        Args:
            server: the StatsD server.
            prefix: prefix of metric names.
            tags: further tags.
            state: returns the local replica's state, which a snapshot may replace.
            polled: returns the figures.
            is_leader: returns whether this node leads now.
            turns: grants slices of the event loop.
        """
        self._turns = turns
        self._server = server
        self._prefix = prefix.encode()
        self._tags = "".join(f",{tag}" for tag in tags).encode()
        self._state = state
        self._polled = polled
        self._is_leader = is_leader
        # The counters of the previous second.
        self._counted: dict[bytes, dict[str, int]] | None = None
        self._empty: dict[bytes, int] = {}

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_S)
            await self._send_empty_polls()
            await self._send_queues()

    async def _send_empty_polls(self) -> None:
        empty = dict(self._polled.unlogged_empty_polls())
        before, self._empty = self._empty, empty
        # If a counter has fallen, the queue was recreated.
        changed = {name: count - (old if (old := before.get(name, 0)) <= count else 0) for name, count in empty.items()}
        await self._server.send(self._line(name, "empty_poll", more, b"c") for name, more in changed.items() if more)

    async def _send_queues(self) -> None:
        before, counted = self._counted, dict[bytes, dict[str, int]]()
        async for block in self._turns.blocks(list(self._state().queues.values()), NODE):
            lines: list[bytes] = []
            for queue in block:
                if queue.store.rich is None or queue.store.rich.index is None:
                    continue
                found = self._polled.figures(queue, EXACT_LEASES_MAX)
                counted[queue.name] = found.counters
                # The first figures cover an unknown period, so they are only a baseline.
                known = {} if before is None else before.get(queue.name, {})
                if before is not None and self._is_leader():
                    lines += self._differences(queue, known, found.counters)
                    lines += self._gauges(queue, found.messages, found.gauges)
            await self._server.send(lines)
        self._counted = counted

    def _differences(self, queue: Queue, before: Mapping[str, int], now: Mapping[str, int]) -> Iterator[bytes]:
        for name, count in now.items():
            old = before.get(name, 0)
            more = count - old if old <= count else count
            if more:
                yield self._line(queue.name, name, more, b"c")

    def _gauges(self, queue: Queue, messages: int, gauges: Mapping[str, int]) -> Iterator[bytes]:
        yield self._line(queue.name, "message_count", messages, b"g")
        yield from (self._line(queue.name, name, seconds, b"g") for name, seconds in gauges.items())

    def _line(self, queue: bytes, name: str, value: int, kind: bytes) -> bytes:
        tag = clean(queue).translate(_IN_TAGS)
        return b"%b.%b:%d|%b|#queue:%b%b" % (self._prefix, name.encode(), value, kind, tag, self._tags)
