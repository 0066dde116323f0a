"""A drill against a cluster that it did not start."""

from __future__ import annotations

from pathlib import Path

from lmqcluster_chaos.drill import run_drill
from lmqcluster_chaos.nodes.running import RunningCluster
from lmqcluster_chaos.scenario import read

from lmqcluster import Client
from tests.integration.cluster import Cluster

SCENARIO = """
title = "Links of clients are slow, then their consumer dies, then the leader is paused"
[load]
seconds = 6
[[fault]]
kind = "latency"
links = "clients"
latency_ms = 30
at_s = 1
for_s = 1
[[fault]]
kind = "crash_client"
at_s = 2
for_s = 1
[[fault]]
kind = "pause"
target = "leader"
at_s = 3
for_s = 2
"""
RULES = [("^mail", {"retry": 7})]


def test_a_running_cluster_is_disturbed_judged_and_restored(tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(SCENARIO)
    with Cluster(3, directory=tmp_path) as nodes, Client(",".join(nodes.rpc_addresses)) as client:
        client.push("mail", "to Ada")
        client.set_default_props(RULES)
        folder = tmp_path / "drill"
        running = RunningCluster(folder, nodes.http_addresses, [node.data_dir for node in nodes])
        result = run_drill(read(path), seed=1, folder=folder, time_factor=10, running=running)
        assert (result.verdict, result.reasons) == ("pass", [])
        assert [window.kind for window in result.windows] == ["latency", "crash_client", "pause"]
        assert len(nodes.alive) == 3
        assert [queue["name"] for queue in nodes[0].get_json("/v1/queues")["queues"]] == ["mail"]
        assert client.get_default_props() == RULES


def test_impossible_faults_are_reported_and_prove_nothing(tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text("title = 't'\n[load]\nseconds = 2\n[[fault]]\nkind = 'partition'\nat_s = 0.5\nfor_s = 0.5\n")
    with Cluster(3, directory=tmp_path) as nodes:
        folder = tmp_path / "drill"
        running = RunningCluster(folder, nodes.http_addresses)
        result = run_drill(read(path), seed=1, folder=folder, time_factor=10, running=running)
        assert result.verdict == "unknown"
        assert any("cannot be broken" in reason for reason in result.reasons)
