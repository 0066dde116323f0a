"""``lmq-admin replace`` on real nodes: what it refuses, what an interruption leaves, and how it continues."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from .cluster import Cluster, NodeProcess, wait_for
from .outage import in_step, queues
from .programs import Result, run_here
from .raw_rpc import Rpc
from .test_admin_membership import admin, done, fill
from .test_membership_changes import agree, answers, members, serves

ATTEMPTS = 4
AWAITS = {"LMQ_AWAIT_JOIN": "on"}


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes of which one follower, the last of `nodes`, is dead. Tests change no members."""
    with Cluster(3, directory=tmp_path_factory.mktemp("broken")) as cluster:
        cluster.nodes = [cluster.leader(), *cluster.followers()]
        kill(cluster, cluster[2])
        yield cluster


def kill(cluster: Cluster, node: NodeProcess) -> None:
    """Kill a node and wait until all others miss it."""
    node.kill()
    for one in cluster.alive:
        wait_for(lambda one=one: node.raft in dead_ones(one), f"{one.name} misses {node.name}")  # type: ignore[misc]


def dead_ones(node: NodeProcess) -> list[str]:
    """Return the Raft addresses of the members that a node does not reach."""
    return [one["raft"] for one in node.get_json("/v1/cluster")["nodes"] if not one["connected"]]


def replace(survivor: NodeProcess, *arguments: str) -> Result:
    """Run the command at a survivor."""
    return run_here("--node", survivor.http, "replace", *arguments)


def waiting_node(directory: Path, name: str) -> NodeProcess:
    """Start a node that waits for its join."""
    directory.mkdir(exist_ok=True)
    node = NodeProcess(directory, name, environment=AWAITS).start(wait=False)
    wait_for(lambda: answers(node), "the new node answers")
    return node


def refused(result: Result, code: int, *words: str) -> None:
    """Check that the command changed nothing and gave these reasons."""
    assert result.code == code, result
    line = result.one_line_error()
    assert all(word in line for word in (*words, "Nothing was changed")), line


# --- what it refuses --------------------------------------------------------------------------------------------------


def test_a_live_node_is_not_replaced(broken: Cluster) -> None:
    leader, follower, dead = broken
    refused(replace(leader, follower.name), 65, f"{follower.name} is alive", "lmq-admin leave")
    refused(replace(follower, leader.name, "--yes"), 65, f"{leader.name} is alive")
    assert members(leader) == {leader.raft, follower.raft, dead.raft}


def test_a_node_that_answers_its_clients_is_not_replaced(broken: Cluster, tmp_path: Path) -> None:
    """No survivor reaches the member, but it answers at its HTTP address: the network is broken, not the node."""
    leader, _follower, dead = broken
    # A process of the dead member that answers clients, but that no other node reaches.
    alone = NodeProcess(tmp_path, dead.name, raft=dead.raft, peers=dead.peers)
    alone.http, alone.rpc, alone.environment = (
        dead.http,
        dead.rpc,
        {**dead.environment, "LMQ_CLUSTER_SECRET": "the secret of another cluster"},
    )
    alone.data_dir = dead.data_dir
    with alone.start(wait=False) as node:
        wait_for(lambda: answers(node), "the member answers")
        assert dead.raft in dead_ones(leader)
        refused(replace(leader, dead.name), 65, f"{dead.name} is alive")


def test_a_misspelled_name_adds_no_node(broken: Cluster, tmp_path: Path) -> None:
    leader, _follower, dead = broken
    refused(replace(leader, "n33"), 65, f"n33 is not a member, and {dead.name} cannot be reached")
    with waiting_node(tmp_path, "n4") as new:
        refused(replace(leader, "n33", new.http, "--yes"), 65, "n33 is not a member")
        assert len(members(leader)) == 3


def test_an_unfit_new_node_is_refused_before_the_dead_one_is_removed(
    broken: Cluster, tmp_path: Path, queue_name: str
) -> None:
    leader, _follower, dead = broken
    silent = replace(leader, dead.name, "127.0.0.1:1", "--yes")
    assert (silent.code, "cannot reach 127.0.0.1:1" in silent.one_line_error()) == (69, True)
    assert replace(leader, dead.name, "no address", "--yes").code == 2
    with Cluster(2) as others:
        refused(replace(leader, dead.name, others[0].http, "--yes"), 65, "belongs to another cluster", "await_join")
    with NodeProcess(tmp_path, "n4") as lone, Rpc(lone.rpc) as rpc:
        rpc.call("push", queue_name, "x")
        refused(replace(leader, dead.name, lone.http, "--yes"), 65, "holds 1 message")
    assert members(leader) == {node.raft for node in broken}


