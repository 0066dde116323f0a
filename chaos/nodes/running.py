"""A cluster on this machine that was started otherwise, for drills that break what can be broken from outside.

That is: the links between clients and nodes, and the nodes' processes if their data directories are known; to start a killed node
again is its supervisor's business (``lmq dev --respawn``). Links between nodes, disks and clocks are out of reach.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

from ..errors import DrillError
from ..injection.toxics import Link
from .cluster import Cluster, wait_for
from .node_process import START_S, NodePorts, NodeProcess

__all__ = ["RunningCluster", "RunningNode"]


class RunningNode(NodeProcess):
    """A node that was there before."""

    def __init__(self, name: str, ports: NodePorts, data_folder: Path | None) -> None:
        # There is nothing to set up: no folder, no library, no command line of ours.
        self.name, self.ports = name, ports
        self.raft_address = f"127.0.0.1:{ports.raft}"
        self.program = None
        self.paused = False
        self.log_path = Path(os.devnull)
        self._data_folder = data_folder

    @property
    def running(self) -> bool:
        """Whether its process is there, or without a data directory whether it answers."""
        return self.is_live() if self._data_folder is None else self._pid() is not None

    @property
    def exit_code(self) -> int | None:
        """Only its supervisor knows."""
        return None

    def is_live(self) -> bool:
        """Whether it answers at all."""
        try:
            self.get_json("/v1/cluster", timeout_s=2.0)
        except OSError:
            return False
        return True

    def start(self) -> None:
        """Wait until its supervisor has started it again."""
        wait_for(lambda: self.running and self.is_live(), f"the supervisor of {self.name} starts it again")

    def kill(self) -> None:
        """Kill -9."""
        self._send(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM, and wait until it is gone."""
        pid = self._send(signal.SIGTERM)
        wait_for(lambda: self._pid() != pid, f"{self.name} ends")
        return 0

    def pause(self) -> None:
        """SIGSTOP."""
        self._send(signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        """SIGCONT."""
        if self.paused:
            self._send(signal.SIGCONT)
        self.paused = False

    def _send(self, number: int) -> int:
        pid = self._pid()
        if pid is None:
            raise DrillError(
                f"the process of {self.name} is not known: name the nodes' data directories with --data-dirs"
            )
        os.kill(pid, number)
        return pid

    def _pid(self) -> int | None:
        """The process in its data directory's ``lmq.pid``; None if there is none."""
        if self._data_folder is None:
            return None
        try:
            pid = int((self._data_folder / "lmq.pid").read_text())
            os.kill(pid, 0)
        except (OSError, ValueError):
            return None
        return pid


class RunningCluster(Cluster):
    """Nodes that were there before and stay there.

    Args:
        folder: for the drill's own files.
        http: HTTP addresses of all nodes, on this machine.
        data_folders: of the same nodes; none if processes shall be left alone.
    """

    def __init__(self, folder: Path, http: Sequence[str], data_folders: Sequence[Path] = ()) -> None:
        super().__init__(folder, size=len(http))
        if data_folders and len(data_folders) != len(http):
            raise DrillError(f"--data-dirs names {len(data_folders)} folders for {len(http)} nodes")
        self._http = http
        self._data_folders = data_folders

    def peer_link(self, dialler: str, listener: str) -> Link:
        """Out of reach.

        Raises:
            DrillError: always.
        """
        raise DrillError(
            f"the link from {dialler} to {listener} cannot be broken: the nodes were not started by the drill"
        )

    def mend(self) -> None:
        """Links of clients are whole, and nobody is paused."""
        self.network.cure_all()
        for node in self.nodes:
            node.resume()

    def _lay_out(self) -> None:
        for number, address in enumerate(self._http):
            data_folder = self._data_folders[number] if self._data_folders else None
            self.nodes.append(_find(address, data_folder))
        self.sites = [node.name for node in self.nodes]
        self._link_clients()

    def _start(self) -> None:
        for node in self.nodes:
            node.wait_ready(START_S)

    def _end_nodes(self) -> None:
        for node in self.nodes:
            node.resume()


def _find(http: str, data_folder: Path | None) -> RunningNode:
    """Ask a node for its name and its other addresses."""
    port = _local_port(http)
    probe = RunningNode(http, NodePorts(port, 0, 0), data_folder)
    try:
        status = probe.get_json("/v1/cluster")
    except OSError as exc:
        raise DrillError(f"the node at {http} cannot be asked: {exc}") from exc
    me = next(node for node in status["nodes"] if node["id"] == status["self"])
    return RunningNode(me["name"], NodePorts(port, _local_port(me["rpc"] or ""), _local_port(me["raft"])), data_folder)


def _local_port(address: str) -> int:
    host, _, port = address.rpartition(":")
    if host not in {"127.0.0.1", "localhost"} or not port.isdigit():
        raise DrillError(
            f"drills need nodes on this machine, at 127.0.0.1:PORT, with RPC switched on, not at {address!r}"
        )
    return int(port)
