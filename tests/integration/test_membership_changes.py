"""Joining and leaving on real nodes."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmqcluster import AsyncClient

from ..unit.client.client_cluster import async_test
from .cluster import Cluster, NodeProcess, fetch, ports, wait_for
from .load import Load
from .programs import run
from .raw_http import Answer, Connection, call
from .raw_rpc import Rpc

JSON = {"Content-Type": "application/json"}
COMPACTED_BYTES = 40 * 1024 * 1024
"""Larger than the log, so that a joiner needs a snapshot."""


@pytest.fixture
def cluster(tmp_path) -> Iterator[Cluster]:
    """Two nodes, with room for more."""
    with Cluster(2, directory=tmp_path) as nodes:
        yield nodes


def join(node: NodeProcess, peer: str) -> Answer:
    """Make a node join and discard its data; return the answer."""
    with Connection(node.http, timeout_s=60) as connection:
        return connection.call(
            "POST", "/v1/cluster/join", json.dumps({"peer": peer, "discard_data": True}).encode(), JSON
        )


def leave(node: NodeProcess) -> Answer:
    """Make a node leave; return the answer."""
    return call(node.http, "POST", "/v1/cluster/leave", b"")


def members(node: NodeProcess) -> set[str]:
    """Return the Raft addresses of the members as the node sees them."""
    return {member["raft"] for member in node.get_json("/v1/cluster")["nodes"]}


def agree(nodes: list[NodeProcess]) -> None:
    """Wait until each of these nodes has exactly these nodes as members."""
    wanted = {node.raft for node in nodes}
    wait_for(lambda: all(members(node) == wanted for node in nodes), f"the members are {[n.name for n in nodes]}")


def serves(nodes: list[NodeProcess], queue_name: str) -> None:
    """Check that messages pushed through each node can be pulled and settled through the next one."""
    for node, other in zip(nodes, [*nodes[1:], nodes[0]], strict=True):
        with Rpc(node.rpc) as rpc, Rpc(other.rpc) as other_rpc:
            assert rpc.call("push", queue_name, node.name) == b"ok"
            message = other_rpc.call("pull", queue_name, 20)
            assert (message[b"content"], message[b"retry"]) == (node.name.encode(), 2)
            assert rpc.call("done", queue_name, message[b"id"]) == b"ok"


def answers(node: NodeProcess) -> bool:
    """Return whether the node's HTTP port answers."""
    try:
        return fetch(node.http, "/livez")[0] == 200
    except OSError:
        return False


def refuses_clients(node: NodeProcess, queue_name: str) -> None:
    """Check that a node in no cluster reports that on each port, stores nothing, and shows its state on request."""
    for method, path in (("POST", "/messages/q"), ("GET", "/messages/q?t=0"), ("GET", "/stats")):
        answer = call(node.http, method, path, b"lost")
        assert answer.status == 503, (path, answer)
        assert answer["x-lmq-error"].startswith(b"left_cluster: "), (path, answer)
    answer = call(node.http, "POST", f"/v1/queues/{queue_name}/messages", b'{"messages": [{"content": "x"}]}', JSON)
    assert (answer.status, answer.json["code"]) == (503, "left_cluster")
    assert (answer.json["retryable"], answer.json["outcome"]) == (True, "not_applied")
    with Rpc(node.rpc) as rpc:
        for method, *arguments in (("push", queue_name, "lost"), ("pull", queue_name, 0), ("get_default_props",)):
            assert rpc.error(method, *arguments).startswith(b"left_cluster: this node has left its cluster"), method
    status, body = fetch(node.http, "/readyz")
    assert status == 503
    assert b"[-]member failed: this node has left its cluster" in body
    cluster = node.get_json("/v1/cluster")
    assert (cluster["leader"], cluster["has_quorum"]) == (None, False)
    assert [one["state"] for one in cluster["nodes"]] == ["left"]
    checks = {one["name"]: one for one in node.get_json("/v1/cluster/check")["checks"]}
    assert "has left its cluster" in checks["leader"]["detail"]
    assert not checks["leader"]["ok"]
    shown = run("lmq-admin", "--node", node.http, "status")
    assert shown.code == 69
    assert "has left its cluster" in shown.one_line_error()


