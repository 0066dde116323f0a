"""Leadership transfer, checks, snapshots, backups, and recovery of a lost quorum, through ``lmq-admin``."""

from __future__ import annotations

import json
import re
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from .cluster import Cluster, NodeProcess, wait_for
from .load import Load
from .outage import in_step, queues
from .programs import Result, run, run_in_terminal
from .raw_http import call
from .raw_rpc import Rpc
from .test_membership_changes import agree, serves

PLAIN = {"NO_COLOR": "1"}


def admin(node: NodeProcess, *arguments: str) -> Result:
    """Run lmq-admin against a node."""
    return run("lmq-admin", "--node", node.http, *arguments)


def done(result: Result) -> None:
    """Check that the command succeeded without output."""
    assert result == (0, "", ""), result


# --- transfer-leader --------------------------------------------------------------------------------------------------


def test_leadership_is_transferred_to_a_named_node_and_to_any(cluster: Cluster, queue_name: str) -> None:
    """Through any node, by name and by id; a transfer to the leader is a no-op; clients see no error."""
    with Load(cluster.nodes, queue_name) as load:
        load.progress()
        for number, target in enumerate(cluster.nodes):
            done(admin(cluster[(number + 1) % 3], "transfer-leader", target.name))
            assert cluster.leader() is target
        target = cluster.followers()[0]
        done(admin(cluster.followers()[1], "transfer-leader", target.get_json("/v1/cluster")["self"]))
        assert cluster.leader() is target
        done(admin(target, "transfer-leader", target.name))
        assert cluster.leader() is target
        done(admin(target, "transfer-leader"))
        wait_for(lambda: cluster.leader() is not target, "another leader")
        load.progress()
    load.check_exactly_once()
    print(f"five transfers: pause {load.pause_s:.2f} s")
    assert load.pause_s < 5


def test_invalid_transfers_are_refused(cluster: Cluster) -> None:
    """A transfer to an unknown node or to one that is down fails soon, and the leader does not change."""
    leader, dead = cluster.leader(), cluster.followers()[0]
    unknown = admin(leader, "transfer-leader", "n9")
    assert unknown.code == 65
    assert "there is no one member 'n9'" in unknown.one_line_error()
    dead.kill()
    down = admin(leader, "transfer-leader", dead.name)
    assert re.search("cannot be reached or is not up to date|took over", down.one_line_error())
    assert down.code == (75 if "took over" in down.err else 65)
    assert cluster.leader() is leader
    with Rpc(leader.rpc) as rpc:
        assert rpc.call("push", "q", 1) == b"ok"


def test_a_lone_node_cannot_transfer_leadership(node: NodeProcess) -> None:
    """A one-line error says so."""
    result = admin(node, "transfer-leader")
    assert result.code == 65
    assert "alone" in result.one_line_error()


# --- check ------------------------------------------------------------------------------------------------------------


def findings(node: NodeProcess) -> tuple[dict[str, tuple[bool, str]], bool]:
    """Return all checks by name, and whether the node may be stopped."""
    answer = json.loads(admin(node, "--json", "check").out)
    return {one["name"]: (one["ok"], one["detail"]) for one in answer["checks"]}, answer["safe_to_stop"]


def test_check_of_a_cluster_that_is_well_and_of_one_that_is_not(cluster: Cluster) -> None:
    """A healthy cluster gives all ok and 0; with a node down, the problems by name and 69; and whether a stop
    is safe.
    """
    in_step(cluster)
    for node in cluster:
        result = admin(node, "check")
        assert (result.code, result.err) == (0, ""), result
        assert "PROBLEM" not in result.out
        checks, safe = findings(node)
        assert safe
        assert set(checks) >= {
            "leader",
            "members",
            "lag",
            "disk",
            "disk limit",
            "memory",
            "quota",
            "durability",
            "safe to stop",
        }
        assert checks["leader"][1] == f"{cluster.leader().name} leads"
    gone, stays = cluster.followers()
    gone.kill()
    wait_for(lambda: admin(stays, "check").code == 69, "the problem is seen")
    checks, safe = findings(stays)
    assert not safe
    assert checks["members"] == (False, f"not reachable or not up to date: {gone.name}")
    assert not checks["safe to stop"][0]
    assert checks["leader"][0]
    assert "stopping this node stops the cluster" in checks["safe to stop"][1]
    for columns in (80, 120):
        code, seen = run_in_terminal("lmq-admin", "--node", stays.http, "check", columns=columns, environment=PLAIN)
        assert code == 69
        assert seen.count("PROBLEM") == 2
        assert max(map(len, seen.splitlines())) <= columns


def test_a_lone_node_is_not_safe_to_stop(node: NodeProcess) -> None:
    """No other node would serve."""
    checks, safe = findings(node)
    assert not safe
    assert "alone" in checks["safe to stop"][1]
    assert admin(node, "check").code == 69


