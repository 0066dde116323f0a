"""Nodes that know each other by names, and a name server with answers and delays that a test controls.

The library that the drills preload into a node answers the lookups of names (`LMQ_DRILL_NAMES`). Every node listens on
its own loopback address. It needs Linux and a C compiler.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import socket
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from chaos.injection.names import NameFile

from .cluster import Cluster, NodeProcess, ports, wait_for

__all__ = ["SILENT", "NameFile", "NamedCluster", "silent"]

SILENT = "127.0.0.250"
"""The address at which `silent` keeps a port silent."""
_SECRET = "the secret of nodes with names"
_hosts = itertools.count(1)


class NamedCluster(Cluster):
    """Founding members ``n1.drill``, ``n2.drill``, ...; the test starts them.

    Attributes:
        names: the names of the nodes.
        port: their Raft port.
    """

    def __init__(self, directory: Path, size: int = 3) -> None:
        self._own_directory = False
        self.directory = directory
        self.names = NameFile(directory / "names")
        self.port = ports.take()
        self.nodes = []
        hosts = [f"n{number + 1}.drill" for number in range(size)]
        for host in hosts:
            self.names.set(host, self.fresh_address())
        for host in hosts:
            self.nodes.append(self.make_node(host, peers=[f"{one}:{self.port}" for one in hosts]))

    @staticmethod
    def fresh_address() -> str:
        """Return a loopback address that no node of this test run has."""
        number = next(_hosts)
        return f"127.0.{1 + number // 200}.{number % 200 + 2}"

    def make_node(self, host: str, *, peers: Sequence[str], advertised: str | None = None) -> NodeProcess:
        """Create a node at the last address of its name.

        Args:
            host: its name.
            peers: Raft addresses of the founding members.
            advertised: the Raft address that it advertises; default: its name.
        """
        environment = {"LMQ_CLUSTER_SECRET": _SECRET, **self.names.environment}
        node = NodeProcess(self.directory, host.partition(".")[0], peers=peers, environment=environment)
        self._listen(node)
        node.arguments = ("--advertise-raft", advertised or f"{host}:{self.port}")
        return node

    def _listen(self, node: NodeProcess) -> None:
        address = self.names.addresses(f"{node.name}.drill")[-1]
        node.raft = f"{address}:{self.port}"
        node.rpc = f"{address}:{node.rpc.rpartition(':')[2]}"
        node.http = f"{address}:{node.http.rpartition(':')[2]}"

    def move(self, node: NodeProcess) -> None:
        """Move a stopped node to another address, to which its name resolves from now on."""
        host = f"{node.name}.drill"
        self.names.set(host, *self.names.addresses(host)[:-1], self.fresh_address())
        self._listen(node)

    def start_all(self, *nodes: NodeProcess) -> None:
        """Start these nodes, or all, and return when each is ready."""
        for node in nodes or self.nodes:
            node.start(wait=False)
        for node in nodes or self.nodes:
            node.wait_ready()

    def complaints(self) -> list[str]:
        """Return the lines of the nodes' logs about futures and tasks whose exceptions were never retrieved."""
        return [line for node in self.nodes for line in node.log().splitlines() if "never retrieved" in line]

    def __enter__(self) -> Self:
        return self


@contextlib.contextmanager
def silent(port: int, host: str = SILENT) -> Iterator[str]:
    """Yield a host at which a port answers nothing: its accept queue is full, so the system drops new connections."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(socket.create_server((host, port), backlog=0))
        while True:
            one = stack.enter_context(socket.socket())
            one.settimeout(0.2)
            try:
                one.connect((host, port))
            except TimeoutError:
                break
        yield host


def push(node: NodeProcess, queue: str) -> None:
    """Push a message through a node, repeatedly until it is stored."""

    def pushed() -> bool:
        body = json.dumps({"messages": [{"content": "x"}]}).encode()
        headers: Mapping[str, str] = {"content-type": "application/json"}
        request = urllib.request.Request(f"http://{node.http}/v1/queues/{queue}/messages", body, dict(headers))
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=2):
                return True
        except (OSError, http.client.HTTPException):
            return False

    wait_for(pushed, f"a push through {node.name}")
