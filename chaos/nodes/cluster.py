"""The cluster of a drill: node processes, and a proxy on every link between them and from every client site to them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ..errors import DrillError
from ..injection.names import NameFile
from ..injection.toxics import Link, Network
from .node_process import START_S, NodePorts, NodeProcess
from .ports import Ports
from .reaper import Reaper

__all__ = ["Cluster", "wait_for"]

_POLL_S = 0.05


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = START_S) -> None:
    """Poll until a condition of other processes holds.

    Raises:
        DrillError: it did not hold in time.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise DrillError(f"{what}: not within {timeout_s:g} s")
        time.sleep(_POLL_S)


class Cluster:
    """Nodes ``n1``, ``n2``, ... that are founded together, spare nodes that may join, and sites of clients.

    A site is located at a node and has its name: its clients prefer that node, and may be cut off together with it.
    """

    def __init__(
        self,
        folder: Path,
        *,
        size: int,
        spares: int = 0,
        durability: str = "disk",
        memcache: bool = False,
        memory_mib: int = 0,
        names: bool = False,
        program: tuple[str, ...] | None = None,
    ) -> None:
        """Prepare a cluster below `folder`.

        With `names`, its nodes know each other by names. `program` is an older ``lmq`` that they run first.
        """
        self.folder = folder
        self.durability = durability
        self._size = size
        self._spares = spares
        self._memcache = memcache
        self._memory_mib = memory_mib
        self._program = program
        self._has_names = names
        self._names: NameFile | None = None
        self._ports = Ports()
        self._stack = contextlib.ExitStack()
        self.reaper = Reaper()
        self.network = Network(self._ports, self.reaper, folder / "toxiproxy.log")
        self.nodes: list[NodeProcess] = []
        self.spares: list[NodeProcess] = []
        self.sites: list[str] = []
        self._peer_links: dict[tuple[str, str], Link] = {}
        self._client_links: dict[tuple[str, str], tuple[Link, Link]] = {}

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            stack.callback(self._ports.release)
            stack.enter_context(self.reaper)
            stack.enter_context(self.network)
            self._lay_out()
            stack.callback(self._end_nodes)
            self._start()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    # --- state ----------------------------------------------------------------------------------------------------

    @property
    def everyone(self) -> list[NodeProcess]:
        """Return members and spares."""
        return [*self.nodes, *self.spares]

    def node(self, name: str) -> NodeProcess:
        """Return the node with a name.

        Raises:
            DrillError: there is none.
        """
        found = next((node for node in self.everyone if node.name == name), None)
        if found is None:
            raise DrillError(f"unknown node {name}; the nodes are {', '.join(node.name for node in self.everyone)}")
        return found

    def peer_link(self, dialler: str, listener: str) -> Link:
        """Return the link whose upstream direction carries what one node sends to another."""
        return self._peer_links[dialler, listener]

    def client_links(self, site: str, node: str) -> tuple[Link, Link]:
        """Return the MessagePack-RPC and the HTTP link from a site to a node."""
        return self._client_links[site, node]

    def rpc_addresses(self, site: str) -> list[str]:
        """Return the addresses of all nodes for clients of a site, the node of the site first."""
        return [f"127.0.0.1:{self._client_links[site, name][0].port}" for name in self._in_order(site)]

    def http_ports(self, site: str) -> list[int]:
        """Return the HTTP ports of all nodes for clients of a site, the node of the site first."""
        return [self._client_links[site, name][1].port for name in self._in_order(site)]

    def allow_clients(self, node: NodeProcess, *, allowed: bool) -> None:
        """Allow or refuse clients at a node: before it joins, it is a separate cluster, which no client should use."""
        for site in self.sites:
            for link in self._client_links[site, node.name]:
                if allowed:
                    link.open()
                else:
                    link.shut()

    def leader(self, timeout_s: float = START_S) -> NodeProcess:
        """Return the node that reports that it leads with a quorum, in the highest term; wait for an election.

        Raises:
            DrillError: there is none in time.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            claims = [(term, node) for node in self.everyone if (term := _term_if_leader(node)) is not None]
            if claims:
                return max(claims, key=lambda claim: claim[0])[1]
            if time.monotonic() > deadline:
                raise DrillError(f"no node leads after {timeout_s:g} s")
            time.sleep(_POLL_S)

    def members(self) -> list[NodeProcess]:
        """Return the members of the cluster as its leader knows them."""
        leader = self.leader()
        rafts = {str(member["raft"]) for member in leader.get_json("/v1/cluster")["nodes"]}
        return [node for node in self.everyone if node.raft_address in rafts]

    def delay_names(self, delay_s: float) -> None:
        """Delay the nodes' look-ups of each other's names, including those in progress.

        Raises:
            DrillError: the nodes have no names.
        """
        if self._names is not None:
            self._names.delay(delay_s)
        elif delay_s:
            raise DrillError("the nodes have no names: set cluster.names in the scenario")

    # --- recovery -------------------------------------------------------------------------------------------------

    def mend(self) -> None:
        """End all faults: network, disks and clocks work, and every member's process runs."""
        self.network.remove_toxics()
        self.delay_names(0)
        self._shut_spares()
        for node in self.everyone:
            node.control.mend()
            if node.paused:
                node.resume()
        for node in self.nodes:
            if not node.running:
                node.start()

    # --- setup ----------------------------------------------------------------------------------------------------

    def _lay_out(self) -> None:
        names = [f"n{number + 1}" for number in range(self._size + self._spares)]
        ports = {name: self._take_ports() for name in names}
        environment = {}
        if self._has_names:
            self._names = NameFile(self.folder / "names")
            for name in names:
                self._names.set(f"{name}.drill", "127.0.0.1")
            # Nodes require a secret unless all addresses are numeric loopback addresses.
            environment = {**self._names.environment, "LMQ_CLUSTER_SECRET": "the secret of a drill"}
        addresses = {name: f"{name}.drill:{ports[name].raft}" if self._has_names else "" for name in names}
        founders = tuple(addresses[name] or f"127.0.0.1:{ports[name].raft}" for name in names[: self._size])
        for name in names:
            routes = {}
            for other in names:
                if other != name:
                    link = self.network.link(f"{name}->{other}", ports[other].raft)
                    self._peer_links[name, other] = link
                    routes[ports[other].raft] = link.port
            founding = name in names[: self._size]
            node = NodeProcess(
                name,
                self.folder,
                ports[name],
                address=addresses[name],
                peers=founders if founding else (),
                routes=routes,
                durability=self.durability,
                memory_mib=self._memory_mib,
                reaper=self.reaper,
                program=self._program,
            )
            node.environment |= environment
            (self.nodes if founding else self.spares).append(node)
        self.sites = names[: self._size]
        self._link_clients()

    def _take_ports(self) -> NodePorts:
        take = self._ports.take
        return NodePorts(take(), take(), take(), take() if self._memcache else None)

    def _link_clients(self) -> None:
        for site in self.sites:
            for node in self.everyone:
                rpc = self.network.link(f"clients-{site}->{node.name}", node.ports.rpc)
                http = self.network.link(f"clients-{site}->{node.name} http", node.ports.http)
                self._client_links[site, node.name] = (rpc, http)
        self._shut_spares()

    def _shut_spares(self) -> None:
        for spare in self.spares:
            self.allow_clients(spare, allowed=False)

    def _start(self) -> None:
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            node.wait_ready()

    def _end_nodes(self) -> None:
        for node in self.everyone:
            node.kill()
            node.control.close()

    def _in_order(self, site: str) -> Sequence[str]:
        names = sorted(node for other, node in self._client_links if other == site)
        start = names.index(site)
        return [*names[start:], *names[:start]]


def _term_if_leader(node: NodeProcess) -> int | None:
    if not node.running or node.paused:
        return None
    try:
        status: dict[str, Any] = node.get_json("/v1/cluster", timeout_s=2.0)
    except OSError:
        return None
    leads = status["leader"] is not None and status["leader"] == status["self"] and status["has_quorum"]
    alone = len(status["nodes"]) == 1
    return int(status["term"]) if leads and not alone else None
