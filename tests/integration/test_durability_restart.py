"""Kill and stop of many nodes at once: acknowledged data is on disk and is restored."""

from __future__ import annotations

import json
import signal

import pytest

from .cluster import Cluster, NodeProcess, wait_for
from .outage import Outage, in_step, queues
from .programs import run, run_in_terminal
from .raw_http import call
from .raw_rpc import Rpc

CUT_BYTES = 36 * 1024 * 1024
"""Larger than the log that is kept once a snapshot covers it."""


def status_of(node: NodeProcess) -> dict:
    """Return the node's entry in its own view of the cluster."""
    status = node.get_json("/v1/cluster")
    return next(one for one in status["nodes"] if one["id"] == status["self"])


def end(nodes: list[NodeProcess], number: signal.Signals) -> None:
    """Signal all nodes at once, and wait for their end."""
    for node in nodes:
        node.signal(number)
    for node in nodes:
        node.wait_exit()


def snapshot(node: NodeProcess) -> dict:
    """Ask a node to write a snapshot."""
    answer = call(node.http, "POST", "/v1/snapshots")
    assert answer.status == 200, answer
    return answer.json


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_all_nodes_end_at_once_under_load(cluster: Cluster, queue_name: str, number: signal.Signals) -> None:
    """All acknowledged messages are there once after the restart; leases and their ids hold; replicas are equal."""
    with Outage(cluster.nodes, queue_name) as outage:
        outage.progress()
        end(cluster.nodes, number)
    cluster.start()
    in_step(cluster)
    outage.check(cluster[1])
    in_step(cluster)


def test_a_majority_ends_under_load(cluster: Cluster, queue_name: str) -> None:
    """The remaining node serves nothing in the meantime; when the others return, everything continues."""
    survivor, victims = cluster.followers()[0], [cluster.leader(), cluster.followers()[1]]
    with Outage(victims, queue_name) as outage:
        outage.progress()
        end(victims, signal.SIGKILL)
    wait_for(lambda: not survivor.get_json("/v1/cluster")["has_quorum"], "loss of the quorum")
    for victim in victims:
        victim.start(wait=False)
    for victim in victims:
        victim.wait_ready()
    in_step(cluster)
    outage.check(survivor)


def test_repeated_restarts_while_nodes_are_recovering(cluster: Cluster, queue_name: str) -> None:
    """All nodes are killed repeatedly, also while they start: nothing is lost."""
    with Outage(cluster.nodes, queue_name) as outage:
        outage.progress(200, 50)
        end(cluster.nodes, signal.SIGKILL)
    for round_number in range(3):
        for node in cluster:
            node.start(wait=False)
        # Each round has one more running process when all are killed.
        for node in cluster.nodes[:round_number]:
            node.wait_ready()
        end(cluster.nodes, signal.SIGKILL)
    cluster.start()
    in_step(cluster)
    outage.check(cluster[0])


def test_a_node_that_missed_compacted_entries_gets_a_snapshot(cluster: Cluster, queue_name: str) -> None:
    """A node is down while the others compact their log; it then installs a snapshot, and has it after its
    next restart.
    """
    late, leader = cluster.followers()[0], cluster.leader()
    late.kill()
    body = b"s" * 200_000
    count = CUT_BYTES // len(body)
    with Rpc(leader.rpc, timeout_s=60) as rpc:
        for number in range(count):
            rpc.ask("push", queue_name, b"%06d" % number + body)
        for _ in range(count):
            assert rpc.read().error is None
        leased = rpc.call("pull", queue_name)
        snapshot(leader)
        rpc.call("push_many", queue_name + "-tail", [1, 2, 3])
    assert metric(leader, "lmq_raft_log_bytes") < CUT_BYTES / 2
    late.start()
    in_step(cluster)
    assert "snapshot installed" in late.log()
    late.restart()
    in_step(cluster)
    # All others but one are lost; the late node's data is served.
    leader.kill()
    with Rpc(late.rpc, timeout_s=60) as rpc:
        assert rpc.call("done", queue_name, leased[b"id"]) == b"ok"
        assert [m[b"content"] for m in rpc.call("pull_many", queue_name + "-tail", 9)] == [1, 2, 3]
        for number in range(1, 6):
            assert rpc.call("pull", queue_name)[b"content"] == b"%06d" % number + body


