"""Half-closed connections: the client has closed its sending side, and either waits for answers or no longer exists.

A FIN does not distinguish the two cases. If the client no longer exists, its host answers the next bytes with a reset.
So a message for such a client is taken or acknowledged only after its host has acknowledged bytes sent after the FIN.
If the client ends later, its host sends a reset. The event loop does not report that reset, because it no longer reads
from the connection, so the connection is checked for it while the client waits.
"""

from __future__ import annotations

import array
import asyncio
import fcntl
import math
import socket
import termios
from typing import Final

from .front_ends.relayed_transport import RelayedTransport

__all__ = ["HALF_CLOSED_S", "is_gone", "may_be_half_closed", "wait_for_acknowledgement", "wait_for_reset"]

HALF_CLOSED_S: Final = 600.0
"""How long a half-closed client may wait for its answers."""
_ACK_S: Final = 10.0
_LOOK_S, _LOOK_S_MAX = 0.001, 0.25
_TCP_CLOSE: Final = 7
_RESET_LOOK_S = 1.0
"""How often a waiting client is checked. A client may have thousands of connections, and a check takes a few us."""


def may_be_half_closed(transport: asyncio.BaseTransport) -> bool:
    """Return whether the client may still read after closing its sending side. TLS closes both directions together."""
    if transport.get_extra_info("sslcontext") is not None:
        return False
    return isinstance(transport, RelayedTransport) or transport.get_extra_info("socket") is not None


async def wait_for_acknowledgement(transport: asyncio.Transport) -> bool:
    """Wait until the client's host has acknowledged everything written.

    Returns False if the connection was reset, or if there was no acknowledgement for ten seconds.
    """
    if isinstance(transport, RelayedTransport):
        return await transport.wait_for_acknowledgement()
    sock = transport.get_extra_info("socket")
    loop = asyncio.get_running_loop()
    ends_s, look_s = loop.time() + _ACK_S, _LOOK_S
    while not is_gone(transport):
        if not transport.get_write_buffer_size() and not _unacknowledged_bytes(sock):
            # A reset empties the buffers too, so check for it last.
            return not is_gone(transport)
        if loop.time() > ends_s:
            return False
        await asyncio.sleep(look_s)
        look_s = min(2 * look_s, _LOOK_S_MAX)
    return False


async def wait_for_reset(transport: asyncio.Transport, timeout_s: float) -> None:
    """Wait until the client's host has reset the connection, at most for `timeout_s` seconds."""
    for _ in range(math.ceil(timeout_s / _RESET_LOOK_S)):
        if is_gone(transport):
            return
        await asyncio.sleep(_RESET_LOOK_S)


def is_gone(transport: asyncio.BaseTransport) -> bool:
    """Return whether the connection is closing or the client's host has reset it.

    The end of a Unix socket's client cannot be detected. The front end of a relayed connection reports it.
    """
    if transport.is_closing():
        return True
    if isinstance(transport, RelayedTransport):
        return False
    sock = transport.get_extra_info("socket")
    if sock.family == socket.AF_UNIX:
        return False
    return bool(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[0] == _TCP_CLOSE)


def _unacknowledged_bytes(sock: socket.socket) -> int:
    size = array.array("i", [0])
    fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, size)
    return size[0]
