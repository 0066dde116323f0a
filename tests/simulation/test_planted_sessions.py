"""Planted bugs in sessions, locks and waiting pushes: the judge of the log finds each within a few runs."""

from __future__ import annotations

from tests.simulation.planted_search import each_is_found
from tests.simulation.planted_sessions import PLANTED_SESSIONS

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

test_the_bug_is_found = each_is_found(PLANTED_SESSIONS, KINDS, range(1, 17))
