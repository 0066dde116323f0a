"""The simple queue, for asyncio."""

from __future__ import annotations

import asyncio

from ..aio.client import AsyncClient
from .base import deadline_of
from .consumption import ack_before_use, content_bytes
from .shared.errors import QueueEmpty

__all__ = ["SimpleDistributedQueue"]

_LEASE_S = 30.0


class SimpleDistributedQueue:
    """A queue of byte strings that the application takes one by one. It needs no start and no close."""

    def __init__(self, client: AsyncClient, name: str) -> None:
        self._client = client
        self.name = name

    async def offer(self, data: bytes) -> bool:
        """Store an element at the tail; return True."""
        await self._client.push(self.name, bytes(data))
        return True

    async def peek(self) -> bytes | None:
        """Return the head without removing it; None if all elements are leased or there is none."""
        # A pull and a put back, because only a pull respects the order of messages that were returned.
        message = await self._client.pull(self.name, 0, lease=_LEASE_S)
        if message is None:
            return None
        await message.put_back()
        return content_bytes(message)

    async def element(self) -> bytes:
        """Return the head without removing it, see `peek`.

        Raises:
            QueueEmpty: there is none.
        """
        return self._there(await self.peek())

    async def poll(self, timeout: float = 0) -> bytes | None:
        """Take the head; return None if there is none for `timeout` seconds."""
        return await self._take(deadline_of(timeout))

    async def remove(self) -> bytes:
        """Take the head.

        Raises:
            QueueEmpty: there is none.
        """
        return self._there(await self.poll())

    async def take(self) -> bytes:
        """Take the head and wait for it without limit."""
        return self._there(await self._take(None))

    async def _take(self, deadline: float | None) -> bytes | None:
        loop = asyncio.get_running_loop()
        while True:
            wait_s = None if deadline is None else max(0.0, deadline - loop.time())
            message = await self._client.pull(self.name, wait_s, lease=_LEASE_S)
            if message is None:
                return None
            if await ack_before_use(self._client, message):
                return content_bytes(message)

    def _there(self, data: bytes | None) -> bytes:
        if data is None:
            raise QueueEmpty(f"the queue {self.name!r} is empty")
        return data
