"""What can go wrong: the base of all faults, and how they are found by the name that scenarios use."""

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
    """One thing that goes wrong, and is mended. Its other fields are what a scenario can set."""

    kind: ClassVar[str] = ""
    hit: list[str] = field(default_factory=list, init=False)
    """Nodes whose clients may see it, known once it has begun."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.kind:
            KINDS[cls.kind] = cls

    @abstractmethod
    def begin(self, stage: Stage) -> None:
        """Break it. May take its time."""

    @abstractmethod
    def end(self, stage: Stage) -> None:
        """Mend it. Does not wait for the cluster to recover."""

    def check(self) -> str | None:
        """Why the values do not fit, None if they do."""
        return None


@dataclass
class TargetedFault(Fault):
    """A fault of some nodes.

    Attributes:
        target: whom it hits: one of `stage.TARGETS`, or a node's name.
    """

    target: str = "leader"
    nodes: list[NodeProcess] = field(default_factory=list, init=False)

    def begin(self, stage: Stage) -> None:
        """Choose the nodes and break them."""
        self.nodes = stage.choose(self.target)
        self.hit = names(self.nodes)
        self.strike(stage)

    @abstractmethod
    def strike(self, stage: Stage) -> None:
        """Break the chosen nodes."""


def names(nodes: Sequence[NodeProcess]) -> list[str]:
    """Their names."""
    return [node.name for node in nodes]
