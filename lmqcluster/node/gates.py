"""Limits of the node's ports, derived from its configuration and from the limits of its process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import structlog

from ..ports import Bounds, ConnectionLimiter, DescriptorShares, Memory
from ..ports.connection_limiter import AUTHENTICATION_S
from ..replication.peers import security
from .config.config import NodeConfig
from .config.values import memory_of_machine

__all__ = ["ARRIVAL_BYTES_PER_S", "Gates"]

log = structlog.get_logger("lmq.node")

SPARE_MAX = 8
"""Connections of the HTTP port that are reserved for administration, so that it works when clients hold all others."""
ARRIVAL_BYTES_PER_S = 64 * 1024
"""A request that arrives more slowly than this gets only the time of a small request."""


class Gates:
    """One connection limiter per port, and the memory budget that they share.

    Attributes:
        memory: the memory held for clients.
        http: the limiter of the HTTP port.
        rpc: the limiter of the MessagePack-RPC port.
        queued: the limiter of the port for clients of queued.
        sqs: the limiter of the port for clients of SQS.
        kestrel: the limiters of the open ports for Kestrel clients, by protocol.
        raft: the limiter of the Raft port, where every peer must authenticate.
    """

    def __init__(self, config: NodeConfig, must_authenticate: Callable[[object], bool]) -> None:
        """Divide file descriptors and memory among the ports.

        `must_authenticate` returns whether clients at an address must present a token.

        Raises:
            ValueError: the file limit of this process is too low.
        """
        others = (config.queued is not None) + (config.sqs is not None) + len(config.kestrel_ports())
        self._shares = shares = DescriptorShares.of_process(2 + others)
        self.memory = Memory(memory_of_machine())
        bounds = Bounds(
            connections=shares.client_port,
            per_client=min(config.connections_per_client_max, shares.client_port),
            requests_per_s=config.requests_per_client_max,
            authentication_s=min(AUTHENTICATION_S, config.request_seconds_max),
        )
        spare = min(SPARE_MAX, shares.client_port // 4)
        connections = shares.client_port - spare
        for_http = replace(bounds, connections=connections, per_client=min(bounds.per_client, connections), spare=spare)
        self.http = ConnectionLimiter("http", for_http, self.memory, must_authenticate)
        self.rpc = ConnectionLimiter("msgpack_rpc", bounds, self.memory, must_authenticate)
        self.queued = ConnectionLimiter("queued", bounds, self.memory, must_authenticate)
        self.sqs = ConnectionLimiter("sqs", bounds, self.memory, must_authenticate)
        self.kestrel = {
            name: ConnectionLimiter(name, bounds, self.memory, must_authenticate) for name in config.kestrel_ports()
        }
        raft = Bounds(shares.raft_port, shares.raft_port, authentication_s=security.AUTHENTICATION_S)
        self.raft = ConnectionLimiter("raft", raft, self.memory, lambda _address: True)

    @property
    def clients(self) -> tuple[ConnectionLimiter, ...]:
        """Return the limiters of the client ports."""
        return (self.http, self.rpc, self.queued, self.sqs, *self.kestrel.values())

    @property
    def all(self) -> tuple[ConnectionLimiter, ...]:
        """Return the limiters of all ports."""
        return (*self.clients, self.raft)

    def tell(self) -> None:
        """Log the limits."""
        shares, memory = self._shares, self.memory
        log.info(
            "descriptors shared out",
            limit=shares.limit,
            reserve=shares.reserve,
            each_client_port=shares.client_port,
            raft_port=shares.raft_port,
            unauthenticated_per_port=self.http.bounds.unauthenticated,
        )
        log.info(
            "memory for clients",
            all_bytes=memory.clients_bytes_max,
            one_client_bytes=memory.client_bytes_max,
            unauthenticated_bytes=memory.unauthenticated_bytes_max,
        )

    def close(self) -> None:
        """Stop the timers that close late unauthenticated connections."""
        for gate in self.all:
            gate.close()
