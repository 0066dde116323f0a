"""Probes that detect a client whose machine has vanished."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

__all__ = ["keep_alive"]

_OPTIONS: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))


def keep_alive(transport: asyncio.BaseTransport) -> None:
    """End the connection within about a minute if the client's machine vanishes.

    Such a client must not keep its waiting pulls and open reads forever. A relayed connection has no socket here; its
    front-end process has called this function.
    """
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, seconds in _OPTIONS:
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)
