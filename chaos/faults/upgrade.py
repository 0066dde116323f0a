"""A rolling upgrade: every node goes from one program to a newer one, and the cluster to what the newer one understands."""

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
    """As a rolling restart, from the older program that the nodes run to the installed one.

    If they run the installed program already, they go to a stand-in for its next release: the same program under another version,
    that understands one machine version more. In the end new behaviour must be switched on. It must not be while an older program
    runs: that one would stop, and the drill would say so.
    """

    kind: ClassVar[str] = "rolling_upgrade"
    _newer: tuple[str, ...] | None = field(default=None, init=False)

    def begin(self, stage: Stage) -> None:
        """Upgrade them all; lasts until the behaviour that all understand is in use everywhere."""
        nodes = list(stage.cluster.nodes)
        if all(node.program is None for node in nodes):
            self._newer = next_release(stage.cluster.folder / "next")
        before = {node.name: _about(node) for node in nodes}
        super().begin(stage)
        try:
            wait_for(lambda: _is_switched_on(nodes), "all nodes use the newest behaviour that all of them understand")
        except DrillError as exc:
            raise BrokenPromiseError(str(exc)) from exc
        stage.told += [f"{node.name} went from version {before[node.name]} to {_about(node)}" for node in nodes]

    def start(self, stage: Stage, node: NodeProcess) -> None:
        """Start the newer program in place of the older one."""
        node.program = self._newer
        node.start()


def _status(node: NodeProcess) -> dict[str, Any]:
    status: dict[str, Any] = node.get_json("/v1/cluster")
    return status


def _about(node: NodeProcess) -> str:
    """Version of its program, and of the behaviour that is in use, which very old programs do not tell."""
    status = _status(node)
    return f"{status['version']} (machine version {status.get('machine_version', 'not told')})"


def _is_switched_on(nodes: Sequence[NodeProcess]) -> bool:
    """Whether the newest behaviour that all members understand is in use on all nodes."""
    for node in nodes:
        status = _status(node)
        understood = [member["machine_version"] for member in status["nodes"]]
        if None in understood or status["machine_version"] != min(understood):
            return False
    return True
