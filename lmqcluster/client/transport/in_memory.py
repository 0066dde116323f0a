"""Clusters in this process, made by `lmqcluster.testing`, which clients reach without the network.

Their addresses look like ``in-memory:1``. This module only connects to them.
"""

from __future__ import annotations

import errno
import itertools
import os
import socket
from collections.abc import Callable
from typing import Final

from .addresses import NodeAddress

__all__ = ["IN_MEMORY", "connect", "publish", "withdraw"]

IN_MEMORY: Final = "in-memory"
"""Host of all their addresses; no network has a host of this name."""

_numbers = itertools.count(1)
_clusters: dict[NodeAddress, Callable[[socket.socket], None]] = {}


def publish(accept: Callable[[socket.socket], None]) -> NodeAddress:
    """Make a cluster reachable for clients and return its address.

    Args:
        accept: takes the cluster's end of a new connection; called on the client's thread.
    """
    address = NodeAddress(IN_MEMORY, next(_numbers))
    _clusters[address] = accept
    return address


def withdraw(address: NodeAddress) -> None:
    """Remove a cluster that no longer exists."""
    _clusters.pop(address, None)


def connect(address: NodeAddress) -> socket.socket:
    """Open a connection and return the client's end.

    Raises:
        ConnectionRefusedError: this process has no such cluster.
    """
    accept = _clusters.get(address)
    if accept is None:
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    accept(theirs)
    return ours
