"""Patterns on running nodes: attackers with very many of them, the order of a connection, and the answers of
lagging nodes.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from lmqcluster import Client, LmqError
from lmqcluster.node.queues.patterns.views import CLIENT_VIEWS_MAX

from .cluster import Cluster, NodeProcess, wait_for
from .elections import assert_no_election
from .raw_rpc import Rpc, notification, open_rpc, request

QUEUES = 4_000


def _client(*nodes: NodeProcess) -> Client:
    return Client([node.rpc for node in nodes], decode=True)


@pytest.fixture(scope="module")
def crowded(shared_cluster: Cluster) -> Cluster:
    """A cluster with some thousand queues."""
    with Rpc(shared_cluster[0].rpc) as rpc:
        for start in range(0, QUEUES, 500):
            for number in range(start, start + 500):
                rpc.send(request(number, "push", f"crowd/{number:06}", "x"))
            for _ in range(500):
                assert rpc.read().error is None
    return shared_cluster


def test_patterns_over_thousands_of_queues_do_not_block_other_clients(crowded: Cluster) -> None:
    """An attacker waits on patterns at every node and requests backlogs, all the time with new patterns; a client of a
    follower still pushes and pulls, and no leader is elected.
    """

    def attack_all() -> None:
        stop = threading.Event()
        refused: list[Any] = []
        done = threading.Event()

        def attack(node: NodeProcess, place: int) -> None:
            with Rpc(node.rpc) as rpc:
                for number in range(CLIENT_VIEWS_MAX + 20):
                    rpc.send(request(number, "pull_any", f"^crowd/.*{place}{number}$|none", 600))
                for number in range(20):
                    rpc.send(request(1_000 + number, "backlog", f"[{place}]{number}$", True))
                for _ in range(20 + 20):
                    reply = rpc.read()
                    if reply.error is not None:
                        refused.append(reply.error)
                done.set()
                stop.wait(60)

        attackers = [threading.Thread(target=attack, args=(node, place)) for place, node in enumerate(crowded)]
        follower = crowded.followers()[0]
        with _client(follower) as client:
            for attacker in attackers:
                attacker.start()
            try:
                pushed = 0
                while not done.is_set() or pushed < 200:
                    client.push("victim", str(pushed))
                    (message,) = client.pull_many("victim", 1, timeout=20)
                    message.ack()
                    pushed += 1
            finally:
                stop.set()
                for attacker in attackers:
                    attacker.join()
        assert refused
        assert all(b"quota_exceeded" in error for error in refused)

    assert_no_election(crowded, attack_all)


def test_a_client_that_waits_on_many_patterns_does_not_block_the_others(crowded: Cluster, queue_name: str) -> None:
    node = crowded[1]
    with Rpc(node.rpc) as rpc, _client(node) as client:
        for number in range(CLIENT_VIEWS_MAX + 50):
            rpc.send(request(number, "pull_any", f"nothing/{number}", 600))
        for _ in range(50):
            assert b"quota_exceeded" in rpc.read().error
        client.push(queue_name, "m")
        found = client.pull_any(f"^{queue_name}$", timeout=20)
        assert found is not None
        assert found.content == "m"


def test_acknowledged_messages_are_found_through_any_node(shared_cluster: Cluster, queue_name: str) -> None:
    """A pull-any right after a push at another node is never empty; push_all reaches queues created at another node."""
    with _client(shared_cluster[0]) as here, _client(shared_cluster[2]) as there:
        for number in range(50):
            name = f"{queue_name}/{number}"
            here.push(name, str(number))
            found = there.pull_any(f"^{queue_name}/", timeout=0)
            assert (found.queue, found.content) == (name, str(number))
            found.ack()
        there.push_all(f"^{queue_name}/", "copy")
        assert sorted(here.pull_any(f"^{queue_name}/", timeout=0).queue for _ in range(50)) == sorted(
            f"{queue_name}/{number}" for number in range(50)
        )
        assert here.pull_any(f"^{queue_name}/", timeout=0) is None


def test_pipelined_requests_with_patterns_take_effect_in_the_order_sent(
    shared_cluster: Cluster, queue_name: str
) -> None:
    """A push, a pull-any that finds it, a push that is too late for it, a push to all, a pull that gets the copy."""
    pattern = f"^{queue_name}"
    with Rpc(shared_cluster.followers()[0].rpc) as rpc:
        rpc.send(
            request(1, "pull_any", pattern, 0)
            + request(2, "push", queue_name, "first")
            + request(3, "push_all", pattern, "copy")
            + request(4, "pull", queue_name, 0)
            + request(5, "pull_any", pattern, 0)
            + request(6, "pull_any", pattern, 0)
            + notification("push_all", pattern, "last")
            + request(7, "pull", queue_name, 0)
        )
        replies = {reply.msgid: reply for reply in (rpc.read() for _ in range(7))}
    assert [reply.error for reply in replies.values()] == [None] * 7
    contents = {
        msgid: reply.result[b"content"] if type(reply.result) is dict else reply.result
        for msgid, reply in replies.items()
    }
    assert contents == {1: b"empty", 2: b"ok", 3: b"ok", 4: b"first", 5: b"copy", 6: b"empty", 7: b"last"}


def test_many_more_queues_than_one_command_names_get_their_copies(crowded: Cluster) -> None:
    def pushed() -> list[int]:
        target = "/v1/queues?pattern=%5Ecrowd/000&fields=pushed_total&limit=10000"
        return [queue["pushed_total"] for queue in crowded[1].get_json(target)["queues"]]

    with _client(crowded[1]) as client:
        before = pushed()
        client.push_all("^crowd/000", "copy")
        client.push_all("^crowd/", "copy")
        assert pushed() == [count + 2 for count in before]
        assert len(before) == 1_000
        lease = client.reserve_batch("all", 1, pattern="^crowd/", count=QUEUES)
        assert (lease.state, lease.count) == ("live", QUEUES)
        client.abandon_batches("all")


def test_without_a_quorum_patterns_are_refused_not_empty(cluster: Cluster) -> None:
    survivor = cluster.leader()
    for node in cluster:
        if node is not survivor:
            node.kill()
    wait_for(lambda: not survivor.get_json("/v1/cluster")["has_quorum"], "the loss of the quorum noticed")
    requests = [("pull_any", "q", 0), ("push_all", "q", "x"), ("backlog", "q", True)]
    with open_rpc(survivor.rpc, len(requests)) as connections:
        for rpc, (method, *arguments) in zip(connections, requests, strict=True):
            rpc.ask(method, *arguments)
        errors = [rpc.read().error.partition(b":")[0] for rpc in connections]
    assert set(errors) <= {b"no_leader", b"unknown_outcome"}


def test_an_invalid_pattern_is_refused_with_the_reason(shared_cluster: Cluster) -> None:
    with Rpc(shared_cluster[0].rpc) as rpc:
        for method, rest in (("pull_any", (0,)), ("push_all", ("x",))):
            rpc.send(request(1, method, "(", *rest))
            assert rpc.read().error == b"throw:invalid_regexp"
    with _client(shared_cluster[0]) as client, pytest.raises(LmqError) as refused:
        client.backlog(pattern="a{900}b{900}c{900}d{900}e{900}f{900}")
    assert refused.value.code == "bad_pattern"
