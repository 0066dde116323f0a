"""A client of a port: an IPv4 address, or the /64 prefix of an IPv6 address."""

from __future__ import annotations

import asyncio
from collections import deque
from ipaddress import IPv6Address

__all__ = ["Client", "client_of"]

BURST_S = 1.0
"""Size of a token bucket, in seconds of its rate: an idle client may send this much at once."""


WRONG_SECRETS_PER_S = 20
"""Unknown secrets that a client may present a second."""


class TokenBucket:
    """A token bucket: `rate` tokens a second, at most `BURST_S` seconds' worth."""

    __slots__ = ("_at_s", "_left", "_rate")

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._left = rate * BURST_S
        self._at_s = 0.0

    def wait_s(self, now_s: float) -> float:
        """Return 0 if a token is available, else the seconds until one is."""
        rate = self._rate
        self._left = min(rate * BURST_S, self._left + (now_s - self._at_s) * rate)
        self._at_s = now_s
        return 0.0 if self._left >= 1.0 else (1.0 - self._left) / rate

    def take(self, now_s: float) -> float:
        """Take a token if one is available; return the same as `wait_s`."""
        wait_s = self.wait_s(now_s)
        if not wait_s:
            self._left -= 1.0
        return wait_s


class Client:
    """The state of one client on one port.

    Attributes:
        name: the address or prefix, for people.
        connections: open connections.
        held_bytes: memory held for its authenticated connections.
        requests: limits its requests.
        wrong_secrets: limits the unknown secrets that it presents.
        last_wrong: digest of the last unknown secret; presenting it again is not counted as another guess.
    """

    __slots__ = (
        "_queue",
        "connections",
        "held_bytes",
        "last_wrong",
        "name",
        "requests",
        "wrong_secrets",
    )

    def __init__(self, name: str, rate: int) -> None:
        self.name = name
        self.connections = 0
        self.held_bytes = 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self.requests = TokenBucket(rate)
        self.wrong_secrets = TokenBucket(WRONG_SECRETS_PER_S)
        self.last_wrong = b""

    async def wait_for_release(self) -> None:
        """Wait until memory held for this client is released. Waiters are woken one at a time, in order."""
        waiter = asyncio.get_running_loop().create_future()
        self._queue.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            # Pass the turn of a cancelled waiter on to the next one.
            self.wake()
            raise

    def wake(self) -> None:
        """Wake the first waiter, after memory was released."""
        while self._queue:
            waiter = self._queue.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return


def client_of(address: object) -> str:
    """Return the name of the client at a socket address. All addresses of an IPv6 /64 prefix are one client."""
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
