"""LMQ over HTTP, specification sections 12.4 and 13: every node serves every queue."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from .cluster import Cluster
from .raw_http import Answer, Connection, call, open_many, settle

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def nodes(shared_cluster: Cluster) -> list[str]:
    """The HTTP addresses of three nodes."""
    return shared_cluster.http_addresses


@pytest.fixture
def rules(nodes: list[str]) -> Iterator[None]:
    yield
    assert call(nodes[0], "DELETE", "/properties").status == 204


def push(address: str, name: str, body: bytes) -> Answer:
    answer = call(address, "POST", f"/messages/{name}", body)
    assert answer.status == 200
    return answer


def pull(address: str, name: str, query: str = "t=0") -> Answer:
    return call(address, "GET", f"/messages/{name}?{query}")


def test_12_4_pushed_on_one_pulled_on_another_acked_on_a_third(nodes: list[str], queue_name: str) -> None:
    """12.4: messages pushed on one node can be pulled and acked on another, in any combination."""
    for first, second, third in itertools.permutations(nodes):
        push(first, queue_name, b"m")
        answer = pull(second, queue_name)
        assert answer.body == b"m"
        target = f"/messages/{queue_name}/{answer['x-lmq-message-id'].decode()}?reply=ack"
        assert call(third, "POST", target).status == 204
        assert call(second, "POST", target).status == 404
        assert pull(third, queue_name).status == 204


def test_12_4_order_is_kept_across_nodes(nodes: list[str], queue_name: str) -> None:
    """2.2: pushes that were acknowledged one after the other on different nodes are delivered in that order."""
    for i in range(12):
        push(nodes[i % 3], queue_name, b"%d" % i)
    assert [pull(nodes[i % 2], queue_name).body for i in range(12)] == [b"%d" % i for i in range(12)]


def test_12_4_a_puller_is_woken_by_a_push_on_another_node(nodes: list[str], queue_name: str) -> None:
    """12.4: a puller blocked on node B is woken by a push on node A; pull-any too, for a queue created on A."""
    with open_many(nodes) as connections:
        for address, connection in zip(nodes, connections, strict=True):
            connection.ask("GET", f"/messages/{queue_name}")
            settle(address)
        for i in range(3):
            push(nodes[0], queue_name, b"%d" % i)
        assert sorted(connection.read().body for connection in connections) == [b"0", b"1", b"2"]
    with Connection(nodes[1]) as connection:
        connection.ask("GET", f"/messages?qre=%5E{queue_name}-any")
        settle(nodes[1])
        push(nodes[2], f"{queue_name}-any", b"m")
        assert connection.read().body == b"m"


def test_12_4_two_nodes_never_deliver_the_same_message(nodes: list[str], queue_name: str) -> None:
    """12.4, 13: concurrent pulls on all nodes get every message exactly once."""
    total = 90
    for i in range(total):
        push(nodes[i % 3], queue_name, b"%d" % i)
    with open_many(nodes * 2) as connections:
        for connection in connections:
            for _ in range(total // 6):
                connection.ask("GET", f"/messages/{queue_name}?t=10")
        bodies = [connection.read().body for connection in connections for _ in range(total // 6)]
    assert sorted(map(int, bodies)) == list(range(total))


def test_12_4_exactly_one_of_three_acks_on_three_nodes_succeeds(nodes: list[str], queue_name: str) -> None:
    """2.4: exactly one of several concurrent acks of one id succeeds."""
    push(nodes[0], queue_name, b"m")
    identifier = pull(nodes[1], queue_name)["x-lmq-message-id"].decode()
    with open_many(nodes) as connections:
        for connection in connections:
            connection.ask("POST", f"/messages/{queue_name}/{identifier}?reply=ack")
        assert sorted(connection.read().status for connection in connections) == [204, 404, 404]


def test_12_4_windows_are_cluster_wide(nodes: list[str], queue_name: str) -> None:
    """12.4: accumulation windows are cluster-wide."""
    assert call(nodes[0], "PATCH", f"/properties/{queue_name}", b'{"accum":60}', JSON).status == 204
    with open_many(nodes) as connections:
        for connection in connections:
            connection.ask("POST", f"/messages/{queue_name}", b"x")
        assert sorted(connection.read().json["accum"] for connection in connections) == ["new", "yes", "yes"]
    call(nodes[0], "DELETE", f"/queues/{queue_name}")


def test_15_4_property_changes_are_in_effect_on_every_node_at_once(nodes: list[str], queue_name: str) -> None:
    """3.2, 15.4: a change acknowledged on one node is shown and used by all nodes."""
    for i in range(9):
        changed = call(nodes[i % 3], "PATCH", f"/properties/{queue_name}", b'{"retry":%d}' % i, JSON)
        assert changed.status == 204
        other = nodes[(i + 1) % 3]
        assert call(other, "GET", f"/properties/{queue_name}").body == b'{"accum":0,"retry":%d,"timeout":30}' % i
        push(other, queue_name, b"m")
        assert pull(nodes[(i + 2) % 3], queue_name)["x-lmq-retry-remaining"] == b"%d" % i


@pytest.mark.usefixtures("rules")
def test_15_4_default_rules_are_in_effect_on_every_node_at_once(nodes: list[str], queue_name: str) -> None:
    """12.4, 15.4: the same for default rules."""
    push(nodes[0], queue_name, b"m")
    for i in range(6):
        rules = f'[["^{queue_name}$",{{"retry":{i}}}]]'.encode()
        assert call(nodes[i % 3], "PUT", "/properties", rules, JSON).status == 204
        assert call(nodes[(i + 1) % 3], "GET", "/properties").body == rules
        push(nodes[(i + 2) % 3], queue_name, b"m")
    retries = [pull(nodes[0], queue_name)["x-lmq-retry-remaining"] for _ in range(7)]
    assert retries == [b"2", b"0", b"1", b"2", b"3", b"4", b"5"]


def test_12_4_deletion_is_announced_to_all(nodes: list[str], queue_name: str) -> None:
    """12.4: queue creation and deletion are announced to all nodes; 15.10: /stats never fails in between."""
    for i in range(6):
        push(nodes[i % 3], queue_name, b"m")
        assert queue_name in call(nodes[(i + 1) % 3], "GET", "/stats").json["queues"]
        assert call(nodes[(i + 1) % 3], "DELETE", f"/queues/{queue_name}").status == 204
        assert queue_name not in call(nodes[(i + 2) % 3], "GET", "/stats").json["queues"]
        assert call(nodes[(i + 2) % 3], "DELETE", f"/queues/{queue_name}").status == 404


def test_8_4_push_to_all_reaches_queues_of_all_nodes(nodes: list[str], queue_name: str) -> None:
    """8.4: every existing queue, wherever it was created."""
    for i, address in enumerate(nodes):
        push(address, f"{queue_name}-{i}", b"x")
    answer = call(nodes[1], "POST", f"/messages?qre=%5E{queue_name}-", b"all")
    assert list(answer.json) == [f"{queue_name}-{i}" for i in range(3)]


def test_9_3_stats_list_all_nodes(shared_cluster: Cluster, queue_name: str) -> None:
    """9.3: node lists sorted; sizes and counts are those of the cluster on every node."""
    push(shared_cluster[0].http, queue_name, b"m")
    for process in shared_cluster:
        stats = call(process.http, "GET", "/stats").json
        assert stats["active_nodes"] == stats["all_nodes"] == ["n1", "n2", "n3"]
        queue = stats["queues"][queue_name]
        assert (queue["size"], queue["nodes"]) == (1, ["n1", "n2", "n3"])
        assert queue["stats"]["push"]["count"] == 1


def test_4_a_client_that_vanishes_from_any_node_consumes_nothing(nodes: list[str], queue_name: str) -> None:
    """4: a waiting client that disconnects is forgotten, on a follower too."""
    for address in nodes:
        with Connection(address) as connection:
            connection.ask("GET", f"/messages/{queue_name}")
            settle(address)
        settle(address)
    push(nodes[0], queue_name, b"m")
    answer = pull(nodes[1], queue_name, "t=10")
    assert (answer.body, answer["x-lmq-retry-remaining"]) == (b"m", b"2")
