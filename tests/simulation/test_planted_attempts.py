"""Planted bugs in pushes under attempts: their judge finds each within a few runs."""

from __future__ import annotations

import pytest

from tests.simulation.planted_attempts import PLANTED_ATTEMPTS
from tests.simulation.tasks import Task

SEEDS = range(1, 17)
KINDS = {
    "snapshots without attempts": ("snapshot", {"attempt stored twice", "acknowledged attempt not stored"}),
    "attempts end after a second": ("calm", {"attempt stored twice"}),
    "only the latest attempt known": ("calm", {"attempt stored twice"}),
    "results of another client": ("calm", {"acknowledged attempt not stored"}),
}
"""The profile and the kinds of violations by bug. Some runs may show other kinds."""


def test_every_planted_bug_has_its_kinds() -> None:
    assert KINDS.keys() == PLANTED_ATTEMPTS.keys()


@pytest.mark.parametrize("name", PLANTED_ATTEMPTS)
def test_the_bug_is_found(name: str) -> None:
    profile, kinds = KINDS[name]
    with PLANTED_ATTEMPTS[name]():
        assert any(Task("queues", profile, seed).run()[0].kinds & kinds for seed in SEEDS)
