"""``lmq-admin client``: the clients of all nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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


def test_a_node_that_does_not_answer_is_named(cluster: Cluster) -> None:
    cluster[2].kill()
    try:
        result = run_here("--node", cluster[0].http, "client", "ls", "-o", "table")
        assert (result.code, "n3" in result.out.splitlines()[-1]) == (0, True)
        assert listed(cluster, "ls")["unreachable"] == ["n3"]
    finally:
        cluster[2].start()
        wait_for(lambda: listed(cluster, "ls")["unreachable"] == [], "the first node to reach n3 again")
