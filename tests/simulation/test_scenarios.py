"""Mended defects of the audit: each script finds a violation in stock PySyncObj and none in lmqcluster."""

import pytest

from tests.simulation.own_scenarios import OWN_SCENARIOS
from tests.simulation.page_scenarios import PAGE_SCENARIOS
from tests.simulation.rule_scenarios import RULE_SCENARIOS
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.subjects import SUBJECTS

ALL = {**SCENARIOS, **OWN_SCENARIOS, **RULE_SCENARIOS, **PAGE_SCENARIOS}
OURS = [(name, subject) for name, scenario in ALL.items() for subject in scenario.mended]


@pytest.mark.parametrize("name", [name for name, scenario in SCENARIOS.items() if scenario.stock_kind])
def test_stock_is_convicted(name: str) -> None:
    scenario = SCENARIOS[name]
    assert scenario.stock_kind in scenario.run(SUBJECTS["stock"](log_entries=scenario.log_entries))


@pytest.mark.parametrize(("name", "subject"), OURS)
def test_ours_keeps_its_guarantees(name: str, subject: str) -> None:
    scenario = ALL[name]
    assert scenario.run(SUBJECTS[subject](log_entries=scenario.log_entries, durability=scenario.durability)) == set()
