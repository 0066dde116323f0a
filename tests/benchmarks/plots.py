"""Draws the results of ``python -m tests.benchmarks`` as SVG: rates and latencies, by system and route.

python -m tests.benchmarks.plots RESULT.json FOLDER
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib import pyplot as plt

__all__ = ["draw", "main"]

LATENCY_MODE: Final = "one at a time"
RATE_MODES: Final = ("pipelined", "batched")
_BAR: Final = 0.8
_COLOURS: Final = ("#2a78c2", "#e08a1e", "#3d9a57", "#a3479b")
STYLE: Final[dict[Any, Any]] = {
    # The same in each run, and readable without fonts of this machine.
    "svg.hashsalt": "lmqcluster",
    "svg.fonttype": "none",
    "font.size": 9,
    "figure.facecolor": "white",
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def draw(result: dict[str, Any], folder: Path) -> list[Path]:
    """Write a plot for each measured mode; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for mode in (*RATE_MODES, LATENCY_MODE):
        rows = [row for row in result["rows"] if row["mode"] == mode]
        if rows:
            path = folder / f"{mode.replace(' ', '-')}.svg"
            _bars(path, rows, list(result["systems"]), mode)
            written.append(path)
    return written


def _bars(path: Path, rows: list[dict[str, Any]], systems: list[str], mode: str) -> None:
    field, label = ("p50_ms", "p50 in milliseconds") if mode == LATENCY_MODE else ("rate", "messages a second")
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(8, 0.6 + 0.22 * len(rows) * len(systems)), layout="constrained")
        thickness = _BAR / len(systems)
        for place, system in enumerate(systems):
            ends = [row["figures"].get(system, {}).get(field, 0) for row in rows]
            middles = [number + (place - (len(systems) - 1) / 2) * thickness for number in range(len(rows))]
            colour = _COLOURS[place % len(_COLOURS)]
            bars = axes.barh(middles, ends, thickness, label=system, color=colour)
            texts = [f"{end:,.2f}" if mode == LATENCY_MODE else f"{end:,.0f}" for end in ends]
            axes.bar_label(bars, texts, padding=3, fontsize=8)
        names = [f"{row['operation']}, {row['through']}, {row['size_bytes']:,} B" for row in rows]
        axes.set_yticks(range(len(rows)), names)
        axes.invert_yaxis()
        axes.set_xlabel(label)
        axes.set_title(f"{mode}: {label}", loc="left")
        axes.margins(x=0.12)
        if len(systems) > 1:
            axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=len(systems), frameon=False)
        # A date would change the file in each run.
        figure.savefig(path, format="svg", metadata={"Date": None})
        plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program. Return the exit status."""
    options = argparse.ArgumentParser(prog="python -m tests.benchmarks.plots", description="Draw results as SVG.")
    options.add_argument("result", type=Path, help="JSON of python -m tests.benchmarks")
    options.add_argument("folder", type=Path, help="folder for the plots")
    given = options.parse_args(arguments)
    written = draw(json.loads(given.result.read_text(encoding="utf-8")), given.folder)
    if not written:
        print(f"error: {given.result} has no rows to draw", file=sys.stderr)
        return 1
    print("\n".join(str(path) for path in written))
    return 0


if __name__ == "__main__":
    sys.exit(main())
