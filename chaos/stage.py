"""The context of faults: the cluster, the drill's random numbers, and notes for the report."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from .load.history import History
from .nodes.cluster import Cluster
from .nodes.node_process import NodeProcess

__all__ = ["TARGETS", "Stage"]

TARGETS = ("leader", "follower", "followers", "majority", "all", "any")
"""Nodes that a fault can hit, by role at the moment when it begins; or a node's name."""


@dataclass
class Stage:
    """The context of faults.

    Attributes:
        cluster: the cluster that faults hit.
        rng: the source of every choice of the drill.
        history: records the operations of faults that act as clients.
        queues: names of the queues under load.
        lease_s: lease of messages in these queues.
        notes: what faults did, for the report.
        time_factor: factor for time limits.
        may_stop: names of nodes with a bad disk, which may stop because of it, even some time later.
    """

    cluster: Cluster
    rng: random.Random
    history: History
    queues: Sequence[str]
    lease_s: float
    time_factor: float = 1.0
    notes: list[str] = field(default_factory=list)
    may_stop: set[str] = field(default_factory=set)

    def revive(self) -> None:
        """Restart nodes that stopped because of their disks, as a supervisor does."""
        for node in self.cluster.nodes:
            if node.name in self.may_stop and not node.running:
                self.notes.append(f"{node.name} stopped with {node.exit_code} because of its disk")
                node.start()

    def choose(self, target: str) -> list[NodeProcess]:
        """Return the nodes that a target currently means.

        Raises:
            DrillError: there is no leader, or no such node.
        """
        if target not in TARGETS:
            return [self.cluster.node(target)]
        nodes = list(self.cluster.nodes)
        if target == "all":
            return nodes
        if target == "any":
            return [self.rng.choice(nodes)]
        leader = self.cluster.leader()
        followers = [node for node in nodes if node is not leader]
        if target == "leader":
            return [leader]
        if target == "follower":
            return [self.rng.choice(followers)]
        if target == "followers":
            return followers
        return [leader, *self.rng.sample(followers, len(nodes) // 2)]
