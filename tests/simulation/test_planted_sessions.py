"""Planted bugs in sessions, locks and waiting pushes: the judge of the log finds each within a few runs."""

from __future__ import annotations

import pytest

from tests.simulation.planted_sessions import PLANTED_SESSIONS
from tests.simulation.tasks import Task

SEEDS = range(1, 17)
KINDS = {
    "leases of ended sessions kept": {"session out of order"},
    "leases of ended sessions to the tail": {"session out of order"},
    "lost responses kept": {"wrong result: lost deliveries"},
    "lost leases confirmed": {"confirmed though lost"},
    "sessions that live too long": {"session ended at the wrong time"},
    "fencing tokens by lock": {"token not larger"},
    "locks shared": {"two holders of a lock"},
    "locks that outlive their session": {"lock not handed on", "wrong result: token"},
    "turns taken by the newest": {"two at an exclusive queue", "session out of order"},
    "last waiting push first": {"waiting pushes out of order", "bound exceeded", "waiting push not stored"},
    "pushes pass those that wait": {"bound exceeded"},
    "free places wake no push": {"waiting push not stored"},
}
"""The kinds of violations by bug. Some runs may show other kinds."""


def test_every_planted_bug_has_its_kinds() -> None:
    assert KINDS.keys() == PLANTED_SESSIONS.keys()


@pytest.mark.parametrize("name", PLANTED_SESSIONS)
def test_the_bug_is_found(name: str) -> None:
    """Check that the bug is found; the runs themselves show that the program keeps these guarantees."""
    with PLANTED_SESSIONS[name]():
        assert any(Task("queues", "calm", seed).run()[0].kinds & KINDS[name] for seed in SEEDS)
