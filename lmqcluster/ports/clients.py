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


WRONG_SECRETS_PER_S = 20
"""So many secrets that are not known may a client show."""


class Bucket:
    """So much of something a second, and after a pause as much at once as in `BURST_S`."""

    __slots__ = ("_at_s", "_left", "_rate")

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._left = rate * BURST_S
        self._at_s = 0.0

    def wait_s(self, now_s: float) -> float:
        """Return 0 if one can be taken, or the seconds after which it can."""
        rate = self._rate
        self._left = min(rate * BURST_S, self._left + (now_s - self._at_s) * rate)
        self._at_s = now_s
        return 0.0 if self._left >= 1.0 else (1.0 - self._left) / rate

    def take(self, now_s: float) -> float:
        """Take one if that can be; return as `wait_s`."""
        wait_s = self.wait_s(now_s)
        if not wait_s:
            self._left -= 1.0
        return wait_s


class Client:
    """What one client has on one port.

    Attributes:
        name: the address, or the prefix, as people write it.
        connections: how many are open.
        held_bytes: what is held for those of them that are known.
        strangers: its connections on which it has not said who it is, the oldest first.
        requests: what it may ask for.
        wrong_secrets: how often it may show a secret that is not known.
        last_wrong: digest of the last such secret; to show it again is no other guess.
    """

    __slots__ = ("_queue", "connections", "held_bytes", "last_wrong", "name", "requests", "strangers", "wrong_secrets")

    def __init__(self, name: str, rate: int) -> None:
        self.name = name
        self.connections = 0
        self.held_bytes = 0
        self.strangers: dict[Place, None] = {}
        self._queue: deque[asyncio.Future[None]] = deque()
        self.requests = Bucket(rate)
        self.wrong_secrets = Bucket(WRONG_SECRETS_PER_S)
        self.last_wrong = b""

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
    """Whose connection this is, by its address as sockets give it. The holder of an IPv6 address has 2^64 of them."""
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
