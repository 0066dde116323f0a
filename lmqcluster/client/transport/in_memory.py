"""Clusters in this process, made by `lmqcluster.testing`: a client reaches them without the network.

They go by addresses such as ``in-memory:1``. Nothing is known of them here but how to connect to them.
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
"""The host of all their addresses; no network has a host of this name."""

_numbers = itertools.count(1)
_clusters: dict[NodeAddress, Callable[[socket.socket], None]] = {}


def publish(accept: Callable[[socket.socket], None]) -> NodeAddress:
    """Let clients connect to a cluster; returns its address.

    Args:
        accept: takes the cluster's end of a new connection; called on the client's thread.
    """
    address = NodeAddress(IN_MEMORY, next(_numbers))
    _clusters[address] = accept
    return address


def withdraw(address: NodeAddress) -> None:
    """The cluster is no more."""
    _clusters.pop(address, None)


def connect(address: NodeAddress) -> socket.socket:
    """The client's end of a new connection.

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
