"""Accepts the connections of one port, so that each is counted before anything is done for it.

asyncio's own servers tell of a connection only after its TLS handshake, and accept nothing for a second when descriptors run out.
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
from ..net.names import SocketAddress
from .gate import Gate
from .place import Ending, Place

__all__ = ["Listener"]

log = structlog.get_logger("lmq.ports")

BACKLOG = 1024
ACCEPTS_PER_TURN = 16
"""Others get their turn between. Fewer on a small port: a connection that makes room has its descriptor for a moment longer."""
LOOKUP_S = 30.0
"""How long a node waits for the address of the name that it is to listen on, without which it is of no use."""
PAUSE_S = 0.2
"""How long nothing is accepted after the system could not give a connection; one that was counted never meets that."""


_EVERYWHERE = (SocketAddress(socket.AF_INET, "0.0.0.0"), SocketAddress(socket.AF_INET6, "::", (0, 0)))


class Listener:
    """Listens on one address; `factory` makes the protocol for a place."""

    def __init__(
        self, gate: Gate, factory: Callable[[Place], asyncio.BaseProtocol], tls: Mapping[str, Any] | None = None
    ) -> None:
        """Prepare.

        Args:
            gate: the bounds.
            factory: called once for each connection; the protocol calls `Place.ended` when its connection is lost.
            tls: arguments of ``connect_accepted_socket`` for TLS; none for plain TCP.
        """
        self.gate = gate
        self._factory = factory
        self._tls = dict(tls or {})
        self._accepts = min(ACCEPTS_PER_TURN, max(1, gate.bounds.connections // 8))
        self._sockets: list[socket.socket] = []
        self._opening: set[asyncio.Task[None]] = set()
        self._resumption: asyncio.TimerHandle | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen on every address that the host has, on all of this machine's if it is empty; returns the port.

        Raises:
            OSError: it cannot be bound.
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
        """Accept nobody any more; connections that stand go on."""
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
            place = self.gate.enter(address)
            if place is None:
                accepted.close()
                continue
            accepted.setblocking(False)
            # Until there is a transport, which this ends too.
            place.ends_by(partial(_shut_down, accepted))
            task = asyncio.get_running_loop().create_task(self._open(accepted, place))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open(self, accepted: socket.socket, place: Place) -> None:
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            transport, _protocol = await asyncio.get_running_loop().connect_accepted_socket(
                partial(self._factory, place), accepted, **self._tls
            )
        except OSError as exc:
            if not place.is_over:
                place.note(Ending.HANDSHAKE, str(exc))
                place.ended()
            accepted.close()
            return
        if place.is_over:
            transport.abort()
        else:
            place.ends_by(transport.abort)

    def _pause(self, error: OSError) -> None:
        log.error("cannot accept connections", port=self.gate.port, reason=str(error), again_after_s=PAUSE_S)
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
