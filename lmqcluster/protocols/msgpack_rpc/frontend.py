"""The listening side: accepts connections, ends idle half-sent requests, and holds clients back when the node is full."""

from __future__ import annotations

import asyncio

import structlog

from ...node.node import Node
from .connection import Connection
from .methods import METHODS
from .request_log import logged

__all__ = ["RpcFrontEnd"]

log = structlog.get_logger("lmq.rpc")

PARTIAL_S_MAX = 5.0
SWEEP_S = 0.5
HOLD_S = 0.005
CONNECTIONS_MAX = 10_000


class RpcFrontEnd:
    """MessagePack-RPC on one address.

    Attributes:
        port: the bound port, once started.
        partial_bytes: bytes of unfinished large requests; connections keep it.
    """

    def __init__(self, node: Node, host: str, port: int) -> None:
        self.node = node
        self.host = host
        self.port = port
        self.partial_bytes = 0
        self._connections: set[Connection] = set()
        self._held: set[Connection] = set()
        self._server: asyncio.Server | None = None
        node.on_leave.append(self._end_connections)
        node.metrics.connections["msgpack_rpc"] = lambda: len(self._connections)
        self._timer: asyncio.TimerHandle | None = None
        self._hold_timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address cannot be bound.
        """
        loop = asyncio.get_running_loop()
        methods = logged(METHODS) if self.node.config.request_log == "on" else METHODS
        self._server = await loop.create_server(lambda: Connection(self, methods), self.host, self.port, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]
        self._sweep()

    def retire(self) -> None:
        """Accept nobody any more. Requests are still read: the node refuses them, which tells a client more than silence."""
        if self._server is not None:
            self._server.close()

    async def stop(self, grace_s: float) -> None:
        """Let requests in flight be answered for up to `grace_s`, then close the connections."""
        await self.node.service.proposer.drained(grace_s)
        for timer in (self._timer, self._hold_timer):
            if timer is not None:
                timer.cancel()
        for connection in list(self._connections):
            connection.close()

    def _end_connections(self) -> None:
        for connection in list(self._connections):
            connection.close()

    def connected(self, connection: Connection) -> None:
        """A client connected."""
        self._connections.add(connection)
        if len(self._connections) > CONNECTIONS_MAX:
            log.warning("too many connections, refusing one", limit=CONNECTIONS_MAX)
            connection.close()

    def disconnected(self, connection: Connection) -> None:
        """A client is gone."""
        self._connections.discard(connection)
        self._held.discard(connection)

    def hold(self, connection: Connection) -> None:
        """Read no more from this client until the node has worked off what is pending."""
        connection.pause_reading()
        self._held.add(connection)
        if self._hold_timer is None:
            self._hold_timer = asyncio.get_running_loop().call_later(HOLD_S, self._release)

    def _release(self) -> None:
        self._hold_timer = None
        if self.node.service.proposer.is_full():
            self._hold_timer = asyncio.get_running_loop().call_later(HOLD_S, self._release)
            return
        for connection in self._held:
            connection.resume_reading()
        self._held.clear()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(SWEEP_S, self._sweep)
        limit = loop.time() - PARTIAL_S_MAX
        for connection in list(self._connections):
            if connection.is_stalled(limit):
                log.info("request not completed in time, closing", peer=connection.peer(), limit_s=PARTIAL_S_MAX)
                connection.close()
