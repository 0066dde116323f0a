"""Faults of processes: killed, paused, stopped, restarted one by one. How they are upgraded is in `upgrade_faults`."""

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
    """Kill -9; started again at the end."""

    kind: ClassVar[str] = "kill"

    def strike(self, stage: Stage) -> None:
        """Kill all of them before waiting for any."""
        for node in self.nodes:
            node.kill()

    def end(self, stage: Stage) -> None:
        """Start them again."""
        for node in self.nodes:
            if not node.running:
                node.start()


@dataclass
class Stop(TargetedFault):
    """An orderly stop with SIGTERM; started again at the end."""

    kind: ClassVar[str] = "stop"

    def strike(self, stage: Stage) -> None:
        """Stop one after the other."""
        for node in self.nodes:
            _stop(node)

    def end(self, stage: Stage) -> None:
        """Start them again."""
        for node in self.nodes:
            if not node.running:
                node.start()


@dataclass
class Pause(TargetedFault):
    """SIGSTOP; SIGCONT at the end."""

    kind: ClassVar[str] = "pause"

    def strike(self, stage: Stage) -> None:
        """Freeze them."""
        for node in self.nodes:
            node.pause()

    def end(self, stage: Stage) -> None:
        """Let them go on."""
        for node in self.nodes:
            node.resume()


@dataclass
class RollingRestart(Fault):
    """Every node is stopped in order and started again, the next one when all are in step, as operators do it."""

    kind: ClassVar[str] = "rolling_restart"

    def begin(self, stage: Stage) -> None:
        """Restart them all; lasts until the last one is back."""
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
        """Nothing is left to mend."""


def _stop(node: NodeProcess) -> None:
    code = node.stop()
    if code != 0:
        raise BrokenPromiseError(f"{node.name} exited with {code} when it was stopped\n{node.log_tail()}")


def _wait_until_safe(stage: Stage, node: NodeProcess) -> None:
    """Wait until the cluster says that all nodes are well, so that the next may be stopped."""

    def well() -> bool:
        try:
            checks = node.get_json("/v1/cluster/check")["checks"]
        except OSError:
            return False
        return all(check["ok"] for check in checks if check["name"] in {"members", "leader", "lag"})

    wait_for(lambda: well() and stage.cluster.leader() is not None, f"{node.name} and its cluster are well")
