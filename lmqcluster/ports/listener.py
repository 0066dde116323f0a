"""Accepts the connections of one port and counts each before it causes any work."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ..net.loop import find
from ..net.resolver import SocketAddress
from .acceptor import Acceptor
from .connection_limiter import ConnectionLimiter, ConnectionSlot
from .ending import Ending
from .front_ends.processes import FrontEnds
from .front_ends.relayed_port import RelayedPort

__all__ = ["ListenError", "Listener"]

BACKLOG = 1024
ACCEPTS_PER_TURN = 16
"""Limited so that other tasks can run. A small port accepts fewer: a connection that is closed to make room keeps its
descriptor until the next turn.
"""
LOOKUP_S = 30.0
"""How long to wait for the address of the host to listen on."""

_EVERYWHERE = (SocketAddress(socket.AF_INET, "0.0.0.0"), SocketAddress(socket.AF_INET6, "::", (0, 0)))


class ListenError(OSError):
    """A port that cannot listen on its address."""


class Listener:
    """Listens on one address; `factory` makes the protocol of each connection."""

    def __init__(
        self,
        gate: ConnectionLimiter,
        factory: Callable[[ConnectionSlot], asyncio.BaseProtocol],
        tls: Mapping[str, Any] | None = None,
        front_ends: FrontEnds | None = None,
    ) -> None:
        """Set the limits and the protocol.

        Args:
            gate: the limits of the port.
            factory: called once for each connection; the protocol must call `ConnectionSlot.release` when its
                connection is lost.
            tls: TLS arguments for ``connect_accepted_socket``; None for plain TCP.
            front_ends: processes that accept the connections and relay them; None to accept them here.
        """
        self.gate = gate
        self._factory = factory
        self._tls = dict(tls or {})
        self._accepts = min(ACCEPTS_PER_TURN, max(1, gate.bounds.connections // 8))
        self._opening: set[asyncio.Task[None]] = set()
        self._front_ends = front_ends
        self._acceptor: Acceptor | RelayedPort | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen on every address of the host, on all of this machine if it is empty; return the port.

        Raises:
            ListenError: an address cannot be bound.
        """
        sockets: list[socket.socket] = []
        try:
            for address in await find(host, LOOKUP_S) if host else _EVERYWHERE:
                sockets.append(_bound(address.family, address.at(port)))  # noqa: PERF401  closed if a later one fails
        except OSError as exc:
            for one in sockets:
                one.close()
            raise ListenError(
                exc.errno or errno.EADDRNOTAVAIL, f"cannot listen on {host}:{port}: {exc.strerror or exc}"
            ) from exc
        number = int(sockets[0].getsockname()[1])
        if self._front_ends is None:
            self._acceptor = Acceptor(self.gate.port, sockets, self._accepts, self._accepted)
        else:
            self._acceptor = self._front_ends.relay(self.gate, self._factory, sockets, is_tls=bool(self._tls))
        return number

    def close(self) -> None:
        """Stop accepting; open connections stay open."""
        if self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None

    def _accepted(self, accepted: socket.socket, address: object) -> None:
        slot = self.gate.enter(address)
        if slot is None:
            accepted.close()
            return
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
