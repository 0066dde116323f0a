"""A TCP balancer in front of nodes that loses answers: it closes connections when an answer arrives, or while one is made."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from .cluster import ports
from .server_thread import ServerThread

__all__ = ["LossyBalancer"]

CHUNK_BYTES = 64 * 1024
LOST_ANSWERS = 0.02
HANG_UPS = 0.02
HANG_UP_EXPONENT = (-4.0, 0.5)
"""Clients hang up between 0.1 ms and 3 s after a request, mostly while its answer is made."""


class LossyBalancer:
    """Carries each connection to the next target that can be reached, in its own thread.

    Attributes:
        address: where clients connect.
        cuts: connections that it has closed, by reason.
    """

    def __init__(self, targets: Sequence[str], seed: int) -> None:
        self.address = f"127.0.0.1:{ports.take()}"
        self.cuts: Counter[str] = Counter()
        self._targets = list(targets)
        self._rng = random.Random(seed)
        self._server = ServerThread({self.address: self._accepted})

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.__exit__(kind, value, trace)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far = await self._connect()
        try:
            await asyncio.gather(self._requests(reader, far), self._answers(far_reader, writer))
        finally:
            far.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the next target, or to one after it if that is down."""
        for _ in self._targets:
            self._targets.append(self._targets.pop(0))
            host, port = self._targets[0].rsplit(":", 1)
            try:
                return await asyncio.open_connection(host, int(port))
            except OSError:
                self.cuts["refused"] += 1
        raise ConnectionRefusedError("no target can be reached")

    async def _requests(self, reader: asyncio.StreamReader, far: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_BYTES):
            far.write(data)
            if self._rng.random() < HANG_UPS:
                await far.drain()
                await asyncio.sleep(10 ** self._rng.uniform(*HANG_UP_EXPONENT))
                self._cut("hang-ups")
        raise ConnectionAbortedError("the client has closed")

    async def _answers(self, far_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await far_reader.read(CHUNK_BYTES):
            if self._rng.random() < LOST_ANSWERS:
                self._cut("lost answers")
            writer.write(data)
        raise ConnectionAbortedError("the node has closed")

    def _cut(self, reason: str) -> None:
        self.cuts[reason] += 1
        raise ConnectionAbortedError(reason)