# --- join -------------------------------------------------------------------------------------------------------------


def test_join_copies_all_data_and_discards_its_own(cluster: Cluster, queue_name: str) -> None:
    """12.4: the joiner discards its own data and copies everything of the cluster."""
    fresh = cluster.add_node()
    with Rpc(cluster[0].rpc) as rpc, Rpc(fresh.rpc) as own:
        rpc.call("update_props", queue_name, {"retry": 6})
        rpc.call("set_default_props", [["^x", {"retry": 1}]])
        rpc.call("push_many", queue_name, [1, 2, 3])
        leased = rpc.call("pull", queue_name)
        own.call("push", queue_name + "-own", "missing after the join")
        answer = join(fresh, cluster[0].http)
        assert answer.status == 200, answer
        assert {node["raft"] for node in answer.json["nodes"]} == {node.raft for node in cluster}
        agree(cluster.nodes)
        # The connection to the joiner still works, and shows the cluster's data.
        assert own.call("done", queue_name, leased[b"id"]) == b"ok"
        assert [(m[b"content"], m[b"retry"]) for m in own.call("pull_many", queue_name, 10)] == [(2, 6), (3, 6)]
        assert own.call("get_default_props") == [[b"^x", {b"retry": 1}]]
        assert own.error("done", queue_name + "-own", "x") == b"throw:queue_not_found"
    serves(cluster.nodes, queue_name + "-serves")


def test_join_by_every_form_of_address_through_leader_and_follower(cluster: Cluster, queue_name: str) -> None:
    """Design 2.2: PEER is an HTTP or Raft address, `lmq@host` accepted; the requested node need not lead."""
    founders = list(cluster.nodes)
    leader = cluster.leader()
    follower = next(node for node in founders if node is not leader)
    fresh = cluster.add_node()
    for peer in (leader.raft, follower.raft, follower.http, f"lmq@{leader.http}", f"lmq@{follower.raft}"):
        answer = join(fresh, peer)
        assert answer.status == 200, (peer, answer)
        agree(cluster.nodes)
        serves(cluster.nodes, queue_name)
        assert leave(fresh).status == 200
        agree(founders)


def test_a_node_that_awaits_its_join_serves_no_client(cluster: Cluster, queue_name: str) -> None:
    """No client that finds it early, through a load balancer or a list, gets an acknowledgement that a join
    would discard.
    """
    fresh = cluster.add_node(start=False)
    fresh.arguments = ("--await-join", "on")
    fresh.start(wait=False)
    wait_for(lambda: answers(fresh), "the node is up")
    refuses_clients(fresh, queue_name)
    assert join(fresh, cluster[0].raft).status == 200
    agree(cluster.nodes)
    fresh.restart()
    agree(cluster.nodes)
    serves(cluster.nodes, queue_name)


def test_joined_node_counts_as_a_member(cluster: Cluster, queue_name: str) -> None:
    """Two founders and a joiner survive the loss of any one, also of a founder that led."""
    fresh = cluster.add_node()
    assert join(fresh, cluster[0].http).status == 200
    agree(cluster.nodes)
    with Rpc(cluster[0].rpc) as rpc:
        rpc.call("push_many", queue_name, list(range(10)))
    victim = cluster.leader()
    victim.kill()
    serves(cluster.alive, queue_name + "-serves")
    with Rpc(fresh.rpc) as rpc:
        assert [m[b"content"] for m in rpc.call("pull_many", queue_name, 100)] == list(range(10))
    # A joiner that restarts is the same member again.
    victim.start(wait=False)
    victim.wait_ready()
    fresh.restart()
    serves(cluster.nodes, queue_name + "-serves")
    agree(cluster.nodes)


