"""The listener: accepts connections, decides what they may call, and ends stalled and idle ones."""

from __future__ import annotations

import asyncio

import structlog

from ...node.access.tls import handshake
from ...ports import ConnectionSlot, Ending, Listener
from .connection.connection import Connection
from .connection.port_context import PortContext
from .methods.permissions import guarded
from .methods.request_log import logged
from .methods.table import METHODS
from .served_node import ServedNode

__all__ = ["RpcPort"]

log = structlog.get_logger("lmq.rpc")

PARTIAL_S_MAX = 5.0
SWEEP_S = 0.5


class RpcPort:
    """MessagePack-RPC on one address.

    Attributes:
        port: the bound port, once started.
        gate: the limits on the port's connections.
    """

    def __init__(self, node: ServedNode, host: str, port: int) -> None:
        self.node = node
        self.host = host
        self.port = port
        config = node.config
        self.gate = node.gates.rpc
        is_logged = config.request_log == "on"
        self._port_context = PortContext(node, may_repeat=not is_logged and not self.gate.bounds.requests_per_s)
        self._connections: set[Connection] = set()
        self._methods = logged(METHODS) if is_logged else METHODS
        self._guarded = logged(guarded(METHODS)) if is_logged else guarded(METHODS)
        self._listener: Listener | None = None
        node.membership.on_leave.append(self._end_connections)
        node.access.on_change.append(self._review)
        node.observed.connections["msgpack_rpc"] = lambda: len(self._connections)
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Start listening.

        Raises:
            OSError: the address cannot be bound.
        """
        self._listener = Listener(self.gate, self.connect, handshake(self.node.tls), self.node.front_ends)
        self.port = await self._listener.start(self.host, self.port)
        self._sweep()

    def connect(self, place: ConnectionSlot) -> Connection:
        """Return the protocol of an accepted connection."""
        connection = Connection(self._port_context, place)
        connection.on_made = self._connected
        connection.on_lost = self._connections.discard
        return connection

    def retire(self) -> None:
        """Stop accepting connections. Requests are still read and refused, because an error tells a client more than silence."""
        if self._listener is not None:
            self._listener.close()

    async def stop(self, grace_s: float) -> None:
        """Wait up to `grace_s` seconds for answers to requests in flight, then close the connections."""
        await self.node.service.sender.proposer.drained(grace_s)
        if self._timer is not None:
            self._timer.cancel()
        self._port_context.close()
        self._end_connections()

    def _end_connections(self) -> None:
        for connection in list(self._connections):
            connection.close()

    def _connected(self, connection: Connection) -> None:
        self._connections.add(connection)
        self._admit(connection)

    def _admit(self, connection: Connection) -> None:
        anonymous = self.node.access.anonymous
        if anonymous is not None and connection.is_local and self.node.access.outside is None:
            connection.admit(anonymous, self._methods)
        else:
            connection.admit(None, self._guarded)

    def _review(self) -> None:
        """End the connections whose tokens were revoked, including their waiting pulls."""
        for connection in list(self._connections):
            if connection.principal is None:
                self._admit(connection)
            elif connection.principal.is_revoked:
                log.info("connection closed", peer=connection.peer(), reason="token revoked or expired")
                connection.expel()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(SWEEP_S, self._sweep)
        now_s, config = loop.time(), self.node.config
        for connection in list(self._connections):
            if connection.place.held_bytes:
                connection.account()
            if connection.leaves_unread(now_s):
                connection.place.note(Ending.TOO_SLOW, "responses were not read in time")
                connection.place.abort()
            elif connection.is_stalled(now_s, PARTIAL_S_MAX, config.request_seconds_max):
                connection.place.note(Ending.TOO_SLOW, "a request was not completed in time")
                connection.close()
            elif connection.is_idle(now_s, config.idle_seconds_max):
                connection.place.note(Ending.IDLE)
                connection.close()
