"""Puts load on a cluster through the clients and measures how it takes it: rates, and how long single requests take."""

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
    """What one phase has shown.

    Attributes:
        name: one of `PHASES`.
        in_flight: how many requests were under way at a time.
        messages: how many were answered.
        seconds: how long it took.
        p50_ms: half of the requests took at most so long; `p99_ms`, `p999_ms` and `max_ms` likewise.
        refused: how many requests got an error or, for acks, came after the end of the lease.
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
        """Messages a second."""
        return self.messages / self.seconds if self.seconds else 0.0


class Bench:
    """One measurement in a queue of its own, which is deleted at the end whatever happens."""

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
            clients: one for each node; requests are dealt to them in turn.
            queue: the queue's name, which nobody else may use.
            size: bytes of a message.
            in_flight: how many requests are under way at a time.
            seconds: how long to push, and how long each other phase takes at most.
            messages_max: how many messages to push at most.
            stop: ends the measurement when it is set.
            on_phase: called with the name of each phase as it begins.
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
        """Run all phases, or end early when told to stop.

        Raises:
            LmqError: the cluster did not answer a single request of a phase.
        """
        async with self._queue_of_its_own():
            await self._phase("push", self._in_flight, self._messages_max, self._push)
            await self._phase("pull", self._in_flight, self._messages_so_far(), self._pull)
            await self._phase("ack", self._in_flight, len(self._pulled), self._ack)
            await self._phase("push, one at a time", 1, self._messages_max, self._push)

    @asynccontextmanager
    async def _queue_of_its_own(self) -> AsyncIterator[None]:
        # A lease must not end while it is measured, and an ack must not meet a redelivery.
        await self._clients[0].update_props(self._queue, {"timeout": 600, "accum": 0})
        try:
            yield
        finally:
            # Also after Ctrl-C: the first thing that a cancelled task does is to clean up.
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
    """The requests of one phase, which several tasks share out among themselves."""

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
        """Send one request after the other until all are sent or the time is over."""
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
    """The smallest value that at least this share of the values does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
