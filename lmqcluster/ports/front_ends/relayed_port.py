"""A port whose connections front-end processes accept."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence

from ..connection_limiter import ConnectionLimiter, ConnectionSlot

__all__ = ["RelayedPort"]


class RelayedPort:
    """A port whose connections front-end processes accept.

    Attributes:
        gate: the limits of the port.
        factory: makes the protocol of each connection.
        is_tls: whether its clients use TLS.
        sockets: the listening sockets, which all front ends share: the one that is free first accepts. Empty once the port
            is closed.
    """

    def __init__(
        self,
        gate: ConnectionLimiter,
        factory: Callable[[ConnectionSlot], asyncio.BaseProtocol],
        sockets: Sequence[socket.socket],
        closed: Callable[[], None],
        *,
        is_tls: bool,
    ) -> None:
        """Create a port; `closed` is called when it is closed."""
        self.gate = gate
        self.factory = factory
        self.sockets = sockets
        self.is_tls = is_tls
        self._closed = closed

    def close(self) -> None:
        """Stop accepting; open connections stay open."""
        for listening in self.sockets:
            listening.close()
        self.sockets = ()
        self._closed()
