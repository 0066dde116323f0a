"""The listener: accepts connections, ends stalled and idle ones, and applies backpressure when the node is full."""

from __future__ import annotations

import asyncio

import structlog

from ...node.access.tls import handshake
from ...ports import ConnectionSlot, Ending, Listener
from .connection.connection import Connection
from .connection.request_log import logged
from .connection.stream import Stream
from .methods.permissions import guarded
from .methods.table import METHODS
from .served_node import ServedNode
from .values.transcoding import Transcoder

__all__ = ["RpcFrontEnd"]

log = structlog.get_logger("lmq.rpc")

PARTIAL_S_MAX = 5.0
SWEEP_S = 0.5
HOLD_S = 0.005
VALUES_PER_S = 2_000_000
"""Values of unfinished large requests scanned per second, which takes about a quarter of the node's time."""
PACE = 3.0
"""Pause before more of them is read, as a multiple of the last scan's time; it matters on a busy machine."""


class RpcFrontEnd:
    """MessagePack-RPC on one address.

    Attributes:
        port: the bound port, once started.
        gate: the limits on the port's connections.
        transcoder: limits the decoding of stored bodies per turn of the event loop.
    """

    def __init__(self, node: ServedNode, host: str, port: int) -> None:
        self.node = node
        self.host = host
        self.port = port
        config = node.config
        self.gate = node.gates.rpc
        self.transcoder = Transcoder()
        self._paced_s = 0.0
        self._connections: set[Connection] = set()
        self._held: set[Stream] = set()
        is_logged = config.request_log == "on"
        self._methods = logged(METHODS) if is_logged else METHODS
        self._guarded = logged(guarded(METHODS)) if is_logged else guarded(METHODS)
        self._listener: Listener | None = None
        node.membership.on_leave.append(self._end_connections)
        node.access.on_change.append(self._review)
        node.observed.connections["msgpack_rpc"] = lambda: len(self._connections)
        self._timer: asyncio.TimerHandle | None = None
        self._hold_timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Start listening.

        Raises:
            OSError: the address cannot be bound.
        """
        self._listener = Listener(self.gate, self.connect, handshake(self.node.tls))
        self.port = await self._listener.start(self.host, self.port)
        self._sweep()

    def connect(self, place: ConnectionSlot) -> Connection:
        """Return the protocol of an accepted connection."""
        return Connection(self, place)

    def retire(self) -> None:
        """Stop accepting connections. Requests are still read and refused, because an error tells a client more than silence."""
        if self._listener is not None:
            self._listener.close()

    async def stop(self, grace_s: float) -> None:
        """Wait up to `grace_s` seconds for answers to requests in flight, then close the connections."""
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
        """Register a new connection."""
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

    def disconnected(self, connection: Connection) -> None:
        """Remove a closed connection."""
        self._connections.discard(connection)
        self._held.discard(connection)

    def hold(self, connection: Stream) -> None:
        """Stop reading from this client until the node has processed the pending commands."""
        if connection not in self._held:
            connection.pause_reading()
            connection.hold()
            self._held.add(connection)
        if self._hold_timer is None:
            self._hold_timer = asyncio.get_running_loop().call_later(HOLD_S, self._release)

    def pace(self, values: int, spent_s: float) -> float:
        """Return the seconds until a connection may be read again after this many values were scanned in this time.

        All connections together get `VALUES_PER_S`. On a busy or slow machine they get only a part of the time, so that
        most of it is left for other clients.
        """
        now_s = asyncio.get_running_loop().time()
        self._paced_s = max(self._paced_s, now_s) + max(values / VALUES_PER_S, PACE * spent_s)
        return self._paced_s - now_s

    def _release(self) -> None:
        self._hold_timer = None
        if self.node.service.proposer.is_full():
            self._hold_timer = asyncio.get_running_loop().call_later(HOLD_S, self._release)
            return
        held, self._held = self._held, set()
        for connection in held:
            connection.resume_reading()
            connection.go_on()

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
