"""Nodes with ports for Kestrel's clients, and a client that shows every byte."""

from __future__ import annotations

import socket
import time
from types import TracebackType
from typing import Self

from lmqcluster import Client
from lmqcluster.node.config.kestrel import has_thrift

from .cluster import Cluster, NodeProcess, ports

__all__ = ["Lines", "address_of", "limit", "with_kestrel_ports"]

# Without its library a node has no Thrift port, and its tests fail.
PROTOCOLS = ("memcache", "text", "thrift") if has_thrift() else ("memcache", "text")
TIMEOUT_S = 120.0


def with_kestrel_ports(cluster: Cluster) -> Cluster:
    """Add these ports to every node of a cluster that has not been started yet."""
    for node in cluster.nodes:
        for protocol in PROTOCOLS:
            node.arguments += (f"--{protocol}", f"127.0.0.1:{ports.take()}")
    return cluster


def address_of(node: NodeProcess, protocol: str) -> tuple[str, int]:
    """Return the address at which a node serves a protocol."""
    host, port = node.arguments[node.arguments.index(f"--{protocol}") + 1].rsplit(":", 1)
    return host, int(port)


def limit(node: NodeProcess, queue: str, items: int) -> None:
    """Limit a queue to `items` items."""
    with Client(node.rpc) as client:
        client.update_props(queue, {"max_items": items})


class Lines:
    """A connection on which a test sends arbitrary bytes and checks the answers."""

    def __init__(self, node: NodeProcess, protocol: str = "memcache") -> None:
        self.sock = socket.create_connection(address_of(node, protocol), TIMEOUT_S)
        self._rest = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self.sock.close()

    def send(self, data: bytes) -> None:
        """Send these bytes."""
        self.sock.sendall(data)

    def expect(self, answer: bytes) -> None:
        """Read exactly this."""
        got = self.read(len(answer))
        assert got == answer, (got + self._rest, answer)

    def read(self, size: int) -> bytes:
        """Return `size` bytes; fewer if the connection is closed first."""
        while len(self._rest) < size:
            more = self.sock.recv(65536)
            if not more:
                break
            self._rest += more
        return self._take(size)

    def _take(self, size: int) -> bytes:
        found = bytes(self._rest[:size])
        del self._rest[:size]
        return found

    def until(self, ending: bytes) -> bytes:
        """Return everything up to and including `ending`; less if the connection is closed first."""
        while ending not in self._rest:
            more = self.sock.recv(65536)
            if not more:
                return self._take(len(self._rest))
            self._rest += more
        return self._take(self._rest.index(ending) + len(ending))

    def ask(self, data: bytes, answer: bytes) -> None:
        """Send `data` and read exactly this answer."""
        self.send(data)
        self.expect(answer)

    def expect_end(self) -> None:
        """Check that the node closes the connection and sends nothing more."""
        assert self.read(1) == b""

    def is_silent(self, seconds: float) -> bool:
        """Return whether nothing arrives within `seconds`."""
        self.sock.settimeout(seconds)
        try:
            started_s = time.monotonic()
            more = self.sock.recv(1)
        except TimeoutError:
            return True
        finally:
            self.sock.settimeout(TIMEOUT_S)
        self._rest += more
        assert time.monotonic() >= started_s
        return False
