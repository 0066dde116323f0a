"""LMQ, specification 12.4, over MessagePack-RPC: every node serves every request, and all act on the same queues."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import pytest

from .cluster import Cluster
from .raw_http import call
from .raw_rpc import Rpc


@pytest.fixture
def rpcs(shared_cluster: Cluster) -> Iterator[list[Rpc]]:
    """A connection to each of three nodes."""
    with Rpc(shared_cluster[0].rpc) as a, Rpc(shared_cluster[1].rpc) as b, Rpc(shared_cluster[2].rpc) as c:
        yield [a, b, c]


def wait_in_line(connection: Rpc, method: str, *arguments: object) -> int:
    """Send a request that waits; return its msgid once a later request of the connection was answered."""
    waiting = connection.ask(method, *arguments)
    barrier = connection.ask("get_default_props")
    assert connection.read().msgid == barrier
    return waiting


@pytest.mark.parametrize(("first", "second", "third"), list(itertools.permutations(range(3))))
def test_push_pull_and_done_through_different_nodes(
    rpcs: list[Rpc], queue_name: str, first: int, second: int, third: int
) -> None:
    """12.4: messages pushed on one node can be pulled and acked on another."""
    rpcs[first].call("push", queue_name, "x")
    message = rpcs[second].call("pull", queue_name, 0)
    assert message[b"content"] == b"x"
    assert rpcs[first].call("pull", queue_name, 0) == b"empty"
    assert rpcs[third].call("retain", queue_name, message[b"id"]) == b"ok"
    assert rpcs[third].call("done", queue_name, message[b"id"]) == b"ok"
    assert rpcs[second].error("done", queue_name, message[b"id"]) == b"throw:not_found"


def test_blocked_puller_is_woken_by_a_push_on_another_node(rpcs: list[Rpc], queue_name: str) -> None:
    """12.4: a puller blocked on node B is woken by a push on node A."""
    for pusher, puller in itertools.permutations(rpcs, 2):
        wait_in_line(puller, "pull", queue_name)
        pusher.call("push", queue_name, "wake up")
        assert puller.read().result[b"content"] == b"wake up"


def test_pull_any_waiting_on_a_node_sees_a_queue_created_on_another(rpcs: list[Rpc], queue_name: str) -> None:
    """12.4: queue creation and deletion are announced to all nodes."""
    waiting = wait_in_line(rpcs[1], "pull_any", f"^{queue_name}-new")
    rpcs[0].call("push", queue_name + "-new", "x")
    reply = rpcs[1].read()
    assert (reply.msgid, reply.result[b"queue"]) == (waiting, f"{queue_name}-new".encode())
    rpcs[2].call("delete", queue_name + "-new")
    assert rpcs[0].error("done", queue_name + "-new", reply.result[b"id"]) == b"throw:queue_not_found"


def test_wait_on_a_deleted_queue_is_kept_on_every_node(rpcs: list[Rpc], queue_name: str) -> None:
    """4: deleting a queue does not end the waits on it, whichever node deletes."""
    rpcs[0].call("update_props", queue_name)
    wait_in_line(rpcs[1], "pull", queue_name)
    rpcs[2].call("delete", queue_name)
    rpcs[0].call("push", queue_name, "again")
    assert rpcs[1].read().result[b"content"] == b"again"


def test_property_change_is_in_effect_on_all_nodes(rpcs: list[Rpc], shared_cluster: Cluster, queue_name: str) -> None:
    """12.4, defect: changed properties were shown by all nodes but used by one; 3.2: in effect once answered; 15.4."""
    for number, changer in enumerate(rpcs):
        changer.call("update_props", queue_name, {"retry": 10 + number})
        for rpc in rpcs:
            rpc.call("push", queue_name, 1)
            assert rpc.call("pull", queue_name, 0)[b"retry"] == 10 + number
        for node in shared_cluster:
            assert call(node.http, "GET", f"/properties/{queue_name}").json["retry"] == 10 + number
    rpcs[0].call("update_props", queue_name, {"timeout": 0})
    rpcs[1].call("push", queue_name, "expires at once")
    assert [rpc.call("pull", queue_name, 0)[b"retry"] for rpc in rpcs] == [12, 11, 10]


def test_default_rules_are_in_effect_on_all_nodes(rpcs: list[Rpc], queue_name: str) -> None:
    """12.4, defect: default rules were used only by the node that handled the change."""
    try:
        for number, changer in enumerate(rpcs):
            rules = [[f"^{queue_name}", {b"retry": 20 + number}]]
            changer.call("set_default_props", rules)
            for position, rpc in enumerate(rpcs):
                assert rpc.call("get_default_props") == [[f"^{queue_name}".encode(), {b"retry": 20 + number}]]
                name = f"{queue_name}-{position}"
                rpc.call("push", name, 1)
                assert rpc.call("pull", name, 0)[b"retry"] == 20 + number
    finally:
        rpcs[0].call("set_default_props", [])


def test_windows_are_cluster_wide(rpcs: list[Rpc], queue_name: str) -> None:
    """12.4: accumulation windows are cluster-wide."""
    rpcs[0].call("update_props", queue_name, {"pack": 3})
    wait_in_line(rpcs[1], "pull", queue_name)
    assert rpcs[2].call("push", queue_name, "first") == b"packing started"
    assert rpcs[0].call("push", queue_name, "second") == b"packed"
    assert rpcs[2].call("push", queue_name, "third") == b"packed"
    message = rpcs[1].read().result
    assert (message[b"type"], message[b"content"]) == (b"package", [b"first", b"second", b"third"])


def test_racing_pushes_on_different_nodes_open_one_window(rpcs: list[Rpc], queue_name: str) -> None:
    """5: two pushes racing on an idle queue must yield one `new` and one `yes`, on different nodes too."""
    names = [f"{queue_name}-{i}" for i in range(30)]
    rpcs[0].many([("update_props", name, {"pack": 60}) for name in names])
    for name in names:
        for rpc in rpcs:
            rpc.ask("push", name, 1)
    answers = [[rpc.read().result for _ in names] for rpc in rpcs]
    for position in range(len(names)):
        assert sorted(a[position] for a in answers) == [b"packed", b"packed", b"packing started"]


def test_two_nodes_never_deliver_the_same_message(shared_cluster: Cluster, queue_name: str) -> None:
    """12.4: two nodes never deliver the same message; 13: none is lost by concurrent pushes and pulls."""
    count, taken, problems = 900, [], []

    def push(address: str, start: int) -> None:
        with Rpc(address) as rpc:
            for number in range(start, count, 3):
                rpc.ask("push", queue_name, number)
            problems.extend(reply for reply in (rpc.read() for _ in range(start, count, 3)) if reply.error is not None)

    def pull(address: str) -> None:
        with Rpc(address) as rpc:
            while (message := rpc.call("pull", queue_name))[b"content"] != b"stop":
                taken.append((message[b"content"], message[b"retry"]))
                problems.extend([] if rpc.call("done", queue_name, message[b"id"]) == b"ok" else [message])

    pullers = [threading.Thread(target=pull, args=(node.rpc,)) for node in shared_cluster for _ in range(2)]
    pushers = [threading.Thread(target=push, args=(node.rpc, i)) for i, node in enumerate(shared_cluster)]
    for thread in [*pullers, *pushers]:
        thread.start()
    for thread in pushers:
        thread.join()
    with Rpc(shared_cluster[0].rpc) as rpc:
        # One after all messages for each puller.
        rpc.call("push_many", queue_name, ["stop"] * len(pullers))
    for thread in pullers:
        thread.join()
    assert problems == []
    assert sorted(taken) == [(number, 2) for number in range(count)]


def test_nodes_show_the_same_queues_and_sizes(rpcs: list[Rpc], shared_cluster: Cluster, queue_name: str) -> None:
    """12.4: every node holds a full copy of all queues, own properties and default rules."""
    rpcs[0].call("push_many", queue_name, [1, 2, 3])
    rpcs[1].call("pull", queue_name, 0)
    for node in shared_cluster:
        queue = call(node.http, "GET", f"/v1/queues/{queue_name}").json
        assert (queue["size"], queue["ready"], queue["leased"]) == (3, 2, 1)


def test_pull_of_a_client_that_died_is_put_back_uncharged(cluster: Cluster, queue_name: str) -> None:
    """2.1 put back: the client disconnected before it got the message: due now, deliveries plus 1; 2.3: costs nothing.

    With its followers paused the leader cannot commit the pull, so that the client has certainly disconnected by the
    time the message arrives.
    """
    leader, followers = cluster.leader(), cluster.followers()
    with Rpc(leader.rpc) as watcher, Rpc(leader.rpc) as victim:
        watcher.call("push", queue_name, "first")
        watcher.call("push", queue_name, "second")
        for node in followers:
            node.pause()
        victim.ask("pull", queue_name)
        victim.settle()
        victim.abort()
        for _ in range(3):
            watcher.settle()
        for node in followers:
            node.resume()
        messages = [watcher.call("pull", queue_name, 20) for _ in range(2)]
        assert [message[b"content"] for message in messages] in ([b"first", b"second"], [b"second", b"first"])
        assert [message[b"retry"] for message in messages] == [2, 2]
        pulled_total = call(leader.http, "GET", f"/v1/queues/{queue_name}").json["pulled_total"]
        assert pulled_total == 3, "the pull of the client that died was not carried out, so nothing was tested"


def test_retry_of_a_pull_through_a_restarted_leader_is_uncharged(cluster: Cluster, queue_name: str) -> None:
    """2.3: a pull that waits on a follower while the leader dies is served afterwards, and nothing is charged."""
    leader = cluster.leader()
    survivor, other = cluster.followers()
    with Rpc(survivor.rpc) as puller, Rpc(other.rpc) as pusher:
        wait_in_line(puller, "pull", queue_name)
        leader.kill()
        pusher.call("push", queue_name, "after the failover")
        message = puller.read().result
        assert (message[b"content"], message[b"retry"]) == (b"after the failover", 2)
        assert puller.call("done", queue_name, message[b"id"]) == b"ok"
