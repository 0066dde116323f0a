"""The simulator must detect the lack of each of our fixes: with any one switched off, a run violates a guarantee.

No switch restores code that no longer exists: the 32-bit offsets of the library's journal (D12), its own commands and
their versions (D17), its serializer and its forked children (D31, D32), its chunks, pickles and open utility messages
(D27 to D29: `tests/integration/test_bad_input_raft.py`). D26 cannot be restored alone, because members vote only for
members. D30 belongs to the real transport (`tests/unit/replication/test_connections.py`); D33 costs only time.
"""

from __future__ import annotations

from dataclasses import dataclass
from unittest import mock

import pytest

import lmqcluster.replication.storage.meta
from tests.simulation.own_scenarios import OWN_SCENARIOS
from tests.simulation.page_scenarios import PAGE_SCENARIOS
from tests.simulation.rule_scenarios import RULE_SCENARIOS
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.subjects import SUBJECTS
from tests.simulation.switches import SWITCHES
from tests.simulation.tasks import Task

ALL = {**SCENARIOS, **OWN_SCENARIOS, **RULE_SCENARIOS, **PAGE_SCENARIOS}


@dataclass(frozen=True)
class Case:
    """A run that shows the fix: a script, or a seed of a profile; and a guarantee that it violates without the fix."""

    switch: str
    subject: str
    kind: str
    script: str = ""
    profile: str = ""
    seed: int = 0

    def run(self) -> set[str]:
        """Return the kinds of guarantees that are violated."""
        if self.script:
            scenario = ALL[self.script]
            subject = SUBJECTS[self.subject](log_entries=scenario.log_entries, durability=scenario.durability)
            return scenario.run(subject)
        return Task(self.subject, self.profile, self.seed).run()[0].kinds


CASES = [
    Case("D1", "core", "committed entry removed", profile="calm", seed=1),
    Case("D2", "core", "commits differ", profile="net", seed=2),
    Case("D3", "core", "commit without majority", script="D3 reply of an earlier term"),
    Case("D4", "core", "not converged", script="D4 snapshot refused"),
    Case("D5", "core", "commit without majority", script="D5 snapshot behind the log"),
    Case("D6", "core", "durable entry lost", profile="crash", seed=1),
    Case("D7", "core", "durable entry lost", profile="power", seed=2),
    Case("D8", "core", "durable entry lost", profile="power", seed=2),
    Case("D8 lone member", "core", "commit without majority", profile="single", seed=1),
    Case("D8 held replies", "node", "commit without majority", profile="power", seed=1),
    Case("D9", "core", "log matching", profile="power", seed=2),
    Case("D10", "core", "term went back", script="reply of an earlier life"),
    Case("D11", "node", "commit without majority", profile="full", seed=3),
    Case("D13", "core", "log cut too far", profile="crash", seed=2),
    Case("D14", "core", "not converged", script="D14 a long term"),
    Case("D15", "node", "exception", script="D15 poisoned command"),
    Case("D16", "node", "exception", script="D16 raising callback"),
    Case("D18", "node", "log cut too far", script="D18 damaged snapshot"),
    Case("D19", "core", "exception", profile="net", seed=2),
    Case("D20", "node", "not answered", profile="restart", seed=3),
    Case("D20 snapshot over what waits", "node", "stuck", profile="snapshot", seed=1),
    Case("D21", "node", "batches out of order", profile="restart", seed=1),
    Case("D22", "core", "not converged", script="D22 candidate cut off"),
    Case("D23", "core", "leader disturbed", script="D23 deaf follower"),
    Case("D24", "core", "commits differ", script="D24 two changes at once"),
    Case("D25", "core", "not converged", script="joins by a list that fails"),
    Case("tail written again", "core", "exception", profile="full", seed=8),
    Case("log kept for a snapshot", "node", "not caught up", script="snapshot under load"),
    Case("receipts of a lost log", "node", "salt not renewed", script="power of all in process"),
    Case("origin and incarnation", "node", "stuck", profile="lostclock", seed=3),
    Case("recovering", "core", "leader lacks committed entry", profile="restart", seed=2),
    Case("founding", "core", "two leaders in a term", profile="lostdisk", seed=4),
    Case("founders that differ", "node", "founded by some", script="founders that differ"),
    Case("forgetful", "core", "commits differ", script="disk lost behind a stale leader"),
    Case("proof of leadership", "core", "commits differ", script="disk lost behind a stale leader"),
    Case("snapshots in durability process", "core", "exception", profile="process", seed=2),
    Case("learner", "core", "no progress", script="learner that cannot catch up"),
]


def test_every_switch_has_a_case() -> None:
    assert {case.switch for case in CASES} == SWITCHES.keys()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.switch)
def test_the_fix_is_missed(case: Case) -> None:
    assert case.run() == set()
    with SWITCHES[case.switch]():
        assert case.kind in case.run()


@pytest.mark.parametrize("seed", range(1, 5))
def test_a_run_survives_a_later_incarnation_of_the_same_origin(seed: int) -> None:
    """Check this for a data directory of an earlier program, or an old copy of one."""
    with mock.patch.object(lmqcluster.replication.storage.meta, "_fresh_origin", lambda node_id: node_id):
        assert Task("node", "lostclock", seed).run()[0].kinds == set()
