"""Founding members with different peers, or whose cluster continued without them: they report it, and recover."""

from __future__ import annotations

import http.client
import json
import shutil
from pathlib import Path
from typing import Any

from .cluster import Cluster, NodeProcess, fetch, wait_for
from .programs import run
from .test_admin_membership import admin, done


def cluster_of(node: NodeProcess) -> dict[str, Any]:
    status, body = fetch(node.http, "/v1/cluster")
    assert status == 200
    found: dict[str, Any] = json.loads(body)
    return found


def await_problem(node: NodeProcess, text: str) -> None:
    """Wait until the node reports `text` as its problem."""

    def is_told() -> bool:
        try:
            return text in (cluster_of(node)["problem"] or "")
        except (OSError, http.client.HTTPException):
            return False

    wait_for(is_told, f"{node.name} says {text!r}")


def ids_of(node: NodeProcess) -> set[str]:
    return {one["id"] for one in cluster_of(node)["nodes"]}


def test_a_removed_node_with_an_emptied_folder_reports_it_and_joins_again(cluster: Cluster) -> None:
    gone, rest = cluster.followers()[0], cluster.leader()
    gone.kill()
    done(admin(rest, "remove", gone.name, "--yes"))
    shutil.rmtree(gone.data_dir)
    gone.start(wait=False)
    await_problem(gone, f"belongs to a cluster without this node, {gone.raft}")
    wait_for(lambda: "belongs to a cluster without this node" in gone.log(), "its log says so")
    checked = admin(gone, "check")
    assert checked.code == 69
    assert "belongs to a cluster without this node" in checked.out
    assert gone.raft not in ids_of(rest)
    done(admin(gone, "join", rest.http))
    gone.wait_ready()
    assert len(ids_of(rest)) == 3
    assert gone.raft not in ids_of(rest), "an id is never used again"


def test_nodes_report_a_peer_that_was_restored_as_a_separate_cluster(tmp_path: Path, cluster: Cluster) -> None:
    first, *others = cluster.nodes
    done(admin(first, "backup", str(tmp_path / "backup")))
    for node in cluster.nodes:
        node.kill()
        shutil.rmtree(node.data_dir)
    done(run("lmq-admin", "restore", str(tmp_path / "backup"), "--data-dir", str(first.data_dir), "--raft", first.raft))
    for node in cluster.nodes:
        node.start(wait=False)
    first.wait_ready()
    for node in others:
        await_problem(node, f"at {first.raft}, {cluster_of(first)['self']}, belongs to a cluster without this node")
        assert cluster_of(node)["leader"] is None
    output = " ".join(admin(first, "check").out.split())
    assert f"this node is the only one: {others[0].raft}, {others[1].raft} in peers are no members" in output


def test_a_member_that_lost_its_disk_gets_the_current_members(cluster: Cluster) -> None:
    first, second, third = cluster.nodes
    fourth = cluster.add_node()
    done(admin(fourth, "join", first.http))
    third.kill()
    done(admin(first, "remove", third.name, "--yes"))
    first.kill()
    shutil.rmtree(first.data_dir)
    first.start()
    assert "copying everything" in first.log()
    assert ids_of(first) == ids_of(second) == ids_of(fourth)
    assert third.raft not in ids_of(first)
    # It counts: the cluster of three continues with it and one other.
    fourth.kill()
    assert cluster.leader([first, second]) in (first, second)
    first.wait_ready()


def test_different_peers_found_no_cluster_until_they_are_corrected(tmp_path: Path) -> None:
    cluster = Cluster(3, directory=tmp_path)
    try:
        first, second, third = cluster.nodes
        third.peers = (third.raft, second.raft)
        for node in cluster.nodes:
            node.start(wait=False)
        await_problem(third, "give all founding members the same peers")
        await_problem(first, "give all founding members the same peers")
        assert all(cluster_of(node)["leader"] is None for node in cluster.nodes)
        assert third.stop() == 0
        third.peers = first.peers
        third.start()
        assert ids_of(first) == ids_of(second) == ids_of(third) == set(first.peers)
    finally:
        cluster.stop()
