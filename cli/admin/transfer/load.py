"""Puts load on a cluster through the clients, and measures rates and latencies."""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from lmqcluster import AsyncClient, Message
from lmqcluster.wire.errors import LmqError

__all__ = ["PHASES", "Bench", "Phase"]

DELETE_TIMEOUT_S: Final = 30.0
PHASES: Final = ("push", "pull", "ack", "push, one at a time")
_MILLISECOND: Final = 1e-3


@dataclass(frozen=True, slots=True)
class Phase:
    """The results of one phase.

    Attributes:
        name: one of `PHASES`.
        in_flight: number of concurrent requests.
        messages: number of answered requests.
        seconds: duration of the phase.
        p50_ms: median latency; `p99_ms`, `p999_ms` and `max_ms` likewise.
        refused: requests that failed or, for acks, arrived after the lease expired.
    """

    name: str
    in_flight: int
    messages: int
    seconds: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float
    refused: int

    @property
    def per_second(self) -> float:
        """Return the messages per second."""
        return self.messages / self.seconds if self.seconds else 0.0


class Bench:
    """One measurement in a temporary queue, which is deleted at the end in any case."""

    def __init__(
        self,
        clients: Sequence[AsyncClient],
        queue: str,
        *,
        size: int,
        in_flight: int,
        seconds: float,
        messages_max: int,
        stop: asyncio.Event,
        on_phase: Callable[[str], None],
    ) -> None:
        """Prepare a measurement.

        Args:
            clients: one for each node; requests are assigned to them in turn.
            queue: the queue's name, which must be unused.
            size: size of a message in bytes.
            in_flight: number of concurrent requests.
            seconds: duration of the push phase, and maximum duration of each other phase.
            messages_max: maximum number of messages to push.
            stop: ends the measurement when it is set.
            on_phase: called with the name of each phase when it begins.
        """
        self._clients = clients
        self._queue = queue
        self._body = b"x" * size
        self._in_flight = in_flight
        self._seconds = seconds
        self._messages_max = messages_max
        self._stop = stop
        self._on_phase = on_phase
        self._pulled: deque[Message] = deque()
        self.phases: list[Phase] = []

    async def run(self) -> None:
        """Run all phases, or end early when `stop` is set.

        Raises:
            LmqError: no request of a phase was answered.
        """
        async with self._temporary_queue():
            await self._phase("push", self._in_flight, self._messages_max, self._push)
            await self._phase("pull", self._in_flight, self._messages_so_far(), self._pull)
            await self._phase("ack", self._in_flight, len(self._pulled), self._ack)
            await self._phase("push, one at a time", 1, self._messages_max, self._push)

    @asynccontextmanager
    async def _temporary_queue(self) -> AsyncIterator[None]:
        # Leases must not expire during the measurement, and an ack must not meet a redelivery.
        await self._clients[0].update_props(self._queue, {"timeout": 600, "accum": 0})
        try:
            yield
        finally:
            # Runs after Ctrl-C too: a cancelled task cleans up first.
            await asyncio.wait_for(self._clients[0].delete(self._queue), DELETE_TIMEOUT_S)

    def _messages_so_far(self) -> int:
        return sum(phase.messages for phase in self.phases)

    async def _phase(
        self, name: str, in_flight: int, count: int, request: Callable[[AsyncClient], Awaitable[bool]]
    ) -> None:
        if self._stop.is_set() or count == 0:
            return
        self._on_phase(name)
        work = _Work(request, count, time.perf_counter() + self._seconds, self._stop)
        clients = itertools.cycle(self._clients)
        begun = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(min(in_flight, count)):
                group.create_task(work.repeat(next(clients)))
        seconds = time.perf_counter() - begun
        if work.error is not None and not work.took:
            raise work.error
        took = sorted(work.took) or [0.0]
        p50, p99, p999, most = (_quantile(took, share) / _MILLISECOND for share in (0.5, 0.99, 0.999, 1.0))
        self.phases.append(Phase(name, in_flight, len(work.took), seconds, p50, p99, p999, most, work.refused))

    async def _push(self, client: AsyncClient) -> bool:
        await client.push(self._queue, self._body)
        return True

    async def _pull(self, client: AsyncClient) -> bool:
        message = await client.pull(self._queue, 0)
        if message is None:
            return False
        self._pulled.append(message)
        return True

    async def _ack(self, _client: AsyncClient) -> bool:
        return await self._pulled.popleft().ack()


class _Work:
    """The requests of one phase, shared by several tasks."""

    def __init__(
        self, request: Callable[[AsyncClient], Awaitable[bool]], count: int, deadline: float, stop: asyncio.Event
    ) -> None:
        self._request = request
        self._left = count
        self._deadline = deadline
        self._stop = stop
        self.took: list[float] = []
        self.refused = 0
        self.error: LmqError | None = None

    async def repeat(self, client: AsyncClient) -> None:
        """Send requests one after another until all are sent or the time is up."""
        while self._left > 0 and not self._stop.is_set():
            begun = time.perf_counter()
            if begun >= self._deadline:
                return
            self._left -= 1
            try:
                done = await self._request(client)
            except LmqError as exc:
                self.refused += 1
                self.error = exc
                if not exc.retryable:
                    return
                continue
            if done:
                self.took.append(time.perf_counter() - begun)
            else:
                self.refused += 1


def _quantile(ordered: list[float], share: float) -> float:
    """Return the smallest value that is not exceeded by at least this share of the values."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