# --- snapshot, backup and restore -------------------------------------------------------------------------------------


def full_state(node: NodeProcess, queue_name: str) -> None:
    """Return queues, messages, leases, properties and rules."""
    with Rpc(node.rpc) as rpc:
        rpc.call("set_default_props", [[f"^{queue_name}-other", {"retry": 9}]])
        rpc.call("update_props", queue_name, {"retry": 5, "timeout": 600})
        rpc.call("push_many", queue_name, [*range(100), b"\x00\xff" * 1000])
        rpc.call("pull_many", queue_name, 10)
        rpc.call("push", queue_name + "-other", {"a": [1, 2.5, None]})


def test_a_backup_is_restored_and_others_join_it(tmp_path: Path, queue_name: str) -> None:
    """Later changes are not in the backup; the restored node has everything else, and its cluster grows as
    any other.
    """
    file = tmp_path / "backup"
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    with Cluster(3, directory=tmp_path / "old") as old:
        full_state(old[0], queue_name)
        in_step(old)
        before = queues(old[1])
        done(admin(old[1], "backup", str(file)))
        assert {path.name for path in tmp_path.iterdir()} == {"old", "new", "backup"}
        assert file.stat().st_mode & 0o777 == 0o600, "it holds all messages"
        again = admin(old[1], "backup", str(file))
        assert again.code == 2
        assert "already exists; choose a new file" in again.one_line_error()
        with Rpc(old[0].rpc) as rpc:
            rpc.call("push", queue_name, "later")
            [late] = rpc.call("pull_many", queue_name, 1)
    with Cluster(1, directory=tmp_path / "new") as new:
        [first] = new
        # A separate cluster, which the contents of the backup replace.
        first.stop()
        first.peers = ()
        taken = run("lmq-admin", "restore", str(file), "--data-dir", str(first.data_dir))
        assert taken.code == 78
        assert "there is a node's data already" in taken.one_line_error()
        shutil.rmtree(first.data_dir)
        done(run("lmq-admin", "restore", str(file), "--data-dir", str(first.data_dir), "--raft", first.raft))
        first.start()
        assert queues(first) == before
        second, third = new.add_node(), new.add_node()
        done(admin(second, "join", first.http))
        done(admin(third, "join", second.http))
        agree(new.nodes)
        in_step(new)
        first.kill()
        with Rpc(third.rpc, timeout_s=60) as rpc:
            assert rpc.call("get_default_props") == [[f"^{queue_name}-other".encode(), {b"retry": 9}]]
            found = rpc.call("pull_many", queue_name, 1000)
            # Its delivery number was given to another message in this incarnation.
            assert rpc.call("done_many", queue_name, [late[b"id"]]) == [False]
            assert rpc.call("done_many", queue_name, [found[0][b"id"]]) == [True]
            assert [m[b"content"] for m in found] == [*range(10, 100), b"\x00\xff" * 1000]
            assert {m[b"retry"] for m in found} == {5}
            [other] = rpc.call("pull_many", queue_name + "-other", 10)
            assert (other[b"content"], other[b"retry"]) == ({b"a": [1, 2.5, None]}, 9)


