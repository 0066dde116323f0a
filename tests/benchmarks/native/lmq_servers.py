"""lmqcluster: three nodes, with and without TLS."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from functools import partial
from typing import ClassVar, Final

from lmqcluster_cli.shared.certificates import Authority

from tests.benchmarks.native.rows import Operation, Protocol, Row
from tests.benchmarks.native.servers import NODES, Servers, Settings
from tests.integration.cluster import Cluster, NodeProcess, wait_for

_UNVERIFIED: Final = ssl._create_unverified_context()
"""For the certificates that a run makes for itself."""


class LmqServers(Servers):
    """Three nodes with the durability `disk`, as users start them."""

    name = "lmqcluster"
    protocols: ClassVar[Mapping[Protocol, str]] = {Protocol.OWN: "rpc", Protocol.HTTP: "http"}
    scheme = "http"
    front_ends: ClassVar[int] = 0

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.cluster: Cluster | None = None

    def start(self) -> None:
        """Start three nodes."""
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in self.settings.node_options.items()]
        self.cluster = cluster = Cluster(NODES, arguments=("--durability=disk", *flags))
        self._prepare(cluster)
        for node in cluster:
            node.start(wait=False)
        for node in cluster:
            wait_for(partial(self._ready, node), f"{node.name} ready")

    def _prepare(self, cluster: Cluster) -> None:
        """Complete the arguments of the nodes."""
        if self.front_ends:
            for node in cluster:
                node.arguments = (*node.arguments, f"--front-ends={self.front_ends}")

    def has(self, row: Row) -> bool:
        """Return whether a row is measured: with front ends, the pushes of many connections."""
        return super().has(row) and (not self.front_ends or (row.operation is Operation.PUSH and row.connections > 1))

    def _ready(self, node: NodeProcess) -> bool:
        if not node.running:
            raise RuntimeError(f"{node.name} ended\n{node.log_tail()}")
        return self._call("GET", node, "/readyz")[0] == 200

    def _call(self, method: str, node: NodeProcess, path: str) -> tuple[int, bytes]:
        """Send a request; the status is 0 if the node cannot be reached."""
        request = urllib.request.Request(f"{self.scheme}://{node.http}{path}", method=method)
        handlers = [urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=_UNVERIFIED)]
        try:
            with urllib.request.build_opener(*handlers).open(request, timeout=30) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as exc:
            with exc:
                return exc.code, exc.read()
        except OSError:
            return 0, b""

    def _nodes(self) -> dict[str, NodeProcess]:
        assert self.cluster is not None
        return {node.name: node for node in self.cluster}

    def stop(self) -> None:
        """Kill the nodes."""
        if self.cluster is not None:
            self.cluster.stop()

    def description(self) -> str:
        """Return the durability and the options of the nodes."""
        options = "".join(f", {name} {value}" for name, value in self.settings.node_options.items())
        return f"durability disk: synced on a majority{options}"

    def processes(self) -> Mapping[str, int]:
        """Return the process id of each node and of its front ends."""
        nodes = self._nodes()
        found = {name: node.pid for name, node in nodes.items() if node.pid is not None}
        front_ends = {
            f"{name} front end {number}": pid
            for name, node in nodes.items()
            for number, pid in enumerate(node.front_ends, 1)
        }
        return found | front_ends

    def leader(self, queue: str) -> str:
        """Return the leader of the cluster."""

        def find() -> str | None:
            for node in self._nodes().values():
                status, body = self._call("GET", node, "/v1/cluster")
                found = json.loads(body) if status == 200 else {}
                if found.get("leader") is not None and found["leader"] == found["self"] and found["has_quorum"]:
                    return node.name
            return None

        return wait_for(find, "a leader")

    def address(self, server: str, protocol: Protocol) -> str:
        """Return the address for MessagePack-RPC or HTTP."""
        node = self._nodes()[server]
        return node.rpc if protocol is Protocol.OWN else node.http

    def create(self, queue: str, row: Row) -> None:
        """Do nothing: the first push creates the queue."""

    def stored(self, queue: str) -> int:
        """Return the number of messages, those under lease included."""
        status, body = self._call("GET", self._nodes()[self.leader(queue)], f"/v1/queues/{queue}")
        if status not in {200, 404}:
            raise RuntimeError(f"queue {queue}: {status} {body!r}")
        return int(json.loads(body)["size"]) if status == 200 else 0


class LmqTlsServers(LmqServers):
    """The same with TLS on the ports of clients."""

    name = "lmqcluster, TLS"
    protocols: ClassVar[Mapping[Protocol, str]] = {Protocol.HTTPS: "https"}
    scheme = "https"

    def _prepare(self, cluster: Cluster) -> None:
        super()._prepare(cluster)
        authority = Authority.create(cluster.directory)
        paths = authority.issue("node", ["127.0.0.1"], days=2, replace=False)
        files = {path.suffix: path for path in paths}
        for node in cluster:
            node.arguments = (*node.arguments, f"--tls-cert={files['.crt']}", f"--tls-key={files['.key']}")


class LmqFrontEndServers(LmqServers):
    """The same as `LmqServers` with two front-end processes for each node."""

    name = "lmqcluster, front ends"
    front_ends = 2


class LmqTlsFrontEndServers(LmqTlsServers):
    """The same as `LmqTlsServers` with two front-end processes for each node."""

    name = "lmqcluster, TLS, front ends"
    front_ends = 2
