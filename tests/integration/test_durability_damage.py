"""Damaged files of one node: detected at the start, reported with the repair command, and repaired from the
other nodes.
"""

from __future__ import annotations

import json
import random
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .cluster import Cluster, NodeProcess, wait_for
from .outage import in_step, queues
from .programs import run
from .raw_http import call
from .raw_rpc import Rpc

IDENTITY = ("node.json", "node.copy.json")
Damage = Callable[[Path], None]


def segment(data_dir: Path) -> Path:
    """Return the journal's newest file."""
    return max((data_dir / "journal").glob("*.log"))


def newest_snapshot(data_dir: Path) -> Path:
    """Return the newest snapshot file."""
    return max((data_dir / "snapshots").glob("*.snap"))


def flip(file: Path, offset: int) -> None:
    """Flip one bit."""
    data = bytearray(file.read_bytes())
    data[offset] ^= 1 << random.Random(offset).randrange(8)
    file.write_bytes(data)


def cut(file: Path, size: int) -> None:
    """Keep only the first `size` bytes."""
    with file.open("r+b") as handle:
        handle.truncate(size)


def written(file: Path) -> int:
    """Return the size of the file without the preallocated rest."""
    return len(file.read_bytes().rstrip(b"\0"))


def flip_middle(file: Path) -> None:
    """Flip one bit in the middle of the written data."""
    flip(file, written(file) // 2)


def cut_middle(file: Path) -> None:
    """Remove the second half of the written data."""
    cut(file, written(file) // 2)


def both(data_dir: Path, damage: Damage) -> None:
    """Damage both copies of the identity."""
    for name in IDENTITY:
        damage(data_dir / name)


REPAIRABLE: dict[str, tuple[str, Callable[[Path], None]]] = {
    "journal flipped": (".log", lambda folder: flip_middle(segment(folder))),
    "journal cut": (".log", lambda folder: cut_middle(segment(folder))),
    "journal file deleted": ("journal", lambda folder: segment(folder).unlink()),
    "mark flipped": ("synced", lambda folder: flip(folder / "journal" / "synced", 20)),
    "mark deleted": ("synced", lambda folder: (folder / "journal" / "synced").unlink()),
    "snapshot flipped": (".snap", lambda folder: flip_middle(newest_snapshot(folder))),
    "snapshot cut": (".snap", lambda folder: cut_middle(newest_snapshot(folder))),
    "identity flipped": ("node.json", lambda folder: both(folder, flip_middle)),
    "identity deleted": ("node.json", lambda folder: both(folder, Path.unlink)),
    "cut log, deleted snapshot": ("journal", lambda folder: newest_snapshot(folder).unlink()),
}


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes whose log begins at a snapshot and continues after it; each test leaves them intact."""
    with Cluster(3, directory=tmp_path_factory.mktemp("broken")) as nodes:
        with Rpc(nodes[0].rpc, timeout_s=60) as rpc:
            # More than a log keeps, so that it is compacted up to the snapshot.
            body = b"b" * 400_000
            for _ in range(90):
                rpc.call("push", "large", body)
            for node in nodes:
                in_step(nodes)
                assert call(node.http, "POST", "/v1/snapshots").status == 200
            rpc.call("push_many", "tail", list(range(1000)))
            assert call(nodes[0].http, "DELETE", "/v1/queues/large").status < 300
        yield nodes


def serve(cluster: Cluster, nodes: list[NodeProcess], queue: str) -> None:
    """Check that a message pushed through one node can be pulled through another one."""
    with Rpc(nodes[0].rpc) as first, Rpc(nodes[1].rpc) as second:
        assert first.call("push", queue, "x") == b"ok"
        message = second.call("pull", queue, 20)
        assert (message[b"content"], message[b"retry"]) == (b"x", 2)
        assert first.call("done", queue, message[b"id"]) == b"ok"


def complaint(node: NodeProcess, since: int) -> dict[str, Any]:
    """Return the one critical line that a start has logged."""
    lines = [json.loads(line) for line in node.log()[since:].splitlines() if line.startswith("{")]
    [line] = [line for line in lines if line["level"] == "critical"]
    return line


def has_led(node: NodeProcess, since: int) -> bool:
    """Return whether the node has been leader since then."""
    return '"state": "leader"' in node.log()[since:]


@pytest.mark.parametrize("kind", REPAIRABLE)
def test_damage_is_named_and_one_command_brings_the_node_back(broken: Cluster, queue_name: str, kind: str) -> None:
    """The node refuses to start, with file, offset and command; the others serve; the command and a start
    restore it.
    """
    name, damage = REPAIRABLE[kind]
    victim = broken.leader()
    others = [node for node in broken if node is not victim]
    in_step(broken)
    victim.kill()
    damage(victim.data_dir)
    since = len(victim.log())
    if kind == "identity deleted":
        # There is no trace of a former node. It is as if the disk had been replaced.
        shutil.rmtree(victim.data_dir)
    else:
        victim.start(wait=False)
        assert victim.wait_exit() == 65
        line = complaint(victim, since)
        assert name in line["file"]
        assert str(victim.data_dir) in line["file"]
        assert line["offset"] >= 0
        assert line["reason"]
        assert "Traceback" not in victim.log()[since:]
        serve(broken, others, queue_name)
        program, *arguments = shlex.split(line["repair"])
        repaired = run(program, *arguments, "--yes")
        assert (repaired.code, repaired.out) == (0, ""), repaired
    since = len(victim.log())
    victim.start()
    in_step(broken)
    assert not has_led(victim, since)
    # It is a full member again: with it one of the others can be lost.
    others[0].pause()
    try:
        serve(broken, [victim, others[1]], queue_name)
    finally:
        others[0].resume()
    assert next(queue["size"] for queue in queues(victim) if queue["name"] == "tail") == 1000


@pytest.mark.parametrize("name", IDENTITY)
@pytest.mark.parametrize("damage", [flip_middle, cut_middle, Path.unlink], ids=["flipped", "cut", "deleted"])
def test_one_copy_of_the_identity_is_enough(broken: Cluster, name: str, damage: Damage) -> None:
    """The node starts by itself, logs which file was damaged, and both copies are intact again."""
    victim = broken.followers()[0]
    victim.stop()
    term = json.loads((victim.data_dir / name).read_text())["node"]["term"]
    damage(victim.data_dir / name)
    since = len(victim.log())
    victim.start()
    in_step(broken)
    if damage is not Path.unlink:
        assert "damaged file replaced by its copy" in victim.log()[since:]
    for file in IDENTITY:
        assert json.loads((victim.data_dir / file).read_text())["node"]["term"] >= term


def test_damage_of_two_of_three_one_after_the_other(broken: Cluster) -> None:
    """While one node is being repaired, another intact one keeps the data: nothing is lost."""
    for victim in broken.followers():
        victim.kill()
        flip_middle(segment(victim.data_dir))
        victim.start(wait=False)
        assert victim.wait_exit() == 65
        assert run("lmq", "repair", "--data-dir", str(victim.data_dir), "--yes").code == 0
        victim.start()
        mine = next(node for node in victim.get_json("/v1/cluster")["nodes"] if node["raft"] == victim.raft)
        assert mine["state"] != "recovering", "it is ready only when it holds its acknowledged entries"
    in_step(broken)
    assert next(queue["size"] for queue in queues(broken[0]) if queue["name"] == "tail") == 1000


def test_two_repaired_nodes_make_no_cluster_without_the_data(cluster: Cluster, queue_name: str) -> None:
    """One node was repaired and one lost its disk: without the third they elect no leader; with it they ask for a
    decision.

    Two of three can outvote the one that has the data, so acknowledged messages would be lost silently.
    """
    with Rpc(cluster[0].rpc) as rpc:
        rpc.call("push_many", queue_name, list(range(100)))
    in_step(cluster)
    whole, *blank = cluster.leader(), *cluster.followers()
    for node in cluster:
        node.kill()
    flip_middle(segment(blank[0].data_dir))
    assert run("lmq", "repair", "--data-dir", str(blank[0].data_dir), "--yes").code == 0
    shutil.rmtree(blank[1].data_dir)
    since = {node: len(node.log()) for node in blank}
    for node in blank:
        node.start(wait=False)
    check_no_leader(blank, "no leader can be elected", since)
    whole.start(wait=False)
    check_no_leader(blank, f'{{"peer": "{whole.raft}", "event": "peer connected"', since)
    # They report the problem and the remedy.
    problem = wait_for(lambda: whole.get_json("/v1/cluster")["problem"], "the report of the problem")
    assert problem.startswith("2 of 3 members have forgotten what they held")
    assert f"{whole.name} go on alone (lmq-admin recover" in problem
    assert problem in run("lmq-admin", "--node", whole.http, "status").one_line_error()
    checks = {one["name"]: one for one in whole.get_json("/v1/cluster/check")["checks"]}
    assert checks["leader"]["detail"] == problem
    wait_for(lambda: '"no leader can be elected"' in whole.log(), "the problem is in the log")
    for node in cluster:
        node.kill()
    assert run("lmq-admin", "recover", "--data-dir", str(whole.data_dir), "--yes").code == 0
    whole.start()
    with Rpc(whole.rpc) as rpc:
        assert [m[b"content"] for m in rpc.call("pull_many", queue_name, 200)] == list(range(100))


def check_no_leader(nodes: list[NodeProcess], sign: str, since: dict[NodeProcess, int]) -> None:
    """Check that once a sign is in the logs of some nodes, none of them leads for several election times."""
    wait_for(lambda: any(sign in node.log()[since[node] :] for node in nodes), f"{sign} in a log")
    looks = iter(range(60))
    wait_for(lambda: next(looks, None) is None, "60 looks")
    for node in nodes:
        assert not has_led(node, since[node])
        assert not node.get_json("/v1/cluster")["has_quorum"]


def test_a_lone_node_is_truncated_before_the_damage_or_left_unchanged(tmp_path: Path) -> None:
    """No other node could restore its data, so a plain repair would lose them, and the node would wait forever."""
    with Cluster(1, directory=tmp_path) as cluster:
        node = cluster[0]
        with Rpc(node.rpc) as rpc:
            for number in range(50):
                assert rpc.call("push", "kept", number) == b"ok"
        node.kill()
        damaged = segment(node.data_dir)
        flip(damaged, written(damaged) - 20)
        node.start(wait=False)
        assert node.wait_exit() == 65
        command = json.loads(node.log().splitlines()[-1])["repair"]
        assert command == f"lmq repair --data-dir {node.data_dir} --alone"
        refused = run("lmq", "repair", "--data-dir", str(node.data_dir), "--yes")
        assert refused.code == 65
        assert "lmq-admin restore" in refused.one_line_error()
        assert "lmq repair --alone" in refused.one_line_error()
        repaired = run("lmq", *shlex.split(command)[1:], "--yes")
        assert repaired.code == 0, repaired
        assert "later entries are lost" in repaired.err
        node.start()
        with Rpc(node.rpc) as rpc:
            found = [m[b"content"] for m in rpc.call("pull_many", "kept", 100)]
            assert found == list(range(len(found)))
            assert 45 <= len(found) < 50
            assert rpc.call("push", "kept", "more") == b"ok"


def test_repair_refuses_a_running_node_and_a_folder_without_one(node: NodeProcess, tmp_path: Path) -> None:
    """Both are refused with a one-line error before the confirmation."""
    folders = (
        (node.data_dir, "is using the data directory"),
        (tmp_path, "there is no node's data"),
        (tmp_path / "nothing", "does not exist"),
    )
    for folder, text in folders:
        for agreed in ([], ["--yes"]):
            refused = run("lmq", "repair", "--data-dir", str(folder), *agreed)
            assert refused.code == 78, (folder, agreed)
            assert text in refused.one_line_error()
    assert not (tmp_path / "nothing").exists()
