"""Changes of membership under load, through the routes that ``lmq-admin`` uses. Their duration is not limited."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..errors import DrillError
from ..nodes.node_process import NodeProcess
from ..stage import Stage
from .base import Fault, TargetedFault, names

__all__ = ["Join", "Leave", "Replace"]

_CHANGE_S = 180.0


@dataclass
class Join(Fault):
    """A spare node joins."""

    kind: ClassVar[str] = "join"

    def begin(self, stage: Stage) -> None:
        """Start a spare node and let it join; return when it is a member and has caught up."""
        self.hit = [_join(stage).name]

    def end(self, stage: Stage) -> None:
        """Do nothing: the node stays."""


@dataclass
class Leave(TargetedFault):
    """A node leaves, and is stopped; it can join again as a spare."""

    kind: ClassVar[str] = "leave"
    target: str = "follower"

    def strike(self, stage: Stage) -> None:
        """Make the nodes leave."""
        for node in self.nodes:
            _change(node, "/v1/cluster/leave", {})
            node.stop()
            stage.notes.append(f"{node.name} left")
            stage.cluster.nodes.remove(node)
            stage.cluster.spares.append(node)
            stage.cluster.allow_clients(node, allowed=False)

    def end(self, stage: Stage) -> None:
        """Do nothing: the nodes stay away."""


@dataclass
class Replace(TargetedFault):
    """A node is lost for good: it is removed through another one, and a spare joins in its place."""

    kind: ClassVar[str] = "replace"
    target: str = "follower"

    def strike(self, stage: Stage) -> None:
        """Kill a node, remove it, and let a spare join."""
        cluster = stage.cluster
        for node in self.nodes:
            node.kill()
            cluster.nodes.remove(node)
            other = cluster.leader()
            _change(other, "/v1/cluster/remove", {"node": node.name, "force": True})
            stage.notes.append(f"{node.name} was lost for good and removed through {other.name}")
            self.hit.append(_join(stage).name)

    def end(self, stage: Stage) -> None:
        """Do nothing: the new node stays."""


def _join(stage: Stage) -> NodeProcess:
    cluster = stage.cluster
    if not cluster.spares:
        raise DrillError(f"no spare node is left to join {', '.join(names(cluster.nodes))}: add spares to the scenario")
    spare = cluster.spares.pop(0)
    if not spare.running:
        spare.start()
        spare.wait_ready()
    contact = stage.rng.choice([node for node in cluster.nodes if node.running])
    _change(spare, "/v1/cluster/join", {"peer": f"127.0.0.1:{contact.ports.raft}", "discard_data": True})
    cluster.nodes.append(spare)
    cluster.allow_clients(spare, allowed=True)
    stage.notes.append(f"{spare.name} joined through {contact.name}")
    return spare


def _change(node: NodeProcess, path: str, body: dict[str, object]) -> None:
    try:
        node.get_json(path, body=body, timeout_s=_CHANGE_S)
    except OSError as exc:
        raise DrillError(f"the change of membership failed: {exc}\n{node.log_tail()}") from exc
