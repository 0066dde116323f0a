"""Nodes that are paused and resumed, and nodes that are left alone."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from .cluster import Cluster, wait_for
from .elections import assert_no_election
from .load import Load
from .patience import patiently
from .raw_http import Connection, call
from .raw_rpc import Rpc

PAUSE_S = 3.0
STILL_S = 1.5
"""Longer than an election timeout."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for all tests here: those that pause nodes leave it intact, and the one that kills some is
    the last.
    """
    with Cluster(3, directory=tmp_path_factory.mktemp("paused")) as nodes:
        yield nodes


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_node_is_paused_for_3_seconds(cluster: Cluster, queue_name: str, role: str) -> None:
    """SIGSTOP: clients of the others see a pause; the node returns as a follower and its client gets its
    answers too.
    """
    victim = cluster.leader() if role == "leader" else cluster.followers()[0]
    survivors = [node for node in cluster if node is not victim]
    with Rpc(victim.rpc) as rpc, Load(survivors, queue_name) as load:
        load.progress()
        victim.pause()
        paused_s = time.monotonic()
        try:
            # The client of the paused node only waits.
            for number in range(100):
                rpc.ask("push", queue_name + "-paused", number)
            rpc.ask("pull", queue_name + "-paused", 60)
            load.progress(1000)
            time.sleep(max(0.0, PAUSE_S - (time.monotonic() - paused_s)))
        finally:
            victim.resume()
        replies = [rpc.read() for _ in range(101)]
        assert [reply.error for reply in replies] == [None] * 101
        load.progress()
    load.check_exactly_once()
    print(f"SIGSTOP of the {role}: pause {load.pause_s:.2f} s for clients of the others")
    messages = [reply.result for reply in replies if reply.result != b"ok"]
    with Rpc(survivors[0].rpc) as other:
        messages += other.call("pull_many", queue_name + "-paused", 1000)
    assert [(m[b"content"], m[b"retry"]) for m in messages] == [(number, 2) for number in range(100)]
    assert cluster.leader().get_json("/v1/cluster")["has_quorum"]


def test_a_paused_leader_does_not_answer_from_stale_state(cluster: Cluster, queue_name: str) -> None:
    """A leader that was replaced during its pause does not deliver messages that were pulled elsewhere in that time."""
    leader, other = cluster.leader(), cluster.followers()[0]
    with Rpc(leader.rpc) as sleeper, Rpc(other.rpc) as awake:
        awake.call("push", queue_name, "x")
        leader.pause()
        try:
            # Sent before the pull elsewhere, answered after it.
            sleeper.ask("pull", queue_name, 0)
            message = awake.call("pull", queue_name, 30)
            assert awake.call("done", queue_name, message[b"id"]) == b"ok"
        finally:
            leader.resume()
        assert sleeper.read().result == b"empty"


def test_both_followers_paused_and_resumed(cluster: Cluster, queue_name: str) -> None:
    """A leader without followers acknowledges nothing; requests in that time are applied once, when they return."""
    leader, followers = cluster.leader(), cluster.followers()
    with Rpc(leader.rpc) as rpc:
        rpc.call("push", queue_name, 0)
        for node in followers:
            node.pause()
        try:
            for number in range(1, 50):
                rpc.ask("push", queue_name, number)
            rpc.socket.settimeout(2.0)
            with pytest.raises(TimeoutError):
                rpc.read()
        finally:
            for node in followers:
                node.resume()
        rpc.socket.settimeout(30.0)
        assert [rpc.read().error for _ in range(1, 50)] == [None] * 49
        found = rpc.call("pull_many", queue_name, 100)
    assert [(m[b"content"], m[b"retry"]) for m in found] == [(number, 2) for number in range(50)]


def test_a_stalled_machine_causes_no_election(cluster: Cluster, queue_name: str) -> None:
    """Messages that the nodes missed were not sent, or wait in their sockets: no node campaigns or steps down."""

    def stall() -> None:
        for rounds in range(5):
            for node in cluster:
                node.pause()
            time.sleep(STILL_S)
            for node in cluster:
                node.resume()
            with Rpc(cluster.leader().rpc) as rpc:
                assert patiently(rpc.call, "push", queue_name, rounds) == b"ok"

    assert_no_election(cluster, stall)


def test_a_node_without_quorum_reports_it(cluster: Cluster, queue_name: str) -> None:
    """A minority answers 503 with Retry-After on HTTP and an error on RPC, within a deadline, and applies nothing.

    The health routes distinguish alive from ready.
    """
    alone, followers = cluster.leader(), cluster.followers()
    with Rpc(alone.rpc) as rpc, Rpc(alone.rpc) as waiting:
        waiting.ask("pull", queue_name + "-waiting")
        waiting.settle()
        for node in followers:
            node.kill()
        wait_for(lambda: alone.get_json("/v1/cluster")["leader"] is None, "the node steps down")
        for method, arguments in (("push", [1]), ("pull", [0]), ("push_many", [[1]]), ("update_props", [{"retry": 1}])):
            rpc.ask(method, queue_name, *arguments)
        with Connection(alone.http) as lmq, Connection(alone.http) as ours:
            lmq.ask("POST", f"/messages/{queue_name}", b"x")
            body, headers = b'{"messages": [{"content": "x"}]}', {"Content-Type": "application/json"}
            ours.ask("POST", f"/v1/queues/{queue_name}/messages", body, headers)
            answers = lmq.read(), ours.read()
        assert [(answer.status, answer["retry-after"]) for answer in answers] == [(503, b"1")] * 2
        assert answers[0]["x-lmq-error"].startswith(b"no_leader: ")
        problem = answers[1].json
        assert (problem["code"], problem["retryable"], problem["outcome"]) == ("no_leader", True, "not_applied")
        errors = [rpc.read().error for _ in range(4)]
        assert errors == [b"no_leader: no leader has taken the request within 6 s; it was not applied"] * 4
        assert call(alone.http, "GET", "/livez").status == 200
        ready = call(alone.http, "GET", "/readyz")
        assert (ready.status, ready["retry-after"]) == (503, b"1")
        assert b"[-]leader failed" in ready.body
        waiting.settle()
