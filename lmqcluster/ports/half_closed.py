"""Clients that have shut their sending side: they wait for their answers, or are gone, which their last segment does not tell.

A machine whose client is gone answers the next bytes with a reset. So a message for such a client is taken, or acknowledged,
only when the client's machine has acknowledged bytes that were sent after the end of the client's.
"""

from __future__ import annotations

import array
import asyncio
import fcntl
import socket
import termios
from typing import Final

__all__ = ["HALF_CLOSED_S", "has_taken_all", "may_be_half_closed"]

HALF_CLOSED_S: Final = 600.0
"""How long a client that sends no more may wait for its answers."""
_ACK_S: Final = 10.0
_LOOK_S, _LOOK_S_MAX = 0.001, 0.25
_TCP_CLOSE: Final = 7


def may_be_half_closed(transport: asyncio.BaseTransport) -> bool:
    """Whether the client may still read although it sends no more. TLS ends both directions together."""
    return transport.get_extra_info("sslcontext") is None and transport.get_extra_info("socket") is not None


async def has_taken_all(transport: asyncio.Transport) -> bool:
    """Wait until the client's machine has acknowledged all that was written; False if it is gone, or silent for ten seconds."""
    sock = transport.get_extra_info("socket")
    loop = asyncio.get_running_loop()
    ends_s, look_s = loop.time() + _ACK_S, _LOOK_S
    while not transport.is_closing():
        if not transport.get_write_buffer_size() and not _unacknowledged_bytes(sock):
            # A reset drops them too, so the state is asked for last.
            return not _is_reset(sock)
        if _is_reset(sock) or loop.time() > ends_s:
            return False
        await asyncio.sleep(look_s)
        look_s = min(2 * look_s, _LOOK_S_MAX)
    return False


def _unacknowledged_bytes(sock: socket.socket) -> int:
    size = array.array("i", [0])
    fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, size)
    return size[0]


def _is_reset(sock: socket.socket) -> bool:
    if sock.family == socket.AF_UNIX:
        return False
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[0] == _TCP_CLOSE
