"""An existing cluster on this machine, for drills that break what can be broken from outside.

These are the links between clients and nodes, and the nodes' processes if their data directories are known; a
supervisor must restart killed nodes (``lmq dev --respawn``). Links between nodes, disks and clocks are out of reach.
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
    """A node that was started by others."""

    def __init__(self, name: str, ports: NodePorts, data_folder: Path | None) -> None:
        # Nothing to set up: no folder, no library, no command line.
        self.name, self.ports = name, ports
        self.raft_address = f"127.0.0.1:{ports.raft}"
        self.program = None
        self.paused = False
        self.log_path = Path(os.devnull)
        self._data_folder = data_folder

    @property
    def running(self) -> bool:
        """Return whether its process exists, or without a data directory whether it answers."""
        return self.is_live() if self._data_folder is None else self._pid() is not None

    @property
    def exit_code(self) -> int | None:
        """Return None: only its supervisor knows the exit code."""
        return None

    def is_live(self) -> bool:
        """Return whether it answers at all."""
        try:
            self.get_json("/v1/cluster", timeout_s=2.0)
        except OSError:
            return False
        return True

    def start(self) -> None:
        """Wait until its supervisor has restarted it."""
        wait_for(lambda: self.running and self.is_live(), f"the supervisor of {self.name} restarts it")

    def kill(self) -> None:
        """Kill -9."""
        self._send(signal.SIGKILL)

    def stop(self) -> int:
        """Send SIGTERM, and wait until it has ended."""
        pid = self._send(signal.SIGTERM)
        wait_for(lambda: self._pid() != pid, f"{self.name} ends")
        return 0

    def pause(self) -> None:
        """Send SIGSTOP."""
        self._send(signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        """Send SIGCONT."""
        if self.paused:
            self._send(signal.SIGCONT)
        self.paused = False

    def _send(self, number: int) -> int:
        pid = self._pid()
        if pid is None:
            raise DrillError(
                f"the process of {self.name} is unknown: pass the nodes' data directories with --data-dirs"
            )
        os.kill(pid, number)
        return pid

    def _pid(self) -> int | None:
        """Return the process in its data directory's ``lmq.pid``; None if there is none."""
        if self._data_folder is None:
            return None
        try:
            pid = int((self._data_folder / "lmq.pid").read_text())
            os.kill(pid, 0)
        except (OSError, ValueError):
            return None
        return pid


class RunningCluster(Cluster):
    """Existing nodes, which the drill does not stop.

    Args:
        folder: for the drill's own files.
        http: HTTP addresses of all nodes, on this machine.
        data_folders: of the same nodes; empty if processes must not be touched.
    """

    def __init__(self, folder: Path, http: Sequence[str], data_folders: Sequence[Path] = ()) -> None:
        super().__init__(folder, size=len(http))
        if data_folders and len(data_folders) != len(http):
            raise DrillError(f"--data-dirs names {len(data_folders)} folders for {len(http)} nodes")
        self._http = http
        self._data_folders = data_folders

    def peer_link(self, dialler: str, listener: str) -> Link:
        """Raise an error: these links are out of reach.

        Raises:
            DrillError: always.
        """
        raise DrillError(
            f"the link from {dialler} to {listener} cannot be broken: the nodes were not started by the drill"
        )

    def mend(self) -> None:
        """Restore the links of clients and resume paused nodes."""
        self.network.remove_toxics()
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
    """Return a node with the name and the other addresses that it reports."""
    port = _local_port(http)
    probe = RunningNode(http, NodePorts(port, 0, 0), data_folder)
    try:
        status = probe.get_json("/v1/cluster")
    except OSError as exc:
        raise DrillError(f"the node at {http} does not answer: {exc}") from exc
    me = next(node for node in status["nodes"] if node["id"] == status["self"])
    return RunningNode(me["name"], NodePorts(port, _local_port(me["rpc"] or ""), _local_port(me["raft"])), data_folder)


def _local_port(address: str) -> int:
    host, _, port = address.rpartition(":")
    if host not in {"127.0.0.1", "localhost"} or not port.isdigit():
        raise DrillError(f"drills need nodes on this machine, at 127.0.0.1:PORT, with RPC enabled, not at {address!r}")
    return int(port)
