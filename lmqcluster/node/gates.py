"""The bounds of this node's ports, from its configuration and from what its process may have."""

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
"""Connections of the HTTP port for administration, which must get an answer when clients hold all others."""
ARRIVAL_BYTES_PER_S = 64 * 1024
"""A request that arrives more slowly than this gets no more time than a small one."""


class Gates:
    """One gate for each port, and the budget of memory that they share.

    Attributes:
        memory: what is held for clients.
        http: the gate of the HTTP port.
        rpc: of MessagePack-RPC.
        queued: of the port for clients of queued.
        kestrel: of the open ports for Kestrel's clients, by protocol.
        raft: of the Raft port, where everybody has to authenticate.
    """

    def __init__(self, config: NodeConfig, must_authenticate: Callable[[object], bool]) -> None:
        """Share out what there is; `must_authenticate` tells of an address whether clients there have to show a token.

        Raises:
            ValueError: this process may open too few files.
        """
        others = (config.queued is not None) + len(config.kestrel_ports())
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
        self.kestrel = {
            name: ConnectionLimiter(name, bounds, self.memory, must_authenticate) for name in config.kestrel_ports()
        }
        raft = Bounds(shares.raft_port, shares.raft_port, authentication_s=security.AUTHENTICATION_S)
        self.raft = ConnectionLimiter("raft", raft, self.memory, lambda _address: True)

    @property
    def clients(self) -> tuple[ConnectionLimiter, ...]:
        """Those of the ports for clients."""
        return (self.http, self.rpc, self.queued, *self.kestrel.values())

    @property
    def all(self) -> tuple[ConnectionLimiter, ...]:
        """All of them."""
        return (*self.clients, self.raft)

    def tell(self) -> None:
        """Log the bounds."""
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
        """Look after connections no more."""
        for gate in self.all:
            gate.close()
