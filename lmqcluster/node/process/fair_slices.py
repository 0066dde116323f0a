"""Long work in slices: one slice in each turn of the event loop, whoever it is for, and clients by turns.

Whoever goes through all queues gives way after each slice. Were that all, a hundred such requests at a time would take a hundred
slices in every turn, and replication would wait for them. So they stand in line here. A slice ends by time or by count, whichever
comes first; it does not matter whether a client's socket is full.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable
from itertools import islice
from time import perf_counter
from typing import TypeVar

__all__ = ["SLICE_ITEMS", "SLICE_S", "FairSlices", "gathered"]

SLICE_S = 0.001
"""How long a slice takes, about."""
SLICE_ITEMS = 500
"""How many items a slice has at most."""
BLOCK = 50
"""Items between two looks at the clock in `FairSlices.blocks`."""
PIECE_BYTES = 64 * 1024
"""How long the pieces of `gathered` are, about."""

T = TypeVar("T")


class FairSlices:
    """Hands out slices, to one waiter in each turn of the loop, to clients in rotation.

    Attributes:
        given_total: how many slices were handed out.
    """

    def __init__(self) -> None:
        self.given_total = 0
        self._lines: OrderedDict[bytes, deque[asyncio.Future[None]]] = OrderedDict()
        self._scheduled = False

    async def take(self, client: bytes) -> None:
        """Wait for the next slice of a client."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._lines.setdefault(client, deque()).append(future)
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._give, loop)
        await future

    async def each(self, items: Iterable[T], client: bytes) -> AsyncIterator[T]:
        """The items one by one, with a pause for others whenever the client's slice is over."""
        until_s, left = 0.0, 0
        for item in items:
            if not left or perf_counter() >= until_s:
                await self.take(client)
                until_s, left = perf_counter() + SLICE_S, SLICE_ITEMS
            left -= 1
            yield item

    async def blocks(self, items: Iterable[T], client: bytes) -> AsyncIterator[list[T]]:
        """As `each`, some items at a time, for work that costs little for each."""
        until_s, left, source = 0.0, 0, iter(items)
        while block := list(islice(source, BLOCK)):
            if left <= 0 or perf_counter() >= until_s:
                await self.take(client)
                until_s, left = perf_counter() + SLICE_S, SLICE_ITEMS
            left -= len(block)
            yield block

    def _give(self, loop: asyncio.AbstractEventLoop) -> None:
        self._scheduled = False
        while self._lines:
            client, line = self._lines.popitem(last=False)
            future = line.popleft()
            if line:
                self._lines[client] = line
            if not future.done():
                future.set_result(None)
                self.given_total += 1
                break
        if self._lines:
            self._scheduled = True
            loop.call_soon(self._give, loop)


async def gathered(pieces: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    """Put the short pieces of a long answer together: each has about `PIECE_BYTES`."""
    held: list[bytes] = []
    size = 0
    async for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= PIECE_BYTES:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)
