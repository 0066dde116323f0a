"""The short suite on real clusters: every scenario of it must pass."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lmqcluster_chaos.drill import Result, run_drill
from lmqcluster_chaos.reports.json_report import as_table
from lmqcluster_chaos.reports.page import page
from lmqcluster_chaos.scenario import find, library

TIME_FACTOR = 10.0
"""Others use the machine too: limits of time are generous, those of safety are not."""
SHORT = [name for name in sorted(library()) if "short" in find(name).suites]
SEED = {"random_mix": 21}
"""This mix pauses the leader, lets a link flap, and cuts another one in one direction; elsewhere the seed
matters less.
"""
ELECTS = {"kill_leader", "isolate_leader", "random_mix"}
"""Faults of the leader, which force an election."""


def struck(name: str, result: Result) -> bool:
    """Return whether the fault had an effect: a drill in which nothing happens proves nothing."""
    if name in ELECTS:
        return any(election.time_us > result.windows[0].begin_us for election in result.elections)
    if name == "power_failure_all":
        return any("power failure" in text and " 0 writes" not in text for text in result.notes)
    if name == "client_crash":
        return result.judgement.redelivered > 0
    return len(result.windows) > 1


def test_the_mix_has_the_expected_faults() -> None:
    kinds = [plan.fault.kind for plan in find("random_mix").plans(SEED["random_mix"])]
    assert kinds == ["pause", "flap", "partition"]


@pytest.mark.parametrize("name", SHORT)
def test_scenario(tmp_path: Path, name: str) -> None:
    result = run_drill(find(name), seed=SEED.get(name, 1), folder=tmp_path / name, time_factor=TIME_FACTOR)
    assert result.verdict == "pass", "\n".join([*result.reasons, *result.notes])
    assert struck(name, result), "the fault had no effect"
    table = json.loads(json.dumps(as_table(result)))
    assert table["verdict"] == "pass"
    assert table["faults"] == dict.fromkeys(table["faults"], 0)
    html = page([result])
    for window in result.windows:
        assert window.kind in html
    for election in result.elections:
        assert election.term > 0
    assert html.count('class="fault"') == len(result.windows)
