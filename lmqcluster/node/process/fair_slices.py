"""Fair scheduling of long work: one slice per turn of the event loop in total, with clients in rotation.

A request that visits all queues yields after each slice. If each request got a slice per turn, a hundred of them would take a
hundred slices in every turn and delay replication. So they wait for slices here. A slice ends by time or by count, whichever
comes first, regardless of whether a client's socket is full.
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
"""Approximate duration of a slice."""
SLICE_ITEMS = 500
"""Maximum number of items of a slice."""
BLOCK = 50
"""Items between two reads of the clock in `FairSlices.blocks`."""
PIECE_BYTES = 64 * 1024
"""Approximate size of the pieces of `gathered`."""

T = TypeVar("T")


class FairSlices:
    """Grants slices to one waiter per turn of the event loop, with clients in rotation.

    Attributes:
        given_total: number of granted slices.
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
        """Yield the items one by one; wait for the client's next slice whenever one ends."""
        until_s, left = 0.0, 0
        for item in items:
            if not left or perf_counter() >= until_s:
                await self.take(client)
                until_s, left = perf_counter() + SLICE_S, SLICE_ITEMS
            left -= 1
            yield item

    async def blocks(self, items: Iterable[T], client: bytes) -> AsyncIterator[list[T]]:
        """Yield blocks of items, otherwise like `each`, for work that costs little per item."""
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
    """Join the short pieces of a long answer into pieces of about `PIECE_BYTES`."""
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
