"""How the descriptors of the process are shared out among its ports and its files."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import Self

__all__ = ["Shares"]

CLIENT_PORT_MAX = 10_000
RAFT_PORT_MAX = 256
RESERVE_MIN, RESERVE_MAX = 128, 1024
LIMIT_MIN = 128
"""Half of them are for the node itself: one of three that listens on all ports, and writes and sends snapshots, has used 45."""
RAFT_PORT_MIN = 8


@dataclass(frozen=True, slots=True)
class Shares:
    """A share of its own for each port: who floods one takes nothing from the others, nor from the files.

    Attributes:
        limit: descriptors that the process may have.
        reserve: those of them for the journal, snapshots, connections to peers and whatever else is no accepted connection.
        client_port: connections on each client port.
        raft_port: connections on the Raft port.
    """

    limit: int
    reserve: int
    client_port: int
    raft_port: int

    @classmethod
    def of(cls, limit: int, client_ports: int = 2) -> Self:
        """Return the shares for this many descriptors, and so many client ports.

        Raises:
            ValueError: they are too few.
        """
        if limit < LIMIT_MIN:
            raise ValueError(
                f"this process may open {limit} files, a node needs {LIMIT_MIN} at least: raise the hard limit of open files "
                "(ulimit -Hn; LimitNOFILE of systemd; --ulimit nofile of containers), best to 65536"
            )
        reserve = min(max(RESERVE_MIN, limit // 8), RESERVE_MAX, limit // 2)
        free = limit - reserve
        raft = min(RAFT_PORT_MAX, max(RAFT_PORT_MIN, free // 8))
        return cls(limit, reserve, min(CLIENT_PORT_MAX, (free - raft) // client_ports), raft)

    @classmethod
    def of_process(cls, client_ports: int = 2) -> Self:
        """Return the shares for the limit that this process has now. Raises as `of`."""
        limit, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return cls.of((1 << 20) if limit == resource.RLIM_INFINITY else limit, client_ports)
