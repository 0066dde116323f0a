"""Metrics of queues in LMQ's StatsD format: the operations of this node, sent by UDP without confirmation.

Every second the node sends ``PREFIX.NAME.push:N|c`` and ``.pull:N|c`` of the queues with activity, and ``.retention:X|ms`` of
the first deliveries of that second, in milliseconds. At longer intervals it sends the gauges ``.size:N|g`` and ``.memory:N|g``
of all queues. LMQ sent every other event individually with a sample rate of one half; a StatsD server computes the same sums
from both. Deliveries of batch leases are not included.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from ...core import PushFlag, State
from ...core.handlers.transactions import single_commands
from ...core.handlers.waiting_pushes import Waits
from ...core.log.commands import PULLS, Encoded, Push, PushAttempts, PushEach, PushRows, PushStream
from ...core.log.notices import Notice, Pushed
from ...core.log.results import Delivered, Fault
from ..access.clients import NODE
from ..process.fair_slices import FairSlices
from ..process.memory import MESSAGE_OVERHEAD_BYTES
from .statsd_server import StatsdServer, clean

__all__ = ["StatsdSender"]

FLUSH_S: Final = 1.0
RETENTIONS_MAX: Final = 20
"""Maximum number of retention times per queue and second."""


class StatsdSender:
    """Counts the operations of this node and sends the counts. It never blocks the node and never makes it fail."""

    def __init__(
        self, server: StatsdServer, prefix: str, gauges_s: int, state: Callable[[], State], turns: FairSlices
    ) -> None:
        """Store the target and the source of the gauges; `run` sends.

        Args:
            server: the StatsD server.
            prefix: prefix of metric names, before the queue's name.
            gauges_s: seconds between gauges, 0 for none.
            state: returns the local replica's state, which a snapshot may replace.
            turns: grants slices of the event loop.
        """
        self._turns = turns
        self._server = server
        self._prefix = prefix.encode()
        self._gauges_s = gauges_s
        self._state = state
        self._pushed: Counter[bytes] = Counter()
        self._pulled: Counter[bytes] = Counter()
        self._retention: dict[bytes, list[float]] = {}

    def batch_applied(
        self, now_us: int, commands: Iterable[Encoded], results: Iterable[Any], notices: Iterable[Notice] = ()
    ) -> None:
        """Count the pushes and pulls of a batch of this node."""
        for notice in notices:
            if isinstance(notice, Pushed) and not isinstance(notice.result, Fault):
                self._count_pushes(notice.queue, notice.result)
        for command, result in single_commands(commands, results):
            if not result:
                continue
            if isinstance(command, Push | PushStream):
                self._pushed[command.queue] += sum(flag < PushFlag.REPLAYED for flag in result)
            elif isinstance(command, PushRows | PushAttempts):
                if not isinstance(result, Waits):
                    self._count_pushes(command.queue, result)
            elif isinstance(command, PushEach):
                self._pushed.update(name for name, flag in result if flag < PushFlag.REPLAYED)
            elif command.op in PULLS:
                self._count_deliveries(now_us, result)

    def _count_pushes(self, name: bytes, stored: Iterable[tuple[int, int]]) -> None:
        self._pushed[name] += sum(flag < PushFlag.REPLAYED for flag, _sequence in stored)

    def _count_deliveries(self, now_us: int, delivered: list[Delivered]) -> None:
        for name, _number, _remaining, message in delivered:
            self._pulled[name] += 1
            waits = self._retention.setdefault(name, [])
            if len(waits) < RETENTIONS_MAX:
                waits.append(max(0, now_us - message.ready_us) / 1e3)

    async def run(self) -> None:
        """Send until cancelled."""
        loop = asyncio.get_running_loop()
        gauges_at_s = loop.time()
        while True:
            await asyncio.sleep(FLUSH_S)
            await self._server.send(self._take_counts())
            if self._gauges_s and loop.time() >= gauges_at_s:
                gauges_at_s = loop.time() + self._gauges_s
                await self._send_gauges()

    def _take_counts(self) -> Iterator[bytes]:
        pushed, pulled, retention = self._pushed, self._pulled, self._retention
        self._pushed, self._pulled, self._retention = Counter(), Counter(), {}
        yield from (self._line(name, b"push:%d|c" % count) for name, count in pushed.items())
        yield from (self._line(name, b"pull:%d|c" % count) for name, count in pulled.items())
        for name, waits in retention.items():
            yield from (self._line(name, b"retention:%.2f|ms" % wait_ms) for wait_ms in waits)

    async def _send_gauges(self) -> None:
        async for block in self._turns.blocks(list(self._state().queues.values()), NODE):
            lines: list[bytes] = []
            for queue in block:
                memory = queue.store.body_bytes + MESSAGE_OVERHEAD_BYTES * len(queue)
                lines.append(self._line(queue.name, b"size:%d|g" % len(queue)))
                lines.append(self._line(queue.name, b"memory:%d|g" % memory))
            await self._server.send(lines)

    def _line(self, queue: bytes, rest: bytes) -> bytes:
        return b"%b.%b.%b" % (self._prefix, clean(queue), rest)
