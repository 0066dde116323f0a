"""One client as a port sees it: an IPv4 address, or the 64 leading bits of an IPv6 address."""

from __future__ import annotations

import asyncio
from collections import deque
from ipaddress import IPv6Address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .place import Place

__all__ = ["Client", "client_of"]

BURST_S = 1.0
"""A client that was quiet may catch up on so many seconds."""


class Client:
    """What one client has on one port.

    Attributes:
        name: the address, or the prefix, as people write it.
        connections: how many are open.
        held_bytes: what is held for those of them that are known.
        strangers: its connections on which it has not said who it is, the oldest first.
    """

    __slots__ = ("_at_s", "_left", "_queue", "_rate", "connections", "held_bytes", "name", "strangers")

    def __init__(self, name: str, rate: int) -> None:
        self.name = name
        self.connections = 0
        self.held_bytes = 0
        self.strangers: dict[Place, None] = {}
        self._queue: deque[asyncio.Future[None]] = deque()
        self._rate = rate
        self._left = rate * BURST_S
        self._at_s = 0.0

    def take(self, now_s: float) -> float:
        """Use up one request; returns 0, or the seconds after which it may be tried again."""
        rate = self._rate
        left = min(rate * BURST_S, self._left + (now_s - self._at_s) * rate)
        self._at_s = now_s
        if left < 1.0:
            self._left = left
            return (1.0 - left) / rate
        self._left = left - 1.0
        return 0.0

    async def freed(self) -> None:
        """Wait until something that was held for this client is given back; those who wait are woken one after the other."""
        waiter = asyncio.get_running_loop().create_future()
        self._queue.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            # The turn of one that is gone is the next one's.
            self.wake()
            raise

    def wake(self) -> None:
        """Something was given back."""
        while self._queue:
            waiter = self._queue.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return


def client_of(address: object) -> str:
    """Whose connection this is, by its address as sockets give it. Whoever has an IPv6 address has 2^64 of them."""
    host = str(address[0]) if isinstance(address, tuple) and address else ""
    if ":" not in host:
        return host
    try:
        found = IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return f"{IPv6Address(found.packed[:8] + bytes(8))}/64"
