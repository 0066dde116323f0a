"""Scenario files: all included ones can be read, and mistakes in others are named."""

from __future__ import annotations

from pathlib import Path

import pytest
from lmqcluster_chaos.errors import ScenarioError
from lmqcluster_chaos.faults.base import KINDS
from lmqcluster_chaos.scenario import find, library, read

WANTED = {
    "kill_leader", "kill_follower", "kill_majority", "kill_all", "pause_leader", "isolate_leader", "partition_leader",
    "partition_one_way_out", "partition_one_way_in", "partition_ring", "flapping_link", "slow_network", "slow_disk",
    "full_disk", "power_failure_one", "power_failure_all", "rolling_restart", "rolling_upgrade", "membership",
    "corrupt_journal", "clock_jump", "client_crash", "delete_queue", "random_mix", "failing_fsync", "order",
    "reset_connections", "slow_names", "hanging_names",
}  # fmt: skip


def test_the_library_has_the_required_scenarios() -> None:
    assert set(library()) >= WANTED


@pytest.mark.parametrize("name", sorted(library()))
def test_every_scenario_has_a_title_a_reason_and_faults(name: str) -> None:
    scenario = find(name)
    assert scenario.title
    assert scenario.why
    assert scenario.cluster.durability == "disk"
    assert scenario.plans(seed=1)


def test_every_fault_is_used_by_some_scenario() -> None:
    used = {plan.fault.kind for name in library() for seed in range(40) for plan in find(name).plans(seed)}
    # It tests the checker, and no cluster can pass with it; an orderly stop is part of a rolling restart.
    assert set(KINDS) - used <= {"lying_disk", "stop"}


def test_a_mix_depends_on_its_seed() -> None:
    scenario = find("random_mix")

    def drawn(seed: int) -> list[tuple[str, float, float]]:
        return [(plan.fault.kind, plan.at_s, plan.for_s) for plan in scenario.plans(seed)]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("why = 'no title'", "title"),
        ("title = 't'\n[lode]", "lode"),
        ("title = 't'\n[load]\nrates = 3", "load.rates"),
        ("title = 't'\n[load]\nrate = 'much'", "load.rate"),
        ("title = 't'\n[cluster]\nnodes = 1", "cluster.nodes"),
        ("title = 't'\n[[fault]]\nkind = 'flood'\nat_s = 1", "flood"),
        ("title = 't'\n[[fault]]\nkind = 'kill'", "at_s"),
        ("title = 't'\n[[fault]]\nkind = 'kill'\nat_s = 99", "at_s"),
        ("title = 't'\n[[fault]]\nkind = 'kill'\nat_s = 1\ndirection = 'in'", "direction"),
        ("title = 't'\n[[fault]]\nkind = 'partition'\nat_s = 1\ndirection = 'up'", "direction"),
        ("title = 't'\n[mix]", "mix.kinds"),
        ("title = ", "Invalid value"),
    ],
)
def test_a_mistake_is_named_with_its_file(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "odd.toml"
    path.write_text(text)
    with pytest.raises(ScenarioError) as caught:
        read(path)
    assert complaint in str(caught.value)
    assert str(path) in str(caught.value)


def test_an_unknown_scenario_is_named() -> None:
    with pytest.raises(ScenarioError, match="kill_everybody"):
        find("kill_everybody")