def test_a_restart_from_snapshot_and_log(cluster: Cluster, queue_name: str) -> None:
    """All kinds of state are the same before and after, from the snapshot or from the log after it."""
    with Rpc(cluster[0].rpc) as rpc:
        rpc.call("set_default_props", [[f"^{queue_name}-o", {"retry": 9}]])
        rpc.call("update_props", queue_name, {"retry": 5, "timeout": 600})
        rpc.call("update_props", queue_name + "-window", {"pack": 600})
        rpc.call("push_many", queue_name, list(range(100)))
        rpc.call("push_many", queue_name + "-window", [1, 2])
        early = rpc.call("pull_many", queue_name, 10)
        in_step(cluster)
        # An election in between makes their indexes differ, by an entry that changes nothing.
        for node in cluster:
            snapshot(node)
        late = rpc.call("pull_many", queue_name, 10)
        rpc.call("push", queue_name + "-window", 3)
        rpc.call("push", queue_name + "-other", 1)
    in_step(cluster)
    before = queues(cluster[0])
    end(cluster.nodes, signal.SIGKILL)
    cluster.start()
    in_step(cluster)
    for node in cluster:
        assert queues(node) == before
        assert metric(node, "lmq_raft_snapshot_index") > 0
    with Rpc(cluster[2].rpc) as rpc:
        assert all(rpc.call("done_many", queue_name, [m[b"id"] for m in (*early, *late)]))
        found = rpc.call("pull_many", queue_name, 1000)
        assert [(m[b"content"], m[b"retry"]) for m in found] == [(number, 5) for number in range(20, 100)]
        assert rpc.call("push", queue_name + "-window", 4) == b"packed"
        assert rpc.call("pull", queue_name + "-other")[b"retry"] == 9


def test_a_torn_write_at_the_end_of_the_log_is_cut_and_logged(cluster: Cluster, queue_name: str) -> None:
    """Data after the last sync was never acknowledged: the node starts by itself."""
    with Rpc(cluster[0].rpc) as rpc:
        rpc.call("push_many", queue_name, list(range(100)))
    in_step(cluster)
    victim = cluster.followers()[0]
    victim.kill()
    segment = max((victim.data_dir / "journal").glob("*.log"))
    data = bytearray(segment.read_bytes())
    end_of_log = len(data.rstrip(b"\0"))
    data[end_of_log + 8 : end_of_log + 108] = b"\x5a" * 100
    segment.write_bytes(data)
    victim.start()
    assert "unfinished write at the end of the log removed" in victim.log()
    in_step(cluster)


# --- durability modes -------------------------------------------------------------------------------------------------


def metric(node: NodeProcess, name: str) -> float:
    """Return the value of a metric without labels."""
    lines = call(node.http, "GET", "/metrics").body.decode().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))


@pytest.mark.parametrize("mode", ["process", "memory"])
def test_the_durability_is_shown(tmp_path, mode: str) -> None:
    """It appears in /v1/cluster, the metrics, `status` and `check`."""
    with NodeProcess(tmp_path, arguments=("--durability", mode)) as node:
        assert node.get_json("/v1/cluster")["durability"] == mode
        assert f'durability="{mode}"' in call(node.http, "GET", "/metrics").body.decode()
        assert f"durability {mode}" in run_in_terminal("lmq-admin", "--node", node.http, "status")[1]
        finding = json.loads(run("lmq-admin", "--node", node.http, "--json", "check").out)["checks"]
        assert next(one["detail"] for one in finding if one["name"] == "durability").startswith(mode)


def test_memory_on_a_durable_folder_is_refused(tmp_path, queue_name: str) -> None:
    """The log in the folder would be forgotten, so the node reports that and does not start; nothing is lost."""
    with NodeProcess(tmp_path, arguments=("--durability", "disk")) as node:
        with Rpc(node.rpc) as rpc:
            rpc.call("push", queue_name, "kept")
        node.stop()
        node.arguments = ("--durability", "memory")
        node.start(wait=False)
        assert node.wait_exit() == 78
        [line] = [line for line in node.log().splitlines() if "cannot start" in line]
        assert "a log of durability disk, which durability memory would forget" in line
        assert "Traceback" not in node.log()
        node.arguments = ("--durability", "disk")
        node.start()
        with Rpc(node.rpc) as rpc:
            assert rpc.call("pull", queue_name)[b"content"] == b"kept"


def test_from_memory_to_disk(tmp_path, queue_name: str) -> None:
    """A change of the mode, node by node, keeps everything, and from then on it survives the end of all nodes."""
    with Cluster(3, directory=tmp_path, arguments=("--durability", "memory")) as cluster:
        with Rpc(cluster[0].rpc) as rpc:
            rpc.call("push_many", queue_name, [1, 2, 3])
        for node in cluster:
            node.stop()
            node.arguments = ("--durability", "disk")
            node.start()
            in_step(cluster)
        end(cluster.nodes, signal.SIGKILL)
        cluster.start()
        with Rpc(cluster[0].rpc) as rpc:
            assert [m[b"content"] for m in rpc.call("pull_many", queue_name, 9)] == [1, 2, 3]


def test_process_durability_survives_kill_of_all(tmp_path, queue_name: str) -> None:
    """The operating system has the data, although not every write was synced."""
    with Cluster(3, directory=tmp_path, arguments=("--durability", "process")) as cluster:
        with Outage(cluster.nodes, queue_name) as outage:
            outage.progress()
            end(cluster.nodes, signal.SIGKILL)
        cluster.start()
        in_step(cluster)
        outage.check(cluster[0])
