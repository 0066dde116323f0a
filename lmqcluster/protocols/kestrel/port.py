"""A port for Kestrel's clients: accepts connections, ends slow and idle ones, stops gracefully."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from ...node.access.access import Principal
from ...node.access.tls import handshake
from ...node.node import Node
from ...ports import ConnectionSlot, Ending, Listener
from ...wire.address import Address, is_loopback
from ...wire.errors import LmqError
from .connection import KestrelConnection
from .status import ServerStatus

__all__ = ["Factory", "KestrelPort"]

log = structlog.get_logger("lmq.kestrel")

SWEEP_S = 0.5
Factory = Callable[["KestrelPort", ConnectionSlot], KestrelConnection]


class KestrelPort:
    """Listener on one address.

    Attributes:
        protocol: the name of the protocol.
        node: the node whose queues are served.
        status: the operations that clients may currently use.
        counts: Kestrel's statistics.
        port: the bound port, once started.
        open_reads_max: maximum number of open reads of one connection on one queue.
        logs_requests: whether each request is logged.
        is_rated: whether a request rate limit applies.
    """

    def __init__(self, protocol: str, node: Node, address: Address, factory: Factory, status: ServerStatus) -> None:
        config = node.config
        self.protocol = protocol
        self.node = node
        self.status = status
        self.counts = node.observed.kestrel
        self.host, self.port = address.host, address.port
        self.open_reads_max = config.kestrel_open_reads_max
        self.logs_requests = config.request_log == "on"
        self._factory = factory
        self._as: str = getattr(config, f"{protocol}_as")
        self._serves_all = config.kestrel_insecure == "on"
        self._is_loopback = address.is_loopback
        self._has_tls = not address.is_loopback and not self._serves_all
        self._gate = node.gates.kestrel[protocol]
        self.is_rated = self._gate.bounds.requests_per_s > 0
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
        if self._serves_all and not self._is_loopback:
            served_as = (
                f"with the role of the token {self._as!r}" if self._as else "as long as the cluster has no tokens"
            )
            log.warning(
                "port serves everybody who reaches it", protocol=self.protocol, reason=f"kestrel_insecure, {served_as}"
            )
        tls = handshake(self.node.tls) if self._has_tls else None
        self._listener = Listener(self._gate, lambda place: self._factory(self, place), tls)
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

    def principal(self, address: object) -> Principal:
        """Return the principal of a client at this address.

        Raises:
            LmqError: ``unauthorized``, or the reason why the node serves no client.
        """
        access = self.node.access
        if access.outside is not None:
            raise access.outside.again()
        if self._as:
            found = access.named(self._as)
            if found is None:
                raise LmqError(
                    "unauthorized", f"there is no token {self._as!r}, as which clients of this port are served"
                )
            return found
        if access.anonymous is None or not (self._serves_all or is_loopback(address)):
            raise access.refusal()
        return access.anonymous

    def connected(self, connection: KestrelConnection) -> None:
        """Register a new connection."""
        self._connections.add(connection)
        self.counts.connections += 1

    def disconnected(self, connection: KestrelConnection) -> None:
        """Remove a closed connection."""
        self._connections.discard(connection)

    def _end_connections(self) -> None:
        for connection in list(self._connections):
            connection.close()

    def _review(self) -> None:
        for connection in list(self._connections):
            if connection.queues is not None and connection.queues.principal.is_revoked:
                log.info("connection closed", protocol=self.protocol, reason="token revoked or expired")
                connection.close()

    def _reads_lost(self) -> None:
        """Close connections with open reads: other clients hold those messages now, so none may be confirmed."""
        for connection in list(self._connections):
            if connection.held:
                connection.close()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(SWEEP_S, self._sweep)
        now_s, config = loop.time(), self.node.config
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
