"""Planted bugs in schedules: the judge of the log finds each within a few runs."""

from __future__ import annotations

from tests.simulation.planted_schedules import PLANTED_SCHEDULES
from tests.simulation.planted_search import each_is_found

KINDS = {
    "supplies taken twice": {"due time pushed twice", "due times differ", "upcoming due times differ"},
    "intervals that drift": {"due time not pushed", "due times differ"},
    "pauses that miss nothing": {"due times differ", "due time pushed twice"},
    "no supplies": {"schedule without due times"},
}

test_the_bug_is_found = each_is_found(PLANTED_SCHEDULES, KINDS, range(1, 25))
