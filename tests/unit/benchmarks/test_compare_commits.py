"""The turns, the ratios and the packages of a comparison of two commits; nothing here measures anything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.compare_commits import Ratio, check_out, compare, link_packages

PYPROJECT = '[tool.setuptools]\npackage-dir = { lmqcluster = "lmqcluster", lmqcluster_cli = "cli" }\n'


def tree(folder: Path) -> Path:
    """Make a working tree with two packages that tell where they are."""
    for place in ("lmqcluster", "cli"):
        (folder / place).mkdir(parents=True)
        (folder / place / "__init__.py").write_text(f"PLACE = {str(folder / place)!r}\n")
    (folder / "pyproject.toml").write_text(PYPROJECT)
    return folder


class FakeSide:
    """Costs more from one measurement to the next, as on a machine that becomes slower."""

    def __init__(self, name: str, calls: list[str], factor: float) -> None:
        self.name, self.calls, self.factor = name, calls, factor

    def measure(self, operation: str, windows: int) -> float:
        self.calls.append(f"{self.name} {operation}")
        return self.factor * (len(self.calls) + windows)

    def clear(self) -> None:
        self.calls.append(f"{self.name} clear")


def test_measurements_alternate_so_that_a_trend_favours_neither_side() -> None:
    calls: list[str] = []
    costs = compare([FakeSide("A", calls, 1.0), FakeSide("B", calls, 1.1)], 100)  # type: ignore[list-item]
    assert calls[:5] == ["A push", "B push", "B push", "A push", "A pull"]
    assert calls[-2:] == ["A clear", "B clear"]
    assert all(after / before == pytest.approx(1.1) for before, after in costs.values())


def test_a_ratio_has_the_interval_of_its_median() -> None:
    ratio = Ratio.of([(2.0, 2.0 + number / 50) for number in range(101)])
    assert (ratio.median, ratio.least, ratio.greatest) == pytest.approx((1.5, 1.0, 2.0))
    assert (ratio.low, ratio.high) == pytest.approx((1.4, 1.61))
    assert Ratio.of([(1.0, 2.0)]) == Ratio(2.0, 2.0, 2.0, 2.0, 2.0)


def test_a_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    assert check_out(str(tree(tmp_path / "tree")), tmp_path / "unused") == tmp_path / "tree"
    assert not (tmp_path / "unused").exists()


def test_nodes_run_the_code_of_the_tree_and_not_what_is_installed(tmp_path: Path) -> None:
    folder = link_packages(tree(tmp_path / "tree"), tmp_path / "packages")
    program = "import lmqcluster, lmqcluster_cli; print(lmqcluster.PLACE); print(lmqcluster_cli.PLACE)"
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    shown = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert shown.stdout.split() == [str(tmp_path / "tree" / place) for place in ("lmqcluster", "cli")]
