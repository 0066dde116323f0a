"""The results of `tests.benchmarks.scale` as a table and as JSON, and plots of the figures that depend on the depth of
a queue.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib import pyplot as plt

from .plots import STYLE

__all__ = ["Depth", "Report", "percentile"]

MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Depth:
    """The performance of a queue with a given number of messages.

    Attributes:
        messages: number of waiting messages.
        push_rate, pull_rate: single pushes, and single pulls with their acks, per second, with 256 in flight.
        push_p99_ms, pull_p99_ms: of one at a time.
        memory_bytes: of the node with the largest use.
    """

    messages: int
    push_rate: float
    pull_rate: float
    push_p99_ms: float
    pull_p99_ms: float
    memory_bytes: int


@dataclass(slots=True)
class Report:
    """The rows so far; each is printed at once."""

    rows: list[dict[str, str]] = field(default_factory=list)
    depths: list[Depth] = field(default_factory=list)

    def row(self, reason: str, what: str, asked: str, figure: str) -> None:
        """Add a figure.

        Args:
            reason: which of N1 to N12 it belongs to.
            what: the measured quantity.
            asked: its target.
        """
        if not self.rows:
            print("| | What | Asked | Measured |\n|---|---|---|---|")
        self.rows.append({"reason": reason, "what": what, "asked": asked, "figure": figure})
        print(f"| {reason} | {what} | {asked} | {figure} |", flush=True)

    def write(self, path: Path) -> None:
        """Write everything as JSON."""
        found: dict[str, Any] = {"rows": self.rows, "depths": [asdict(depth) for depth in self.depths]}
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Report:
        """Read a file of `write`."""
        found = json.loads(path.read_text(encoding="utf-8"))
        return cls(found["rows"], [Depth(**depth) for depth in found["depths"]])

    def draw(self, folder: Path) -> list[Path]:
        """Draw rates, times and memory against the depth; return the files."""
        folder.mkdir(parents=True, exist_ok=True)
        depths = [depth.messages for depth in self.depths]
        rates = {
            "push": [depth.push_rate for depth in self.depths],
            "pull + ack": [depth.pull_rate for depth in self.depths],
        }
        times = {
            "push": [depth.push_p99_ms for depth in self.depths],
            "pull + ack": [depth.pull_p99_ms for depth in self.depths],
        }
        memory = {"largest node": [depth.memory_bytes / MIB for depth in self.depths]}
        return [
            _lines(folder / "depth-rate.svg", depths, rates, "operations a second, 256 in flight"),
            _lines(folder / "depth-p99.svg", depths, times, "p99 in milliseconds, one at a time"),
            _lines(folder / "depth-memory.svg", depths, memory, "memory in MiB"),
        ]


def _lines(path: Path, depths: list[int], series: dict[str, list[float]], label: str) -> Path:
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
        for name, values in series.items():
            axes.plot(depths, values, marker="o", label=name)
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_xlabel("messages in the queue")
        axes.set_ylabel(label)
        axes.legend(frameon=False)
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)
    return path


def percentile(values: Iterable[float], share: float) -> float:
    """Return the value below which this share of the values is."""
    found = sorted(values)
    return found[min(int(len(found) * share), len(found) - 1)]
