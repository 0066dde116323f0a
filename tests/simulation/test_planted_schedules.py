"""Planted bugs in schedules: the judge of the log finds each within a few runs."""

from __future__ import annotations

import pytest

from tests.simulation.planted_schedules import PLANTED_SCHEDULES
from tests.simulation.tasks import Task

SEEDS = range(1, 25)
KINDS = {
    "supplies taken twice": {"due time pushed twice", "due times differ", "upcoming due times differ"},
    "intervals that drift": {"due time not pushed", "due times differ"},
    "pauses that miss nothing": {"due times differ", "due time pushed twice"},
    "no supplies": {"schedule without due times"},
}
"""The kinds of violations by bug. Some runs may show other kinds."""


def test_every_planted_bug_has_its_kinds() -> None:
    assert KINDS.keys() == PLANTED_SCHEDULES.keys()


@pytest.mark.parametrize("name", PLANTED_SCHEDULES)
def test_the_bug_is_found(name: str) -> None:
    with PLANTED_SCHEDULES[name]():
        assert any(Task("queues", "calm", seed).run()[0].kinds & KINDS[name] for seed in SEEDS)
