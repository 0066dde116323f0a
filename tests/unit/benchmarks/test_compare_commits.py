"""The turns, the ratios and the packages of a comparison of two commits; nothing here measures anything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.compare_commits import check_out, link_packages, order, ratios

PYPROJECT = '[tool.setuptools]\npackage-dir = { lmqcluster = "lmqcluster", lmqcluster_cli = "cli" }\n'


def tree(folder: Path) -> Path:
    """Make a working tree with two packages that tell where they are."""
    for place in ("lmqcluster", "cli"):
        (folder / place).mkdir(parents=True)
        (folder / place / "__init__.py").write_text(f"PLACE = {str(folder / place)!r}\n")
    (folder / "pyproject.toml").write_text(PYPROJECT)
    return folder


def test_each_side_has_as_many_turns_and_neighbours_are_compared() -> None:
    assert order(4) == [0, 1, 1, 0, 0, 1, 1, 0]
    assert [sorted(order(5)[at : at + 2]) for at in range(0, 10, 2)] == [[0, 1]] * 5
    # A machine that becomes slower and slower favours neither side.
    assert sum(at for at, side in enumerate(order(6)) if side) == sum(
        at for at, side in enumerate(order(6)) if not side
    )


def test_ratios_are_those_of_neighbours() -> None:
    assert ratios([1.0, 2.0, 4.0], [1.0, 2.2, 3.6]) == pytest.approx((1.0, 0.9, 1.1))
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        ratios([1.0, 2.0], [1.0])


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
