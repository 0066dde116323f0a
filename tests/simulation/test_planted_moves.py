"""Planted bugs in tasks that move messages: the judge of the log finds each within a few runs."""

from __future__ import annotations

import pytest

from tests.simulation.planted_moves import PLANTED_MOVES
from tests.simulation.tasks import Task

SEEDS = range(1, 25)
KINDS = {
    "running tasks lost in snapshots": ("transfer", {"states differ", "task overdue"}),
    "messages lost by steps": ("calm", {"lost by a task"}),
    "three times the rate": ("calm", {"task too fast"}),
}
"""The profile and the kinds of violations by bug. Some runs may show other kinds."""


def test_every_planted_bug_has_its_kinds() -> None:
    assert KINDS.keys() == PLANTED_MOVES.keys()


@pytest.mark.parametrize("name", PLANTED_MOVES)
def test_the_bug_is_found(name: str) -> None:
    profile, kinds = KINDS[name]
    with PLANTED_MOVES[name]():
        assert any(Task("queues", profile, seed).run()[0].kinds & kinds for seed in SEEDS)
