"""Faults of processes: kill, pause, stop, rolling restart. For upgrades see `upgrade`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..errors import BrokenPromiseError
from ..nodes.cluster import wait_for
from ..nodes.node_process import NodeProcess
from ..stage import Stage
from .base import Fault, TargetedFault

__all__ = ["Kill", "Pause", "RollingRestart", "Stop"]


@dataclass
class Kill(TargetedFault):
    """Kill -9; restarted at the end."""

    kind: ClassVar[str] = "kill"

    def strike(self, stage: Stage) -> None:
        """Kill all nodes before waiting for any."""
        for node in self.nodes:
            node.kill()

    def end(self, stage: Stage) -> None:
        """Restart the nodes."""
        for node in self.nodes:
            if not node.running:
                node.start()


@dataclass
class Stop(TargetedFault):
    """An orderly stop with SIGTERM; restarted at the end."""

    kind: ClassVar[str] = "stop"

    def strike(self, stage: Stage) -> None:
        """Stop the nodes one after another."""
        for node in self.nodes:
            _stop(node)

    def end(self, stage: Stage) -> None:
        """Restart the nodes."""
        for node in self.nodes:
            if not node.running:
                node.start()


@dataclass
class Pause(TargetedFault):
    """SIGSTOP; SIGCONT at the end."""

    kind: ClassVar[str] = "pause"

    def strike(self, stage: Stage) -> None:
        """Pause the nodes."""
        for node in self.nodes:
            node.pause()

    def end(self, stage: Stage) -> None:
        """Resume the nodes."""
        for node in self.nodes:
            node.resume()


@dataclass
class RollingRestart(Fault):
    """Every node is stopped gracefully and restarted, the next one when all are in step, as operators do."""

    kind: ClassVar[str] = "rolling_restart"

    def begin(self, stage: Stage) -> None:
        """Restart all nodes; return when the last one is back."""
        for node in list(stage.cluster.nodes):
            self.hit.append(node.name)
            _stop(node)
            self.start(stage, node)
            node.wait_ready()
            _wait_until_safe(stage, node)

    def start(self, stage: Stage, node: NodeProcess) -> None:
        """Start the stopped node."""
        node.start()

    def end(self, stage: Stage) -> None:
        """Do nothing: nothing is left to end."""


def _stop(node: NodeProcess) -> None:
    code = node.stop()
    if code != 0:
        raise BrokenPromiseError(f"{node.name} exited with {code} when it was stopped\n{node.log_tail()}")


def _wait_until_safe(stage: Stage, node: NodeProcess) -> None:
    """Wait until the cluster reports that all nodes are healthy, so that the next may be stopped."""

    def well() -> bool:
        try:
            checks = node.get_json("/v1/cluster/check")["checks"]
        except OSError:
            return False
        return all(check["ok"] for check in checks if check["name"] in {"members", "leader", "lag"})

    wait_for(lambda: well() and stage.cluster.leader() is not None, f"{node.name} and its cluster are healthy")
