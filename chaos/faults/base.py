"""The base classes of faults, and the table of faults by the name that scenarios use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from ..nodes.node_process import NodeProcess
from ..stage import Stage

__all__ = ["KINDS", "Fault", "TargetedFault", "names"]

KINDS: dict[str, type[Fault]] = {}
"""Faults by the name that scenarios use."""


@dataclass
class Fault(ABC):
    """One fault with a begin and an end. Its other fields are the settings in a scenario."""

    kind: ClassVar[str] = ""
    hit: list[str] = field(default_factory=list, init=False)
    """Nodes whose clients may notice it, known once it has begun."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.kind:
            KINDS[cls.kind] = cls

    @abstractmethod
    def begin(self, stage: Stage) -> None:
        """Begin the fault. May block."""

    @abstractmethod
    def end(self, stage: Stage) -> None:
        """End the fault. Does not wait for the cluster to recover."""

    def check(self) -> str | None:
        """Return the reason why the settings are invalid; None if they are valid."""
        return None


@dataclass
class TargetedFault(Fault):
    """A fault of some nodes.

    Attributes:
        target: the nodes to hit: one of `stage.TARGETS`, or a node's name.
    """

    target: str = "leader"
    nodes: list[NodeProcess] = field(default_factory=list, init=False)

    def begin(self, stage: Stage) -> None:
        """Choose the nodes and apply the fault to them."""
        self.nodes = stage.choose(self.target)
        self.hit = names(self.nodes)
        self.strike(stage)

    @abstractmethod
    def strike(self, stage: Stage) -> None:
        """Apply the fault to the chosen nodes."""


def names(nodes: Sequence[NodeProcess]) -> list[str]:
    """Return the names of nodes."""
    return [node.name for node in nodes]
