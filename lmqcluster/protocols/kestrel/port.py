"""A port for Kestrel's clients: accepts connections, ends slow and idle ones, stops gracefully."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from ...node.access.tls import handshake
from ...node.node import Node
from ...ports import ConnectionSlot, Ending, Listener
from ...wire.address import Address
from .connection import KestrelConnection
from .port_context import PortContext
from .status import ServerStatus

__all__ = ["Factory", "KestrelPort"]

log = structlog.get_logger("lmq.kestrel")

SWEEP_S = 0.5
Factory = Callable[[PortContext, ConnectionSlot], KestrelConnection]


class KestrelPort:
    """Listener on one address.

    Attributes:
        port: the bound port, once started.
    """

    def __init__(self, protocol: str, node: Node, address: Address, factory: Factory, status: ServerStatus) -> None:
        self.host, self.port = address.host, address.port
        self._context = PortContext(protocol, node, status)
        self._node = node
        self._factory = factory
        self._is_loopback = address.is_loopback
        self._connections: set[KestrelConnection] = set()
        self._listener: Listener | None = None
        self._timer: asyncio.TimerHandle | None = None
        node.membership.on_leave.append(self._end_connections)
        node.access.on_change.append(self._review)
        node.open_reads.on_lost(self._reads_lost)
        node.observed.connections[protocol] = lambda: len(self._connections)

    async def start(self) -> None:
        """Start listening.

        Raises:
            OSError: the address cannot be bound.
        """
        context = self._context
        if context.serves_all and not self._is_loopback:
            served_as = (
                f"with the role of the token {context.served_as!r}"
                if context.served_as
                else "as long as the cluster has no tokens"
            )
            log.warning(
                "port serves everybody who reaches it",
                protocol=context.protocol,
                reason=f"kestrel_insecure, {served_as}",
            )
        tls = None if self._is_loopback or context.serves_all else handshake(self._node.tls)
        self._listener = Listener(self._node.gates.kestrel[context.protocol], self._connect, tls, self._node.front_ends)
        self.port = await self._listener.start(self.host, self.port)
        self._sweep()

    def retire(self) -> None:
        """Stop accepting connections."""
        if self._listener is not None:
            self._listener.close()

    async def stop(self, grace_s: float) -> None:
        """Wait up to `grace_s` seconds for answers to requests in progress, then close the connections."""
        busy = [one.idle() for one in self._connections]
        if busy:
            _, pending = await asyncio.wait([asyncio.ensure_future(one) for one in busy], timeout=grace_s)
            for task in pending:
                task.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._end_connections()

    def _connect(self, place: ConnectionSlot) -> KestrelConnection:
        connection = self._factory(self._context, place)
        connection.on_made = self._connected
        connection.on_lost = self._connections.discard
        return connection

    def _connected(self, connection: KestrelConnection) -> None:
        self._connections.add(connection)
        self._context.counts.connections += 1

    def _end_connections(self) -> None:
        for connection in list(self._connections):
            connection.close()

    def _review(self) -> None:
        for connection in list(self._connections):
            if connection.queues is not None and connection.queues.principal.is_revoked:
                log.info("connection closed", protocol=self._context.protocol, reason="token revoked or expired")
                connection.close()

    def _reads_lost(self) -> None:
        """Close connections with open reads: other clients hold those messages now, so none may be confirmed."""
        for connection in list(self._connections):
            if connection.held:
                connection.close()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(SWEEP_S, self._sweep)
        now_s, config = loop.time(), self._node.config
        for connection in list(self._connections):
            if connection.leaves_unread(now_s):
                connection.place.note(Ending.TOO_SLOW, "answers were not read in time")
                connection.place.abort()
            elif connection.is_stalled(now_s, config.request_seconds_max):
                connection.place.note(Ending.TOO_SLOW, "a request was not completed in time")
                connection.close()
            elif connection.is_idle(now_s, config.idle_seconds_max):
                connection.place.note(Ending.IDLE)
                connection.close()
