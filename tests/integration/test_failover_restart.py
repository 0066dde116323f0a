"""Nodes that restart with an empty memory: they catch up before they vote; when all are empty they start over."""

from __future__ import annotations

import time

from .cluster import Cluster, NodeProcess, wait_for
from .outage import queues
from .raw_http import call
from .raw_rpc import Rpc


def caught_up(cluster: Cluster, node: NodeProcess) -> None:
    """Wait until a restarted node is a follower that holds everything."""

    def is_level() -> bool:
        status = cluster.leader().get_json("/v1/cluster")
        mine = next((n for n in status["nodes"] if n["http"] == node.http), None)
        return mine is not None and mine["state"] == "follower" and mine["match_index"] >= status["commit_index"]

    wait_for(is_level, f"{node.name} caught up")


def fill(node: NodeProcess, queue_name: str) -> None:
    """Create all kinds of state in the cluster."""
    with Rpc(node.rpc) as rpc:
        rpc.call("update_props", queue_name, {"retry": 5, "timeout": 600})
        rpc.call("update_props", queue_name + "-window", {"pack": 600})
        rpc.call("push_many", queue_name, list(range(100)))
        rpc.call("push_many", queue_name + "-window", [1, 2, 3])
        rpc.call("pull_many", queue_name, 10)
        rpc.call("set_default_props", [[f"^{queue_name}-other", {"retry": 9}]])


def test_a_restarted_node_has_the_same_data_and_replaces_a_lost_one(cluster: Cluster, queue_name: str) -> None:
    """A killed node returns as a follower with all data; then another node may be lost, and everything is
    still there.
    """
    fill(cluster[0], queue_name)
    leader, followers = cluster.leader(), cluster.followers()
    for victim in (followers[0], leader):
        victim.restart()
        caught_up(cluster, victim)
        status = victim.get_json("/v1/cluster")
        mine = next(node for node in status["nodes"] if node["id"] == status["self"])
        assert mine["state"] == "follower", "a node that has lost its memory must not lead before it has caught up"
        assert queues(victim) == queues(followers[1])
    # Now the only node that was never down is lost for good.
    followers[1].kill()
    with Rpc(followers[0].rpc) as rpc:
        rpc.call("push", queue_name, "afterwards")
        found = rpc.call("pull_many", queue_name, 1000)
        assert [m[b"content"] for m in found] == [*range(10, 100), b"afterwards"]
        assert {m[b"retry"] for m in found} == {5}
        assert rpc.call("push", queue_name + "-window", 4) == b"packed"
        assert rpc.call("get_default_props") == [[f"^{queue_name}-other".encode(), {b"retry": 9}]]


def test_a_restarted_node_does_not_vote_for_one_that_lags(memory_cluster: Cluster, queue_name: str) -> None:
    """In durability memory a restarted node does not vote before it has caught up.

    An entry that two nodes acknowledged is lost here with both. The third, which was paused, has missed it; with the
    vote of a node that has forgotten it, it would become leader, and the acknowledged message would be lost silently.
    Instead there is no leader.
    """
    cluster = memory_cluster
    sleeper, forgetful, gone = cluster.followers()[0], cluster.leader(), cluster.followers()[1]
    sleeper.pause()
    try:
        with Rpc(forgetful.rpc) as rpc:
            assert rpc.call("push", queue_name, "acknowledged") == b"ok"
        gone.kill()
        forgetful.kill()
    finally:
        sleeper.resume()
    forgetful.start(wait=False)

    def see_each_other() -> bool:
        statuses = [node.get_json("/v1/cluster") for node in (sleeper, forgetful) if is_up(node)]
        return len(statuses) == 2 and all(sum(n["connected"] for n in status["nodes"]) == 2 for status in statuses)

    wait_for(see_each_other, "the two nodes connect")
    # The paused node follows the former leader until it misses it.
    wait_for(lambda: not sleeper.get_json("/v1/cluster")["has_quorum"], "the sleeper misses its leader")
    # Several election timeouts.
    deadline_s = time.monotonic() + 3.0
    while time.monotonic() < deadline_s:
        for node in (sleeper, forgetful):
            status = node.get_json("/v1/cluster")
            assert not status["has_quorum"], f"{node.name} follows {status['leader']}"
        time.sleep(0.05)
    with Rpc(forgetful.rpc) as rpc:
        assert rpc.error("pull", queue_name, 0).startswith(b"no_leader: ")


def is_up(node: NodeProcess) -> bool:
    """Return whether the node answers."""
    try:
        return call(node.http, "GET", "/livez").status == 200
    except OSError:
        return False


def test_a_restart_of_all_begins_with_an_empty_state(memory_cluster: Cluster, queue_name: str) -> None:
    """In durability memory a restart of all three gives a new, empty cluster that serves; old ids are invalid."""
    cluster = memory_cluster
    fill(cluster[0], queue_name)
    with Rpc(cluster[0].rpc) as rpc:
        old_id = rpc.call("pull", queue_name)[b"id"]
    for node in cluster:
        node.kill()
    cluster.start()
    assert any("all members have restarted without all of their data" in node.log() for node in cluster)
    for node in cluster:
        assert queues(node) == []
    for number, node in enumerate(cluster):
        with Rpc(node.rpc) as rpc:
            assert rpc.call("get_default_props") == []
            assert rpc.call("push", queue_name, number) == b"ok"
            message = rpc.call("pull", queue_name, 0)
            assert (message[b"content"], message[b"retry"]) == (number, 2)
            assert rpc.error("done", queue_name, old_id) == b"throw:not_found"
            assert rpc.call("done", queue_name, message[b"id"]) == b"ok"
    assert len({node.get_json("/v1/cluster")["leader"] for node in cluster}) == 1


def test_a_rolling_restart_loses_nothing(cluster: Cluster, queue_name: str) -> None:
    """A rolling restart with SIGTERM, waiting for each node to catch up, keeps everything, and each exits with 0."""
    fill(cluster[0], queue_name)
    before = queues(cluster[0])
    for node in [cluster.leader(), *cluster.followers()]:
        assert node.stop() == 0
        node.start()
        caught_up(cluster, node)
    for node in cluster:
        assert queues(node) == before
