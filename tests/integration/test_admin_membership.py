"""Joining, leaving, removing and moving nodes under adverse conditions."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from .cluster import Cluster, NodeProcess, ports, wait_for
from .load import Load
from .outage import in_step, queues
from .programs import Result, run, run_in_terminal
from .raw_http import Connection
from .raw_rpc import Rpc
from .test_membership_changes import agree, members, serves

SNAPSHOT_BYTES = 40 * 1024 * 1024
"""Larger than the log, so that a learner is busy for a while."""


def admin(node: NodeProcess, *arguments: str) -> Result:
    """Run lmq-admin against a node."""
    return run("lmq-admin", "--node", node.http, *arguments)


def done(result: Result) -> None:
    """Check that the command succeeded without output."""
    assert result == (0, "", ""), result


def post(node: NodeProcess, path: str, body: dict[str, Any], timeout_s: float = 60.0) -> Any:
    """POST JSON; return the decoded answer."""
    with Connection(node.http, timeout_s=timeout_s) as connection:
        headers = {"Content-Type": "application/json"}
        return connection.call("POST", path, json.dumps(body).encode(), headers).json


def fill(node: NodeProcess, queue_name: str, size: int = SNAPSHOT_BYTES) -> int:
    """Push `size` bytes; return the number of messages."""
    body = b"f" * 200_000
    with Rpc(node.rpc, timeout_s=60) as rpc:
        for _ in range(size // len(body)):
            rpc.ask("push", queue_name, body)
        for _ in range(size // len(body)):
            assert rpc.read().error is None
    return size // len(body)


@pytest.fixture
def single(tmp_path) -> Iterator[NodeProcess]:
    """One node for one test."""
    with Cluster(1, directory=tmp_path) as cluster:
        yield cluster[0]


@pytest.fixture
def pair(tmp_path) -> Iterator[Cluster]:
    """Two nodes for one test."""
    with Cluster(2, directory=tmp_path) as cluster:
        yield cluster


# --- join -------------------------------------------------------------------------------------------------------------


def test_two_nodes_join_at_once(pair: Cluster, queue_name: str) -> None:
    """Membership changes are applied one after the other; both commands succeed."""
    fresh = [pair.add_node(), pair.add_node()]
    results: list[Result] = []
    threads = [
        threading.Thread(target=lambda one=node, peer=peer: results.append(admin(one, "join", peer.http)))
        for node, peer in zip(fresh, pair.nodes[:2], strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [(0, "", "")] * 2
    agree(pair.nodes)
    serves(pair.nodes, queue_name)


def test_a_joiner_that_is_killed_while_it_learns(cluster: Cluster, queue_name: str) -> None:
    """The cluster keeps its three members and its quorum of two; the joiner can join again, and gets all messages."""
    founders = list(cluster.nodes)
    count = fill(cluster[0], queue_name)
    fresh = cluster.add_node()
    caller = threading.Thread(target=_join_that_breaks, args=(fresh, cluster[0].raft))
    caller.start()
    wait_for(lambda: '"event": "joining"' in fresh.log(), "the join begins")
    fresh.kill()
    caller.join()
    agree(founders)
    sleeper = cluster.followers()[0]
    sleeper.pause()
    try:
        serves([node for node in founders if node is not sleeper], queue_name + "-serves")
    finally:
        sleeper.resume()
    fresh.start(wait=False)
    wait_for(lambda: _answers(fresh), "the joiner is up")
    agree(founders)
    done(admin(fresh, "join", cluster[1].http))
    agree(cluster.nodes)
    in_step(cluster)
    assert next(queue["size"] for queue in queues(fresh) if queue["name"] == queue_name) == count
    serves(cluster.nodes, queue_name + "-serves")


def _join_that_breaks(node: NodeProcess, peer: str) -> None:
    try:
        post(node, "/v1/cluster/join", {"peer": peer})
    except (EOFError, OSError):
        return


def _answers(node: NodeProcess) -> bool:
    try:
        return bool(node.get_json("/v1/cluster"))
    except (OSError, http.client.HTTPException):
        return False


# --- remove -----------------------------------------------------------------------------------------------------------


def test_a_dead_node_is_replaced_and_does_not_disturb_when_it_restarts(cluster: Cluster, queue_name: str) -> None:
    """A node is removed by name and a new one joins; the removed one reports its state, serves no client, and
    can join again.
    """
    with Rpc(cluster[0].rpc) as rpc:
        rpc.call("push_many", queue_name, list(range(100)))
    in_step(cluster)
    dead = cluster.followers()[0]
    dead.kill()
    rest = cluster.alive
    unreachable = wait_for(lambda: _dead_ones(rest[0]), "the dead node is missed")
    assert unreachable == [dead.raft]
    done(admin(rest[0], "remove", dead.name, "--yes"))
    agree(rest)
    fresh = cluster.add_node()
    done(admin(fresh, "join", rest[1].http))
    agree([*rest, fresh])
    term = rest[0].get_json("/v1/cluster")["term"]
    dead.start(wait=False)
    wait_for(lambda: _answers(dead) and _own_state(dead) == "removed", "it knows that it was removed")
    with Rpc(dead.rpc, timeout_s=60) as rpc:
        error = rpc.error("pull", queue_name, 0)
    assert error.startswith(b"left_cluster: this node was removed from its cluster")
    with Load([*rest, fresh], queue_name + "-load") as load:
        load.progress(1000)
    load.check_exactly_once()
    assert rest[0].get_json("/v1/cluster")["term"] == term
    assert members(rest[0]) == {node.raft for node in (*rest, fresh)}
    status = admin(dead, "status")
    assert status.code == 69
    assert "was removed from its cluster" in status.one_line_error()
    refused = admin(dead, "join", rest[0].http)
    assert "holds what it had when it was removed" in refused.one_line_error()
    done(admin(dead, "join", rest[0].http, "--discard-data"))
    agree(cluster.nodes)
    serves(cluster.nodes, queue_name + "-serves")


def _dead_ones(node: NodeProcess) -> list[str]:
    return [one["raft"] for one in node.get_json("/v1/cluster")["nodes"] if one["state"] == "unreachable"]


def _own_state(node: NodeProcess) -> str:
    status = node.get_json("/v1/cluster")
    return next(one["state"] for one in status["nodes"] if one["id"] == status["self"])


def test_a_live_node_is_removed_only_by_force(cluster: Cluster, queue_name: str) -> None:
    """The leader too; the removed node knows it, and the others continue to serve."""
    leader, asked = cluster.leader(), cluster.followers()[0]
    refused = admin(asked, "remove", leader.name, "--yes")
    assert refused.code == 65
    assert "is alive" in refused.one_line_error()
    agree(cluster.nodes)
    done(admin(asked, "remove", leader.name, "--force", "--yes"))
    rest = [node for node in cluster if node is not leader]
    agree(rest)
    serves(rest, queue_name)
    wait_for(lambda: _own_state(leader) == "removed", "it knows that it was removed")


def test_invalid_removals_are_refused(cluster: Cluster) -> None:
    """Unknown nodes, the node itself, and removals that would lose the quorum are refused at once with the reason."""
    asked, dead, live = cluster.leader(), *cluster.followers()
    unknown = admin(asked, "remove", "n9", "--yes")
    assert unknown.code == 65
    assert "there is no one member 'n9'; the members are n1 (" in unknown.one_line_error()
    myself = admin(asked, "remove", asked.name, "--yes")
    assert "let it leave" in myself.one_line_error()
    dead.kill()
    wait_for(lambda: _dead_ones(asked), "the dead node is missed")
    harmful = admin(asked, "remove", live.name, "--force", "--yes")
    assert harmful.code == 65
    assert "would have no quorum" in harmful.one_line_error()
    assert len(members(asked)) == 3
    live.kill()
    # The node leads for a while without a quorum, and refuses for the reason above until that ends.
    wait_for(lambda: asked.get_json("/v1/cluster")["leader"] is None, "the end of its lead")
    assert admin(asked, "remove", dead.name, "--yes").code in (69, 75)


# --- leave and move ---------------------------------------------------------------------------------------------------


def test_the_leader_leaves_under_load(cluster: Cluster, queue_name: str) -> None:
    """The leader transfers its leadership first: clients of the others see no error, and a short pause."""
    leader = cluster.leader()
    rest = [node for node in cluster if node is not leader]
    with Load(rest, queue_name) as load:
        load.progress()
        done(admin(leader, "leave", "--yes"))
        load.progress()
    load.check_exactly_once()
    print(f"leave of the leader: pause {load.pause_s:.2f} s")
    assert load.pause_s < 5
    agree(rest)


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_node_that_restarts_at_another_address(cluster: Cluster, queue_name: str, role: str) -> None:
    """The node is the same member; all nodes learn its new address and remember it after a restart of all."""
    moved = cluster.leader() if role == "leader" else cluster.followers()[0]
    own_id = moved.get_json("/v1/cluster")["self"]
    moved.stop()
    moved.raft = f"127.0.0.1:{ports.take()}"
    moved.start()
    agree(cluster.nodes)
    assert moved.get_json("/v1/cluster")["self"] == own_id
    in_step(cluster)
    for node in cluster:
        node.stop()
    cluster.start()
    agree(cluster.nodes)
    serves(cluster.nodes, queue_name)


# --- few nodes --------------------------------------------------------------------------------------------------------


def test_status_says_what_one_and_two_nodes_do_not_survive(single: NodeProcess, tmp_path_factory) -> None:
    """A terminal shows the warning, where people decide how many nodes to run; three nodes need none."""
    plain = {"NO_COLOR": "1"}
    _code, seen = run_in_terminal("lmq-admin", "--node", single.http, "status", columns=80, environment=plain)
    assert "The cluster has one node" in seen
    with Cluster(2, directory=tmp_path_factory.mktemp("pair")) as pair:
        _code, seen = run_in_terminal("lmq-admin", "--node", pair[0].http, "status", columns=80, environment=plain)
        assert "Two nodes tolerate no failure" in seen
        assert max(map(len, seen.splitlines()[1:])) <= 80


def test_status_of_three_nodes_warns_of_nothing(shared_cluster: Cluster) -> None:
    """The line under the table appears only if it is needed."""
    _code, seen = run_in_terminal("lmq-admin", "--node", shared_cluster[0].http, "status", columns=120)
    assert "survive" not in seen
