"""A node's view of itself and its cluster: readiness, dead ends, checks before it is stopped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lmqcluster.core.owners.quotas import Kind, Quotas
from lmqcluster.node.config.config import NodeConfig
from lmqcluster.node.health_checks import run_checks
from lmqcluster.node.membership.standing import cluster_status, health, impasse, outside
from lmqcluster.node.process.disk_budget import DiskBudget
from lmqcluster.replication.base.node_info import NodeInfo
from lmqcluster.replication.base.status import ReplicaStatus
from lmqcluster.wire.address import Address

MEMBERS = {"a": "h:1", "b": "h:2", "c": "h:3"}


def report_of(name: str, *, recovering: bool = False) -> NodeInfo:
    return NodeInfo(name, f"{name}:80", "", f"{name}:1", empty=False, recovering=recovering, machine_version=2)


WELL = ReplicaStatus(
    id="a",
    address="h:1",
    role="leader",
    leader="a",
    term=3,
    commit_index=100,
    applied_index=100,
    missing_entries=0,
    has_caught_up=True,
    members=MEMBERS,
    match_indexes={"a": 100, "b": 100, "c": 100},
    connected=frozenset({"b", "c"}),
    about={one: report_of(f"n-{one}") for one in MEMBERS},
    has_left=False,
    was_removed=False,
    is_installing=False,
    is_recovering=False,
    durability="disk",
    snapshot_index=0,
    log_entries=100,
    log_bytes=10_000,
    machine_version=2,
    is_founded=True,
)


def failed(status: ReplicaStatus, *, is_stopping: bool = False) -> set[str]:
    return {name for name, passed, _detail in health(status, is_stopping=is_stopping) if not passed}


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({}, set()),
        ({"role": "follower", "leader": "b"}, set()),
        ({"role": "follower", "leader": "b", "connected": frozenset({"c"})}, {"leader"}),
        ({"role": "candidate", "leader": None}, {"leader"}),
        ({"has_left": True, "members": {}, "leader": None, "role": "follower"}, {"member", "leader"}),
        ({"was_removed": True}, {"member"}),
        ({"is_founded": False}, {"founded"}),
        ({"has_caught_up": False}, {"applied"}),
        ({"missing_entries": 200}, set()),
        ({"missing_entries": 201}, {"applied"}),
        ({"is_recovering": True}, {"recovered"}),
    ],
)
def test_readiness(change: dict[str, Any], names: set[str]) -> None:
    assert failed(replace(WELL, **change)) == names


def test_a_stopping_node_is_not_ready() -> None:
    assert failed(WELL, is_stopping=True) == {"running"}


def leaderless(*forgetful: str, connected: set[str], durability: str = "disk") -> ReplicaStatus:
    """Return the status of node a in a cluster without a leader, some of whose members have forgotten something."""
    about = {one: report_of(f"n-{one}", recovering=one in forgetful) for one in MEMBERS}
    return replace(
        WELL,
        role="follower",
        leader=None,
        connected=frozenset(connected),
        about=about,
        is_recovering="a" in forgetful,
        durability=durability,
    )


def test_a_cluster_that_can_still_elect_a_leader_is_in_no_dead_end() -> None:
    assert impasse(WELL) is None
    assert impasse(leaderless(connected={"b"})) is None
    assert impasse(leaderless("a", connected={"b", "c"})) is None
    # The last report of an unreachable member says nothing about its current state.
    assert impasse(leaderless("a", "b", connected={"c"})) is None
    assert impasse(replace(leaderless("a", "b", connected={"b", "c"}), was_removed=True)) is None


def test_a_majority_that_has_forgotten_is_told_which_node_to_recover_from() -> None:
    on_disk = impasse(leaderless("a", "b", connected={"b", "c"}))
    assert on_disk is not None
    assert "2 of 3 members have forgotten" in on_disk
    assert "make n-c go on alone" in on_disk
    in_memory = impasse(leaderless("a", "b", connected={"b", "c"}, durability="memory"))
    assert in_memory is not None
    assert in_memory.endswith("restart n-c too, and the cluster starts over")
    waiting = impasse(leaderless("a", "b", connected={"b"}))
    assert waiting is not None
    assert waiting.endswith("they wait for n-c")


def test_a_repaired_node_without_members_reports_the_remedy() -> None:
    problem = impasse(replace(WELL, leader=None, role="follower", members={}))
    assert problem is not None
    assert "lmq-admin restore" in problem


def states(status: ReplicaStatus) -> dict[str, str]:
    return {node["id"]: node["state"] for node in cluster_status(status, "1.0")["nodes"]}


def test_the_states_of_members() -> None:
    assert states(WELL) == {"a": "leader", "b": "follower", "c": "follower"}
    follower = replace(WELL, role="follower", leader="b", match_indexes={}, connected=frozenset({"b"}))
    assert states(follower) == {"a": "follower", "b": "leader", "c": "unreachable"}
    assert states(leaderless("b", connected={"b", "c"}))["b"] == "recovering"
    assert states(replace(WELL, is_recovering=True))["a"] == "recovering"
    assert states(replace(WELL, is_recovering=True, is_installing=True))["a"] == "installing"
    assert states(replace(WELL, was_removed=True, is_installing=True))["a"] == "removed"
    assert states(replace(WELL, has_left=True, members={})) == {"a": "left"}


def test_a_quorum_needs_a_leader_and_a_majority() -> None:
    def has_quorum(status: ReplicaStatus) -> bool:
        return bool(cluster_status(status, "1.0")["has_quorum"])

    assert has_quorum(WELL)
    assert has_quorum(replace(WELL, connected=frozenset({"c"})))
    assert not has_quorum(replace(WELL, connected=frozenset()))
    assert not has_quorum(replace(WELL, leader=None))


def test_a_member_without_a_report_is_shown_without_addresses() -> None:
    silent = replace(WELL, about={"a": report_of("n-a")})
    shown = {node["id"]: node for node in cluster_status(silent, "1.0")["nodes"]}
    assert (shown["b"]["name"], shown["b"]["http"], shown["b"]["machine_version"]) == (None, None, None)
    assert (shown["a"]["http"], shown["a"]["match_index"]) == ("n-a:80", 100)
    assert not silent.is_able("b")
    assert silent.name_of("b") == "b"


def test_a_node_in_no_cluster_reports_the_reason() -> None:
    assert outside(WELL) is None
    assert "has left its cluster" in str(outside(replace(WELL, has_left=True, was_removed=True)))
    assert "was removed" in str(outside(replace(WELL, was_removed=True)))


def test_a_node_that_waits_for_founding_members_reports_the_obstacle() -> None:
    alone = replace(WELL, leader=None, members={})
    assert "was repaired" in str(impasse(alone))
    assert impasse(replace(alone, obstacle="")) is None
    assert impasse(replace(alone, obstacle="it waits for b")) == "it waits for b"


def test_checks_before_a_node_is_stopped(tmp_path: Path) -> None:
    config = NodeConfig(name="n", data_dir=tmp_path, memory_bytes_max=100_000_000)

    quotas = Quotas()

    def checks(status: ReplicaStatus, stored_bytes: int = 0, kept_bytes: int = 0) -> dict[str, tuple[bool, str]]:
        budget = DiskBudget(tmp_path, 100 << 20)
        budget.look(kept_bytes)
        found, safe_to_stop = run_checks(status, config, stored_bytes, budget, quotas, names_owners=True)
        shown = {one.name: (one.ok, one.detail) for one in found}
        assert shown["safe to stop"][0] == safe_to_stop
        return shown

    assert all(ok for name, (ok, _detail) in checks(WELL).items() if name != "disk")
    assert checks(WELL, 81_000_000)["memory"] == (False, "messages take 77 MiB of 95 MiB")
    assert checks(WELL, 0, 80 << 20)["disk limit"] == (True, "snapshots and pages take 80 MiB, 100 MiB are allowed")
    assert not checks(WELL, 0, 81 << 20)["disk limit"][0]
    refused = "pushes are refused: snapshots and pages take 101 MiB, 100 MiB are allowed (disk_bytes_max)"
    assert checks(WELL, 0, 101 << 20)["disk limit"] == (False, refused)
    assert checks(WELL, 101_000_000)["memory"] == (False, "pushes are refused: messages take 96 MiB of 95 MiB")
    quotas.take(Kind.SUBSCRIPTIONS, b"spark", 1_601)
    assert checks(WELL)["quota"] == (
        False,
        "closest to its limit: principal spark, with 1,601 of 2,000 subscriptions (80 %)",
    )
    lone = checks(replace(WELL, connected=frozenset({"b"})))
    assert lone["members"] == (False, "not reachable or not up to date: n-c")
    assert lone["safe to stop"][0] is False
    # An unreachable follower does not count for the lag.
    behind = {"a": 100, "b": 40, "c": 0}
    assert checks(replace(WELL, match_indexes=behind, connected=frozenset({"b"})))["lag"] == (
        True,
        "n-b is 60 log entries behind",
    )
    far = replace(WELL, commit_index=2_000, applied_index=2_000)
    assert checks(far)["lag"] == (False, "n-b is 1,900 log entries behind")
    assert checks(replace(WELL, has_left=True, members={}))["safe to stop"][0]
    only = replace(WELL, members={"a": "h:1"})
    assert "alone" in checks(only)["safe to stop"][1]
    assert checks(only)["members"] == (True, "this node is the only one")
    config = replace(config, peers=(Address("127.0.0.1", 1),))
    assert "127.0.0.1:1 in peers are no members" in checks(only)["members"][1]
    looking = checks(replace(WELL, leader=None, members={}, obstacle="it waits for b"))
    assert looking["leader"] == looking["members"] == (False, "it waits for b")
    assert looking["safe to stop"][0]
