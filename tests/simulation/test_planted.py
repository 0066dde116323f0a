"""Bugs that a review planted and that no test caught then: the tests now find each bug and accept the correct
program.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.page_scenarios import PAGE_SCENARIOS
from tests.simulation.planted import PLANTED
from tests.simulation.rule_scenarios import RULE_SCENARIOS
from tests.simulation.test_switch_off import Case

CASES = [
    Case("state frozen later than its index is read", "node", "states differ", profile="disk", seed=1),
    Case("newest members in the header of a snapshot", "node", "members of a snapshot", profile="members", seed=21),
    Case("clock of the leader set back by each apply", "node", "log time runs slow", profile="calm", seed=1),
    Case("log time by the wall clock after a restart", "node", "log time jumps", profile="clockall", seed=1),
    Case(
        "snapshot up to the log's end counts as installed",
        "core",
        "not converged",
        script="snapshot shorter than a conflicting log",
    ),
    Case(
        "members changed before an entry of the term",
        "core",
        "members changed too soon",
        script="change before an entry of the term",
    ),
    Case("earlier terms committed by counting", "core", "earlier term committed", script="earlier term on a majority"),
    Case("no replica judges the digests", "node", "divergent replica continues", script="replica that differs"),
    Case(
        "version of the members heard so far", "node", "upgraded too soon", script="upgrade while a member is unknown"
    ),
    Case("version of the members heard so far", "queues", "upgraded too soon", profile="upgrade", seed=5),
    Case("nothing is throttled", "node", "memory full", script="flood on a slow disk"),
    Case("throttled by pages that are never written", "node", "no progress", script="flood on a full disk"),
    Case("pages are not waited for", "node", "exception", script="page damaged in use"),
    Case("pages are not waited for", "queues", "exception", profile="paging", seed=35),
    Case("no newer state is asked for", "node", "exception", script="page left behind"),
    Case("no newer state is asked for", "queues", "exception", profile="paging", seed=9),
    Case("no newer state is asked for", "node", "exception", script="page missing at the start"),
    Case("log cut up to what is applied", "core", "log cut too far", profile="disk", seed=1),
    Case("a refused snapshot is kept", "node", "snapshot not applied", script="newer state refused"),
    Case(
        "a snapshot without its pages is kept", "node", "not caught up", script="page of a snapshot that no member has"
    ),
]


MENDED = {"change that was truncated", "call to lead that cannot be followed"}
"""Scripts of former faults that are fixed: `test_scenarios` runs them."""


def test_every_planted_bug_has_a_case() -> None:
    assert {case.switch for case in CASES} == PLANTED.keys()
    assert {case.script for case in CASES} >= (RULE_SCENARIOS.keys() | PAGE_SCENARIOS.keys()) - MENDED


SEEDS_MAX = 12
"""Number of seeds to try: a change of the program changes the runs, so the bug may show with a later seed."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.switch} {case.script or case.profile}")
def test_the_bug_is_found(case: Case) -> None:
    """Check that the bug is found; the runs and scripts themselves show that the program keeps these guarantees."""
    seeds = range(case.seed, case.seed + (SEEDS_MAX if case.profile else 1))
    with PLANTED[case.switch]():
        assert any(case.kind in replace(case, seed=seed).run() for seed in seeds)
