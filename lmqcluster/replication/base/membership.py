"""Members of the cluster according to the log: id and Raft address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgpack
from pysyncobj.node import Node

__all__ = [
    "MEMBERSHIP",
    "NO_OP",
    "REGULAR",
    "PeerNode",
    "apply_change",
    "decode_change",
    "encode_change",
    "is_change",
    "stamp_us_of",
]

# The first byte of every log command; the values are PySyncObj's.
REGULAR = 0
NO_OP = 1
MEMBERSHIP = 2
_CHANGE = bytes([MEMBERSHIP])


class PeerNode(Node):
    """A member, identified by its id, whatever its address."""

    address: str

    def __init__(self, node_id: str, address: str = "") -> None:
        super().__init__(node_id, address=address)


def is_change(command: bytes | memoryview) -> bool:
    """Return whether a log command changes the members."""
    return command[:1] == _CHANGE


def stamp_us_of(command: bytes | memoryview) -> int:
    """Return the log time in a log command; 0 if it is not a batch."""
    return int.from_bytes(command[1:9], "big") if command and command[0] == REGULAR else 0


def encode_change(verb: str, node_id: str, address: str) -> bytes:
    """Return the payload of a membership entry.

    `verb` is ``add`` (also for a member's new address), ``rem``, or ``only``, which removes all others. ``only`` is
    never replicated; it is written into the log of a survivor that has lost its quorum.
    """
    data: bytes = msgpack.packb([verb, node_id, address])
    return data


def decode_change(command: bytes) -> list[Any] | None:
    """Return ``[verb, id, PeerNode]`` of a membership entry, None for any other entry."""
    if not is_change(command):
        return None
    verb, node_id, address = msgpack.unpackb(command[1:])
    return [verb, node_id, PeerNode(node_id, address)]


def apply_change(members: Mapping[str, str], command: bytes) -> dict[str, str]:
    """Return the member list, id to address, after an entry."""
    change = decode_change(command)
    result = dict(members)
    if change is not None:
        verb, node_id, node = change
        if verb == "only":
            return {node_id: node.address}
        if verb == "add":
            result[node_id] = node.address
        else:
            result.pop(node_id, None)
    return result
