"""Planted bugs in tasks that move messages: the judge of the log finds each within a few runs."""

from __future__ import annotations

from tests.simulation.planted_moves import PLANTED_MOVES
from tests.simulation.planted_search import each_is_found

KINDS = {
    "running tasks lost in snapshots": {"states differ", "task overdue"},
    "messages lost by steps": {"lost by a task"},
    "three times the rate": {"task too fast"},
}

test_the_bug_is_found = each_is_found(
    PLANTED_MOVES, KINDS, range(1, 25), {"running tasks lost in snapshots": "transfer"}
)
