"""The disk budget of a node: with an explicit limit, and with a reserve of free space."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from lmqcluster.node.process.disk_budget import RESERVE_BYTES, DiskBudget

GIB = 1 << 30


def test_an_explicit_limit(tmp_path: Path) -> None:
    budget = DiskBudget(tmp_path, 10 * GIB)
    budget.look(8 * GIB)
    assert (budget.used_bytes, budget.limit_bytes, budget.is_near, budget.shortage) == (8 * GIB, 10 * GIB, False, "")
    budget.look(10 * GIB)
    assert (budget.is_near, budget.shortage) == (True, "")
    budget.look(11 * GIB)
    assert budget.shortage == "snapshots and pages take 11.0 GiB, 10.0 GiB are allowed (disk_bytes_max)"
    budget.look(3)
    assert (budget.is_near, budget.shortage) == (False, "")


@pytest.mark.parametrize(("total", "reserve"), [(50 * GIB, 5 * GIB), (500 * GIB, RESERVE_BYTES)])
def test_without_one_the_reserve_stays_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, total: int, reserve: int
) -> None:
    free = reserve + 3
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: SimpleNamespace(total=total, free=free))
    budget = DiskBudget(tmp_path, 0)
    budget.look(100)
    assert (budget.used_bytes, budget.limit_bytes, budget.is_near, budget.shortage) == (100, 103, False, "")
    free = reserve - 1
    budget.look(100)
    assert (budget.limit_bytes, budget.is_near) == (100, True)
    kept = {5 * GIB: "5120 MiB", 10 * GIB: "10.0 GiB"}[reserve]
    assert f"{kept} are kept free" in budget.shortage
