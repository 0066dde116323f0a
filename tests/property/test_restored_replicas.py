"""Replicas that write snapshots, or are restored from them, answer like one that only applies the log."""

from __future__ import annotations

import pytest

from .restored_replicas import check, small_bounds


@pytest.mark.parametrize("first", range(0, 600, 100))
def test_replicas_do_not_depend_on_snapshots(first: int) -> None:
    with small_bounds():
        for seed in range(first, first + 100):
            check(seed)
