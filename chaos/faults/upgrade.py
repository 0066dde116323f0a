"""A rolling upgrade: every node changes to a newer program, and the cluster to the newer machine version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..errors import BrokenPromiseError, DrillError
from ..nodes.cluster import wait_for
from ..nodes.node_process import NodeProcess
from ..nodes.programs import next_release
from ..stage import Stage
from .process import RollingRestart

__all__ = ["RollingUpgrade"]


@dataclass
class RollingUpgrade(RollingRestart):
    """A rolling restart from the older program that the nodes run to the installed one.

    If they already run the installed program, they change to a stand-in for its next release: the same program with
    another version that supports one machine version more. At the end, the new behaviour must be active. It must not be
    active while an older program runs: that node would stop, and the drill would report it.
    """

    kind: ClassVar[str] = "rolling_upgrade"
    _newer: tuple[str, ...] | None = field(default=None, init=False)

    def begin(self, stage: Stage) -> None:
        """Upgrade all nodes; return when the newest common behaviour is active everywhere."""
        nodes = list(stage.cluster.nodes)
        if all(node.program is None for node in nodes):
            self._newer = next_release(stage.cluster.folder / "next")
        before = {node.name: _about(node) for node in nodes}
        super().begin(stage)
        try:
            wait_for(lambda: _is_switched_on(nodes), "all nodes use the newest behaviour that all of them support")
        except DrillError as exc:
            raise BrokenPromiseError(str(exc)) from exc
        stage.notes += [
            f"{node.name} was upgraded from version {before[node.name]} to {_about(node)}" for node in nodes
        ]

    def start(self, stage: Stage, node: NodeProcess) -> None:
        """Start the newer program in place of the older one."""
        node.program = self._newer
        node.start()


def _status(node: NodeProcess) -> dict[str, Any]:
    status: dict[str, Any] = node.get_json("/v1/cluster")
    return status


def _about(node: NodeProcess) -> str:
    """Return the version of the program and of the active behaviour, which very old programs do not report."""
    status = _status(node)
    return f"{status['version']} (machine version {status.get('machine_version', 'not reported')})"


def _is_switched_on(nodes: Sequence[NodeProcess]) -> bool:
    """Return whether the newest common behaviour of all members is active on all nodes."""
    for node in nodes:
        status = _status(node)
        understood = [member["machine_version"] for member in status["nodes"]]
        if None in understood or status["machine_version"] != min(understood):
            return False
    return True
