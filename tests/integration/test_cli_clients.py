"""``lmq-admin client``: the clients of all nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from .cluster import Cluster, wait_for
from .programs import run_here
from .raw_http import call
from .raw_rpc import Rpc


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as cluster:
        yield cluster


def listed(cluster: Cluster, *words: str) -> Any:
    return json.loads(run_here("--node", cluster[0].http, "client", *words, "--json").out)


def test_holders_of_all_nodes_are_listed(cluster: Cluster) -> None:
    with Rpc(cluster[1].rpc) as one, Rpc(cluster[2].rpc) as other:
        one.call("push_many", "jobs", ["1", "2", "3"])
        one.call("pull", "jobs", 0)
        other.call("pull_many", "jobs", 2)
        rows = listed(cluster, "leases", "jobs")["leases"]
        assert [(row["node"], row["leased"], row["connected"]) for row in rows] == [("n3", 2, True), ("n2", 1, True)]
        table = run_here("--node", cluster[0].http, "client", "leases", "jobs", "--columns", "queue,leased,node").out
        assert table == "queue\tleased\tnode\njobs\t2\tn3\njobs\t1\tn2\n"
        addresses = {(row["node"], row["client"]) for row in _rows(cluster, "ls", "node,client,protocol")}
        assert {("n2", rows[1]["address"]), ("n3", rows[0]["address"])} <= addresses
    assert listed(cluster, "leases", "no such queue") == {"leases": [], "unreachable": []}


def _rows(cluster: Cluster, command: str, columns: str) -> list[dict[str, str]]:
    head, *lines = run_here("--node", cluster[0].http, "client", command, "--columns", columns).out.splitlines()
    return [dict(zip(head.split("\t"), line.split("\t"), strict=True)) for line in lines]


def test_waiting_pulls_of_all_nodes_are_listed(cluster: Cluster) -> None:
    with ThreadPoolExecutor(2) as threads:
        pulls = [
            threads.submit(call, cluster[1].http, "GET", "/messages/waited?t=600"),
            threads.submit(call, cluster[2].http, "GET", "/messages?qre=^waited$&t=600"),
        ]
        rows: list[dict[str, str]] = []

        def all_wait() -> bool:
            rows[:] = _rows(cluster, "waiting", "node,queue,pulls")
            return len(rows) == 2

        wait_for(all_wait, "both pulls to wait")
        assert rows == [
            {"node": "n2", "queue": "waited", "pulls": "1"},
            {"node": "n3", "queue": "pattern ^waited$", "pulls": "1"},
        ]
        with Rpc(cluster[0].rpc) as rpc:
            rpc.call("push_many", "waited", ["1", "2"])
        assert {pull.result().status for pull in pulls} == {200}


def consumers(cluster: Cluster, queue: str, node: int = 0) -> dict[str, Any]:
    answer: dict[str, Any] = cluster[node].get_json(f"/v1/queues/{queue}/consumers")
    return answer


def test_consumers_of_a_queue_are_counted_at_all_nodes(cluster: Cluster) -> None:
    """A waiting connection counts once, as does one that holds messages; a pattern counts for each queue it finds."""
    with Rpc(cluster[1].rpc) as holder, ThreadPoolExecutor(3) as threads:
        holder.call("push_many", "eaten", ["1", "2"])
        holder.call("push", "eaten.dead", "3")
        holder.call("pull_many", "eaten", 2)
        pulls = [
            threads.submit(call, cluster[0].http, "GET", "/messages/eaten?t=600"),
            threads.submit(call, cluster[2].http, "GET", "/messages/eaten?t=600"),
            threads.submit(call, cluster[2].http, "GET", "/messages?qre=^eaten$&t=600"),
        ]
        wanted = [("n1", 1, 1), ("n2", 1, 0), ("n3", 2, 2)]

        def counted(node: int) -> list[tuple[str, int, int]]:
            nodes = consumers(cluster, "eaten", node)["nodes"]
            return [(one["node"], one["consumers"], one["waiting_pulls"]) for one in nodes]

        def all_counted(node: int) -> bool:
            return counted(node) == wanted

        for node in range(3):
            wait_for(partial(all_counted, node), f"n{node + 1} to count all consumers")
        answer = consumers(cluster, "eaten")
        assert (answer["consumers"], answer["waiting_pulls"], answer["unreachable"]) == (4, 3, [])
        assert consumers(cluster, "eaten.dead")["consumers"] == 0
        listed = cluster[1].get_json("/v1/queues?name=eaten&fields=ready&consumers")
        assert [(one["name"], one["consumers"]) for one in listed["queues"]] == [("eaten", 4), ("eaten.dead", 0)]
        assert listed["unreachable"] == []
        holder.call("push_many", "eaten", ["4", "5", "6"])
        assert {pull.result().status for pull in pulls} == {200}
    assert call(cluster[0].http, "GET", "/v1/queues/no-such-queue/consumers").status == 404


def test_connections_are_closed_through_another_node(cluster: Cluster) -> None:
    with ThreadPoolExecutor(1) as threads:
        pull = threads.submit(call, cluster[2].http, "GET", "/messages/closed?t=600")
        wait_for(lambda: _rows(cluster, "waiting", "node,queue"), "the pull to wait")
        own = {row["client"] for row in _rows(cluster, "ls", "node,client,protocol") if row["node"] == "n3"}
        assert len(own) == 1
        (address,) = own
        command = ("--node", cluster[0].http, "client", "close", "n3", address)
        assert run_here(*command, "--dry-run").out == f"would close the connections of {address} to n3\n"
        assert run_here(*command).code == 2
        assert run_here(*command, "--yes").code == 0
        with pytest.raises((EOFError, ConnectionError)):
            pull.result()
    assert run_here(*command, "--yes").code == 66
    unknown = run_here("--node", cluster[0].http, "client", "close", "n9", address, "--yes")
    assert (unknown.code, "there is no node 'n9'" in unknown.err) == (65, True)
    wait_for(lambda: not _rows(cluster, "waiting", "node,queue"), "the pull to be gone")


@pytest.mark.parametrize(
    "body", [{}, {"address": 1}, {"address": ""}, {"address": "a" * 256}, {"address": "a", "x": 1}]
)
def test_a_malformed_request_closes_nothing(cluster: Cluster, body: dict[str, Any]) -> None:
    answer = call(cluster[0].http, "POST", "/v1/connections/close", json.dumps(body).encode())
    assert (answer.status, json.loads(answer.body)["code"]) == (400, "bad_request")


def test_a_node_that_does_not_answer_is_named(cluster: Cluster) -> None:
    cluster[2].kill()
    try:
        result = run_here("--node", cluster[0].http, "client", "ls", "-o", "table")
        assert (result.code, "n3" in result.out.splitlines()[-1]) == (0, True)
        assert listed(cluster, "ls")["unreachable"] == ["n3"]
        with Rpc(cluster[0].rpc) as rpc:
            rpc.call("push", "counted", "1")
        wait_for(lambda: consumers(cluster, "counted")["unreachable"] == ["n3"], "the missing node to be named")
        assert call(cluster[0].http, "GET", "/v1/queues?consumers&limit=1").status == 200
    finally:
        cluster[2].start()
        wait_for(lambda: listed(cluster, "ls")["unreachable"] == [], "the first node to reach n3 again")