def test_joiner_gets_a_snapshot_where_the_log_has_been_compacted(cluster: Cluster, queue_name: str) -> None:
    """A joiner that lacks compacted entries gets them as a snapshot, under load."""
    body = b"s" * 100_000
    with Rpc(cluster[0].rpc, timeout_s=60) as rpc:
        # The lease must last until the joiner has caught up, on a busy machine too.
        rpc.call("update_props", queue_name, {"timeout": 600})
        for number in range(COMPACTED_BYTES // len(body)):
            rpc.ask("push", queue_name, b"%06d" % number + body)
        for _ in range(COMPACTED_BYTES // len(body)):
            assert rpc.read().error is None
        first = rpc.call("pull", queue_name)
    fresh = cluster.add_node()
    with Load(cluster.nodes[:2], queue_name + "-load") as load:
        load.progress(200)
        assert join(fresh, cluster[1].raft).status == 200
        load.progress(200)
    load.check_exactly_once()
    assert "snapshot installed" in fresh.log()
    with Rpc(fresh.rpc) as rpc:
        assert rpc.call("done", queue_name, first[b"id"]) == b"ok"
        for number in range(1, 6):
            assert rpc.call("pull", queue_name)[b"content"] == b"%06d" % number + body
    sizes = [call(node.http, "GET", f"/v1/queues/{queue_name}").json["size"] for node in cluster]
    assert sizes == [COMPACTED_BYTES // len(body) - 1] * 3


@pytest.mark.parametrize("role", ["follower", "leader"])
def test_leave_under_load_of_clients_that_list_all_nodes(tmp_path: Path, role: str) -> None:
    """Every acknowledged push is in the cluster afterwards, through any client, including those in flight."""
    with Cluster(3, directory=tmp_path) as cluster:
        leaver = cluster.leader() if role == "leader" else cluster.followers()[0]
        stays = [node for node in cluster if node is not leaver]
        _push_while_a_node_leaves(leaver, stays)


class _HttpPusher(threading.Thread):
    """Pushes over HTTP to one node, and to the next one when it is refused."""

    def __init__(self, nodes: list[NodeProcess], first: int) -> None:
        super().__init__(name=f"http pusher {first}")
        self.acknowledged: list[int] = []
        self.refused: set[str] = set()
        self.stop = threading.Event()
        self._nodes = itertools.cycle(nodes)
        self._first = first

    def run(self) -> None:
        node = next(self._nodes)
        for number in itertools.count(self._first, 1000):
            if self.stop.is_set():
                return
            try:
                answer = call(node.http, "POST", "/messages/q", b"%d" % number)
            except (OSError, EOFError):
                node = next(self._nodes)
                continue
            if answer.status == 200:
                self.acknowledged.append(number)
            else:
                self.refused.add(answer["x-lmq-error"].decode().partition(":")[0])
                node = next(self._nodes)


class _StubbornPusher(threading.Thread):
    """Uses one node only and reconnects after every error, with many pushes in flight at once."""

    def __init__(self, node: NodeProcess, first: int) -> None:
        super().__init__(name=f"stubborn pusher {first}")
        self.acknowledged: list[int] = []
        self.refused = 0
        self.stop = threading.Event()
        self._node = node
        self._numbers = itertools.count(first, 1000)

    def run(self) -> None:
        while not self.stop.is_set():
            try:
                with Rpc(self._node.rpc) as rpc:
                    self._push(rpc)
            except (OSError, EOFError):
                continue

    def _push(self, rpc: Rpc) -> None:
        while not self.stop.is_set():
            asked = {rpc.ask("push", "q", number): number for number in itertools.islice(self._numbers, 50)}
            for _ in range(len(asked)):
                reply = rpc.read()
                if reply.error is None:
                    self.acknowledged.append(asked[reply.msgid])
                elif reply.error.startswith(b"left_cluster: this node has left"):
                    self.refused += 1


@async_test
async def _push_while_a_node_leaves(leaver: NodeProcess, stays: list[NodeProcess]) -> None:
    nodes = [leaver, *stays]
    https = [_HttpPusher(nodes, first) for first in range(3)]
    stubborn = _StubbornPusher(leaver, 3)
    acknowledged: list[int] = []
    pushing = True
    clients = [AsyncClient([one.rpc for one in nodes]) for _ in range(3)]

    async def push(client: AsyncClient, first: int) -> None:
        for number in itertools.count(first, 1000):
            if not pushing:
                return
            await client.push("q", number)
            acknowledged.append(number)

    tasks = [asyncio.create_task(push(client, 10 + 20 * i + j)) for i, client in enumerate(clients) for j in range(16)]
    pushers: list[_HttpPusher | _StubbornPusher] = [*https, stubborn]
    for thread in pushers:
        thread.start()
    try:
        await asyncio.to_thread(
            wait_for, lambda: len(acknowledged) > 500 and all(x.acknowledged for x in pushers), "pushes"
        )
        assert (await asyncio.to_thread(leave, leaver)).status == 200
        so_far = len(acknowledged)
        counts = [len(one.acknowledged) for one in https]
        await asyncio.to_thread(wait_for, lambda: len(acknowledged) > so_far + 500, "pushes after the node has left")
        await asyncio.to_thread(wait_for, lambda: stubborn.refused > 500, "clients of the node are refused")
        await asyncio.to_thread(
            wait_for,
            lambda: all(len(one.acknowledged) > count + 5 for one, count in zip(https, counts, strict=True)),
            "clients over HTTP are served by the others",
        )
    finally:
        pushing = False
        for thread in pushers:
            thread.stop.set()
        await asyncio.gather(*tasks)
        for thread in (*https, stubborn):  # type: ignore[assignment]
            await asyncio.to_thread(thread.join)
        for client in clients:
            await client.close()
    found: list[int] = []
    async with AsyncClient([stays[0].rpc]) as client:
        while messages := await client.pull_many("q", 1000):
            found += [int(message.content) for message in messages]
    confirmed = [
        *acknowledged,
        *stubborn.acknowledged,
        *itertools.chain.from_iterable(one.acknowledged for one in https),
    ]
    assert len(confirmed) == len(set(confirmed))
    assert set(confirmed) - set(found) == set()
    counted = Counter(found)
    assert [number for number in acknowledged if counted[number] != 1] == []
    print(
        f"{len(confirmed)} pushes acknowledged, all there; {stubborn.refused} refused; over HTTP {[x.refused for x in https]}"
    )


def test_waiting_pulls_at_a_joiner_are_answered(cluster: Cluster, queue_name: str) -> None:
    """12.4: requests to the joiner fail for a moment; they are answered, not forgotten."""
    fresh = cluster.add_node()
    with Rpc(fresh.rpc) as rpc:
        rpc.ask("pull", queue_name)
        rpc.settle()
        assert join(fresh, cluster[0].http).status == 200
        assert rpc.read().error.startswith(b"shutting_down: the node is changing its cluster")
        assert rpc.call("push", queue_name, "x") == b"ok"


@pytest.mark.parametrize(
    ("peer", "code", "part"),
    [
        ("", "bad_request", "peer"),
        ("nonsense peer", "bad_request", "not the address of a node"),
        ("127.0.0.1:99999", "bad_request", "not a port"),
        ("UNUSED", "unreachable", "cannot be reached"),
        ("lmq@UNUSED", "unreachable", "cannot be reached"),
        ("RPC", "unreachable", "cannot be reached"),
        ("OWN HTTP", "bad_request", "this node itself"),
        ("OWN RAFT", "bad_request", "this node itself"),
    ],
)
def test_join_with_a_wrong_peer_changes_nothing(
    node: NodeProcess, queue_name: str, peer: str, code: str, part: str
) -> None:
    """The reason is returned; the node keeps its data and continues to serve."""
    with Rpc(node.rpc) as rpc:
        rpc.call("push", queue_name, "kept")
    unused = f"127.0.0.1:{ports.take()}"
    for word, address in (("UNUSED", unused), ("RPC", node.rpc), ("OWN HTTP", node.http), ("OWN RAFT", node.raft)):
        peer = peer.replace(word, address)
    answer = join(node, peer)
    assert (answer.json["code"], answer.status) == (code, 400 if code == "bad_request" else 503)
    assert part in answer.json["detail"]
    with Rpc(node.rpc) as rpc:
        assert rpc.call("pull", queue_name, 0)[b"content"] == b"kept"


def test_join_while_in_a_cluster_is_refused(cluster: Cluster, queue_name: str) -> None:
    """A member has to leave first; nothing changes."""
    other = cluster.add_node()
    for peer in (other.http, cluster[1].raft):
        answer = join(cluster[0], peer)
        assert (answer.status, answer.json["code"], answer.json["outcome"]) == (409, "conflict", "not_applied")
        assert "leave first" in answer.json["detail"]
    agree(cluster.nodes[:2])
    serves(cluster.nodes[:2], queue_name)


# --- leave ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["follower", "leader"])
def test_the_others_continue_after_a_leave(tmp_path, queue_name: str, role: str) -> None:
    """12.4: the node leaves and serves no client; the others forget it, and keep all data."""
    with Cluster(3, directory=tmp_path) as cluster:
        leaver = cluster.leader() if role == "leader" else cluster.followers()[0]
        rest = [node for node in cluster if node is not leaver]
        with Rpc(leaver.rpc) as rpc:
            rpc.call("push_many", queue_name, [1, 2, 3])
        with Load(rest, queue_name + "-load") as load:
            load.progress(300)
            answer = leave(leaver)
            assert answer.status == 200, answer
            load.progress(300)
        load.check_exactly_once()
        print(f"leave of the {role}: pause {load.pause_s:.2f} s for clients of the others")
        agree(rest)
        serves(rest, queue_name + "-serves")
        refuses_clients(leaver, queue_name)
        # The remaining two are a cluster of two, whatever the third does.
        leaver.kill()
        with Rpc(rest[0].rpc) as rpc:
            assert [m[b"content"] for m in rpc.call("pull_many", queue_name, 10)] == [1, 2, 3]
        # A restart does not change that.
        leaver.start(wait=False)
        wait_for(lambda: answers(leaver), "the node that has left is up")
        refuses_clients(leaver, queue_name)
        # A repetition is harmless, no node can join through it, and a failed join changes nothing.
        assert leave(leaver).status == 200
        fresh = cluster.add_node()
        refused = join(fresh, leaver.http)
        assert (refused.status, refused.json["code"]) == (409, "conflict")
        assert "has left its cluster" in refused.json["detail"]
        fresh.stop()
        cluster.nodes.remove(fresh)
        assert join(leaver, f"127.0.0.1:{ports.take()}").status == 503
        refuses_clients(leaver, queue_name)
        # It may join again.
        assert join(leaver, rest[0].http).status == 200
        agree(cluster.nodes)
        serves(cluster.nodes, queue_name + "-serves")


def test_leave_down_to_one(cluster: Cluster, queue_name: str) -> None:
    """The last remaining node is a cluster of one with all data, and cannot leave: no other node has its messages."""
    stays, leaves = cluster.nodes
    with Rpc(leaves.rpc) as rpc:
        rpc.call("push", queue_name, "kept")
    assert leave(leaves).status == 200
    agree([stays])
    with Rpc(stays.rpc) as rpc:
        assert rpc.call("pull", queue_name, 20)[b"content"] == b"kept"
    refused = leave(stays)
    assert (refused.status, refused.json["code"], refused.json["retryable"]) == (409, "conflict", False)
    assert "alone" in refused.json["detail"]
    serves([stays], queue_name + "-serves")
    # Only the founders' ids were removed: a restart keeps the state.
    stays.restart()
    assert members(stays) == {stays.raft}
