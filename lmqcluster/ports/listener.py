"""Accepts the connections of one port and counts each before it causes any work.

asyncio's servers report a connection only after its TLS handshake, and stop accepting for a second when descriptors run
out.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import structlog

from ..net.loop import find
from ..net.resolver import SocketAddress
from .connection_limiter import ConnectionLimiter, ConnectionSlot
from .ending import Ending

__all__ = ["Listener"]

log = structlog.get_logger("lmq.ports")

BACKLOG = 1024
ACCEPTS_PER_TURN = 16
"""Limited so that other tasks can run. A small port accepts fewer: a connection that is closed to make room keeps its
descriptor until the next turn.
"""
LOOKUP_S = 30.0
"""How long to wait for the address of the host to listen on."""
PAUSE_S = 0.2
"""How long accepting pauses after the system failed to accept a connection."""


_EVERYWHERE = (SocketAddress(socket.AF_INET, "0.0.0.0"), SocketAddress(socket.AF_INET6, "::", (0, 0)))


class Listener:
    """Listens on one address; `factory` makes the protocol of each connection."""

    def __init__(
        self,
        gate: ConnectionLimiter,
        factory: Callable[[ConnectionSlot], asyncio.BaseProtocol],
        tls: Mapping[str, Any] | None = None,
    ) -> None:
        """Set the limits and the protocol.

        Args:
            gate: the limits of the port.
            factory: called once for each connection; the protocol must call `ConnectionSlot.release` when its
                connection is lost.
            tls: TLS arguments for ``connect_accepted_socket``; None for plain TCP.
        """
        self.gate = gate
        self._factory = factory
        self._tls = dict(tls or {})
        self._accepts = min(ACCEPTS_PER_TURN, max(1, gate.bounds.connections // 8))
        self._sockets: list[socket.socket] = []
        self._opening: set[asyncio.Task[None]] = set()
        self._resumption: asyncio.TimerHandle | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen on every address of the host, on all of this machine if it is empty; return the port.

        Raises:
            OSError: an address cannot be bound.
        """
        loop = asyncio.get_running_loop()
        try:
            for address in await find(host, LOOKUP_S) if host else _EVERYWHERE:
                self._sockets.append(_bound(address.family, address.at(port)))
        except OSError as exc:
            self.close()
            raise OSError(
                exc.errno or errno.EADDRNOTAVAIL, f"cannot listen on {host}:{port}: {exc.strerror or exc}"
            ) from exc
        for one in self._sockets:
            loop.add_reader(one, self._accept, one)
        return int(self._sockets[0].getsockname()[1])

    def close(self) -> None:
        """Stop accepting; open connections stay open."""
        loop = asyncio.get_running_loop()
        if self._resumption is not None:
            self._resumption.cancel()
        for one in self._sockets:
            loop.remove_reader(one)
            one.close()
        self._sockets = []

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(self._accepts):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as exc:
                self._pause(exc)
                return
            slot = self.gate.enter(address)
            if slot is None:
                accepted.close()
                continue
            accepted.setblocking(False)
            # Used until the transport exists; shutting down the socket aborts the handshake too.
            slot.set_abort(partial(_shut_down, accepted))
            task = asyncio.get_running_loop().create_task(self._open(accepted, slot))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open(self, accepted: socket.socket, slot: ConnectionSlot) -> None:
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            transport, _protocol = await asyncio.get_running_loop().connect_accepted_socket(
                partial(self._factory, slot), accepted, **self._tls
            )
        except OSError as exc:
            if not slot.is_released:
                slot.note(Ending.HANDSHAKE, str(exc))
                slot.release()
            accepted.close()
            return
        if slot.is_released:
            transport.abort()
        else:
            slot.set_abort(transport.abort)

    def _pause(self, error: OSError) -> None:
        log.error("accepting connections failed", port=self.gate.port, reason=str(error), retry_after_s=PAUSE_S)
        loop = asyncio.get_running_loop()
        for one in self._sockets:
            loop.remove_reader(one)
        self._resumption = loop.call_later(PAUSE_S, self._resume)

    def _resume(self) -> None:
        for one in self._sockets:
            asyncio.get_running_loop().add_reader(one, self._accept, one)


def _shut_down(accepted: socket.socket) -> None:
    with contextlib.suppress(OSError):
        accepted.shutdown(socket.SHUT_RDWR)


def _bound(family: int, address: Any) -> socket.socket:
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.setblocking(False)
        one.bind(address)
        one.listen(BACKLOG)
    except OSError:
        one.close()
        raise
    return one