def test_damaged_backups_are_refused(node: NodeProcess, tmp_path: Path) -> None:
    """A damaged backup is refused without effect; the same command with the intact file works."""
    file, folder = tmp_path / "backup", tmp_path / "restored"
    with Rpc(node.rpc) as rpc:
        rpc.call("push_many", "backup", list(range(1000)))
    done(admin(node, "backup", str(file)))
    whole = file.read_bytes()
    damages = [b"", whole[:10], whole[: len(whole) // 2], whole[:-1], whole + b"x", b"no backup at all" * 100]
    damages += [
        whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in (0, 20, len(whole) // 2, len(whole) - 1)
    ]
    for damaged in damages:
        file.write_bytes(damaged)
        result = run("lmq-admin", "restore", str(file), "--data-dir", str(folder))
        assert result.code == 65, result
        assert str(file) in result.one_line_error()
        assert not folder.exists()
    file.write_bytes(whole)
    done(run("lmq-admin", "restore", str(file), "--data-dir", str(folder)))


def test_snapshot_and_its_blocks(cluster: Cluster, queue_name: str) -> None:
    """The command writes a file that the next start uses; blocks are served of portable files only."""
    node = cluster[0]
    full_state(node, queue_name)
    done(admin(node, "snapshot"))
    info: Any = json.loads(admin(node, "--json", "snapshot").out)
    # The log may have grown between the two.
    [file] = (node.data_dir / "snapshots").glob(f"{info['index']:020d}*.snap")
    assert info["size_bytes"] == file.stat().st_size
    assert call(node.http, "GET", f"/v1/snapshots/{info['index']}/blocks/0").status == 404
    info = call(node.http, "POST", "/v1/snapshots").json
    assert call(node.http, "GET", f"/v1/snapshots/{info['index']}/blocks/0").status == 200
    for path in (f"{info['index']}/blocks/{info['blocks']}", f"{info['index'] + 1}/blocks/0"):
        assert call(node.http, "GET", f"/v1/snapshots/{path}").status == 404
    for path in ("x/blocks/0", "1/blocks/-1", "9" * 30 + "/blocks/0"):
        assert call(node.http, "GET", f"/v1/snapshots/{path}").status == 400
    node.restart()
    in_step(cluster)


# --- recover ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def survivor(cluster: Cluster, queue_name: str) -> NodeProcess:
    """A stopped node with data whose two peers are lost permanently."""
    full_state(cluster[0], queue_name)
    in_step(cluster)
    node = cluster.followers()[0]
    for one in cluster:
        one.kill()
        if one is not node:
            shutil.rmtree(one.data_dir)
    return node


def test_a_lost_quorum_is_recovered_from_the_survivor(cluster: Cluster, survivor: NodeProcess, queue_name: str) -> None:
    """The command describes its action, asks, and the node then serves alone with all its data; new nodes can
    join it.
    """
    survivor.start(wait=False)
    wait_for(lambda: call_is_up(survivor), "it is up")
    running = run("lmq-admin", "recover", "--data-dir", str(survivor.data_dir), "--yes")
    assert running.code == 78
    assert "is using the data directory" in running.one_line_error()
    assert "stop the node first" in running.one_line_error()
    assert not survivor.get_json("/v1/cluster")["has_quorum"]
    survivor.stop()
    command = ["lmq-admin", "recover", "--data-dir", str(survivor.data_dir)]
    unasked = run(*command)
    assert unasked.code == 2
    assert "pass --yes" in unasked.err
    code, seen = run_in_terminal(*command, typed=b"n\n")
    assert (code, "a one-node cluster?" in " ".join(seen.split())) == (130, True)
    code, seen = run_in_terminal(*command, typed=b"y\n")
    assert code == 0, seen
    assert "It will continue without" in " ".join(seen.split())
    survivor.start()
    agree([survivor])
    [queue] = [one for one in queues(survivor) if one["name"] == queue_name]
    assert (queue["size"], queue["leased"]) == (101, 10)
    fresh = [cluster.add_node(), cluster.add_node()]
    for node in fresh:
        done(admin(node, "join", survivor.http))
    agree([survivor, *fresh])
    serves([survivor, *fresh], queue_name + "-serves")
    in_step(cluster, [survivor, *fresh])
    survivor.kill()
    with Rpc(fresh[0].rpc, timeout_s=60) as rpc:
        assert len(rpc.call("pull_many", queue_name, 1000)) == 91


def call_is_up(node: NodeProcess) -> bool:
    """Return whether the node answers."""
    try:
        return call(node.http, "GET", "/livez").status == 200
    except OSError:
        return False


def test_recovery_of_a_directory_without_a_node_or_with_damage(survivor: NodeProcess, tmp_path: Path) -> None:
    """A one-line error appears, and nothing is changed."""
    nothing = run("lmq-admin", "recover", "--data-dir", str(tmp_path / "nothing"), "--yes")
    assert nothing.code == 78
    segment = max((survivor.data_dir / "journal").glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[len(data.rstrip(b"\0")) // 2] ^= 1
    segment.write_bytes(data)
    damaged = run("lmq-admin", "recover", "--data-dir", str(survivor.data_dir), "--yes")
    assert damaged.code == 65
    assert str(segment) in damaged.one_line_error()
    assert segment.read_bytes() == data


# --- orderly stop -----------------------------------------------------------------------------------------------------


def test_sigterm_transfers_leadership_before_the_process_ends(cluster: Cluster, queue_name: str) -> None:
    """The others have a leader before the old one ends, and their clients see only a short pause."""
    leader = cluster.leader()
    rest = [node for node in cluster if node is not leader]
    with Load(rest, queue_name) as load:
        load.progress()
        load.pause_s = 0.0
        leader.signal(signal.SIGTERM)
        seen_s = None
        while leader.running:
            if seen_s is None and any(leads(node) for node in rest):
                seen_s = time.monotonic()
        ended_s = time.monotonic()
        load.progress()
    load.check_exactly_once()
    assert seen_s is not None, "no other leader was seen before the process ended"
    print(f"SIGTERM of the leader: pause {load.pause_s:.2f} s, new leader {ended_s - seen_s:.2f} s before the end")
    assert load.pause_s < 3


def leads(node: NodeProcess) -> bool:
    """Return whether the node reports to be leader."""
    status = node.get_json("/v1/cluster")
    return bool(status["leader"] == status["self"])
