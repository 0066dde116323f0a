"""What a node tells its peers of itself when it connects, and when that changes."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NodeInfo"]


@dataclass(slots=True)
class NodeInfo:
    """What a node tells its peers of itself.

    Attributes:
        name, http, rpc: name and client addresses, empty if off.
        raft: where peers can dial it.
        empty: it holds no data.
        recovering: it has forgotten data that it may have acknowledged.
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
