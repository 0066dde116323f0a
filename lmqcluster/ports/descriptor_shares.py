"""Divides the file descriptors of the process among its ports and files."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import Self

__all__ = ["DescriptorShares"]

CLIENT_PORT_MAX = 10_000
RAFT_PORT_MAX = 256
RESERVE_MIN, RESERVE_MAX = 128, 1024
LIMIT_MIN = 128
"""Half of them are for the node itself. A node of three that listens on all ports and sends snapshots has used 45."""
RAFT_PORT_MIN = 8


@dataclass(frozen=True, slots=True)
class DescriptorShares:
    """Separate shares of descriptors for each port: flooding one port takes nothing from the others or from files.

    Attributes:
        limit: descriptors that the process may open.
        reserve: for everything but accepted connections: the journal, snapshots, connections to peers.
        client_port: connections on each client port.
        raft_port: connections on the Raft port.
    """

    limit: int
    reserve: int
    client_port: int
    raft_port: int

    @classmethod
    def of(cls, limit: int, client_ports: int = 2) -> Self:
        """Return the shares for a limit of descriptors and a number of client ports.

        Raises:
            ValueError: the limit is too low.
        """
        if limit < LIMIT_MIN:
            raise ValueError(
                f"this process may open {limit} files, but a node needs at least {LIMIT_MIN}; raise the hard limit of open files "
                "(ulimit -Hn; LimitNOFILE of systemd; --ulimit nofile of containers), preferably to 65536"
            )
        reserve = min(max(RESERVE_MIN, limit // 8), RESERVE_MAX, limit // 2)
        free = limit - reserve
        raft = min(RAFT_PORT_MAX, max(RAFT_PORT_MIN, free // 8))
        return cls(limit, reserve, min(CLIENT_PORT_MAX, (free - raft) // client_ports), raft)

    @classmethod
    def of_process(cls, client_ports: int = 2) -> Self:
        """Return the shares for the current limit of this process. Raises the errors of `of`."""
        limit, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return cls.of((1 << 20) if limit == resource.RLIM_INFINITY else limit, client_ports)