def test_it_says_what_would_happen_and_what_is_next(broken: Cluster, tmp_path: Path) -> None:
    leader, _follower, dead = broken
    advice = replace(leader, dead.name)
    assert (advice.code, advice.err) == (0, "")
    assert f"{dead.name} is dead and can be replaced" in advice.out
    assert f"lmq-admin --node {leader.http} replace {dead.name} HOST:PORT" in advice.out
    assert json.loads(replace(leader, dead.name, "--json").out)["state"] == "dead"
    with waiting_node(tmp_path, "n4") as new:
        dry = replace(leader, dead.name, new.http, "--dry-run")
        assert dry.out == f"would remove {dead.name} (unreachable) and let {new.http} join\n"
        unasked = replace(leader, dead.name, new.http)
        assert (unasked.code, "pass --yes" in unasked.one_line_error()) == (2, True)
    assert len(members(leader)) == 3


# --- what it does -----------------------------------------------------------------------------------------------------


def test_an_interrupted_replacement_continues(cluster: Cluster, queue_name: str) -> None:
    """The new node dies while it copies; the same command finishes the work, and is a no-op after that. The new node
    has the name of the dead one.
    """
    count = fill(cluster[0], queue_name)
    in_step(cluster)
    dead = cluster.followers()[0]
    kill(cluster, dead)
    rest = cluster.alive
    new = waiting_node(cluster.directory / "new", dead.name)
    cluster.nodes.append(new)
    results: list[Result] = []
    caller = threading.Thread(target=lambda: results.append(admin(rest[0], "replace", dead.name, new.http, "--yes")))
    caller.start()
    wait_for(lambda: '"event": "joining"' in new.log(), "the join begins")
    new.kill()
    caller.join()
    (interrupted,) = results
    assert interrupted.code in (69, 75)
    assert f"{dead.name} is not a member any more" in interrupted.one_line_error()
    assert "run the same command again" in interrupted.err
    agree(rest)
    serves(rest, queue_name + "-serves")
    new.start(wait=False)
    wait_for(lambda: answers(new), "the new node answers")
    done(admin(rest[0], "replace", dead.name, new.http, "--yes"))
    agree([*rest, new])
    in_step(cluster)
    assert next(queue["size"] for queue in queues(new) if queue["name"] == queue_name) == count
    done(admin(rest[1], "replace", dead.name, new.http, "--yes"))
    serves([*rest, new], queue_name + "-serves")


def test_without_a_quorum_nothing_is_replaced(tmp_path: Path) -> None:
    """The reason names the missing nodes' number and the way out."""
    with Cluster(2, directory=tmp_path) as pair:
        survivor, dead = pair
        kill(pair, dead)
        wait_for(lambda: not survivor.get_json("/v1/cluster")["has_quorum"], "the quorum is lost")
        refused(replace(survivor, dead.name, "127.0.0.1:1", "--yes"), 69, "has no quorum", "lmq-admin recover")


# --- unknown outcomes -------------------------------------------------------------------------------------------------


def test_a_change_that_was_not_confirmed_has_an_unknown_outcome(cluster: Cluster) -> None:
    """The others hang while the leader proposes the change: it is committed, or not, when they continue. The command
    that is repeated then gives the outcome.
    """
    for _ in range(ATTEMPTS):
        leader, (other, removed) = cluster.leader(), cluster.followers()
        result = _remove_while_others_hang(leader, other, removed)
        if result.code != 69:
            break
        # A busy machine ran the command only when the leader had noticed that the others hang.
        assert "nothing was changed" in result.err
        agree(cluster.nodes)
    assert result.code == 75, result
    line = result.one_line_error()
    assert "the outcome of remove is unknown" in line
    assert "lmq-admin status shows the members; repeating the command is safe" in line
    leader = cluster.leader([leader, other])
    if removed.raft in members(leader):
        done(admin(leader, "remove", removed.name, "--force", "--yes"))
    agree([node for node in cluster if node is not removed])


def _remove_while_others_hang(leader: NodeProcess, other: NodeProcess, removed: NodeProcess) -> Result:
    for node in (other, removed):
        node.pause()
    try:
        return run_here("--node", leader.http, "remove", removed.name, "--force", "--yes")
    finally:
        for node in (other, removed):
            node.resume()
