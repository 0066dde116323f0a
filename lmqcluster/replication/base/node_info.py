"""A node's description of itself, sent to peers when it connects and when it changes."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NodeInfo"]


@dataclass(slots=True)
class NodeInfo:
    """A node's description of itself for its peers.

    Attributes:
        name, http, rpc: name and client addresses, empty if off.
        raft: where peers can dial it.
        empty: it holds no data.
        recovering: it has lost data that it may have acknowledged.
        machine_version: the newest version of the replicated machine that it understands.
        members: fingerprint of the ids of the members that it knows; empty once its cluster has been founded.
    """

    name: str
    http: str
    rpc: str
    raft: str = ""
    empty: bool = True
    recovering: bool = False
    machine_version: int = 1
    members: bytes = b""
