"""The logs of real nodes: one line per change of state, levels changed at run time, requests on demand."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lmqcluster import Client

from .cluster import Cluster, NodeProcess, wait_for
from .programs import run
from .raw_rpc import Rpc


def lines(node: NodeProcess) -> list[dict[str, Any]]:
    whole, _newline, _unfinished = node.log().rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def events(node: NodeProcess, *names: str) -> list[dict[str, Any]]:
    return [line for line in lines(node) if line["event"] in names]


def change_level(node: NodeProcess, body: object) -> dict[str, Any]:
    url = f"http://{node.http}/v1/log-level"
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="PUT")
    with urllib.request.urlopen(request) as answer:
        changed: dict[str, Any] = json.load(answer)
    return changed


def refused_request(node: NodeProcess) -> None:
    """Send a request that is logged only at level debug."""
    connection = http.client.HTTPConnection(node.http)
    connection.putrequest("GET", "/livez", skip_host=True)
    connection.endheaders()
    assert connection.getresponse().status == 400
    connection.close()


def test_a_cluster_through_the_loss_and_return_of_its_leader(cluster: Cluster) -> None:
    leader = cluster.leader()
    others = [node for node in cluster.nodes if node is not leader]
    leader.kill()
    for node in others:
        wait_for(lambda node=node: events(node, "no leader"), "the log of the leader's loss")  # type: ignore[misc]
    successor = cluster.leader()
    wait_for(lambda: events(successor, "became leader"), "the successor to tell that it leads")
    since = len(lines(leader))
    leader.start()
    wait_for(lambda: any(line["event"] == "ready" for line in lines(leader)[since:]), "the node to be ready again")
    again = [line["event"] for line in lines(leader)[since:]]
    assert again[0] == "data directory opened"
    for once in ("data directory opened", "members", "started", "ready"):
        assert again.count(once) == 1
    for node in cluster.nodes:
        for line in lines(node):
            assert {"event", "level", "timestamp"} <= line.keys()
        # Each change is logged once: every leadership, and every loss of it.
        lines_of_leaders = events(node, "became leader", "following leader", "no leader")
        keys = [(line["event"], line["term"], line.get("leader"), line.get("lost")) for line in lines_of_leaders]
        assert all(one != following for one, following in pairwise(keys))
        assert [line["level"] for line in lines(node) if line["level"] in ("error", "critical")] == []
    (loss,) = [line for line in events(others[0], "no leader") if line["name"] == leader.name][:1]
    assert loss["lost"] == leader.raft


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path) as process:
        yield process


def test_the_level_changes_while_the_node_runs(fresh: NodeProcess) -> None:
    refused_request(fresh)
    assert events(fresh, "request refused") == []
    assert change_level(fresh, {"level": "debug"}) == {"level": "debug"}
    refused_request(fresh)
    wait_for(lambda: events(fresh, "request refused"), "the refusal to be logged")
    assert run("lmq-admin", "--node", fresh.http, "log-level").out == "debug\n"
    assert run("lmq-admin", "--node", fresh.http, "log-level", "warning").out == "warning\n"
    assert json.loads(run("lmq-admin", "--node", fresh.http, "--json", "log-level").out) == {"level": "warning"}
    fresh.stop()
    assert events(fresh, "stopping") == []


@pytest.mark.parametrize("body", [{}, {"level": "loud"}, {"level": 10}, {"level": "info", "more": 1}, ["info"]])
def test_an_unknown_level_is_refused(node: NodeProcess, body: object) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        change_level(node, body)
    assert caught.value.code == 400
    assert json.loads(caught.value.read())["code"] == "bad_request"


def test_requests_are_logged_on_demand_only(node: NodeProcess, queue_name: str, tmp_path: Path) -> None:
    with Client(node.rpc) as client:
        client.push(queue_name, "content")
    assert events(node, "request") == []
    with NodeProcess(tmp_path, arguments=("--request-log", "on")) as watched, Client(watched.rpc) as client:
        client.push("jobs", "the content")
        message = client.pull("jobs", timeout=0)
        assert message is not None
        message.ack()
        urllib.request.urlopen(f"http://{watched.http}/messages/jobs?t=0&secret=word").close()
        wait_for(
            lambda: [line for line in events(watched, "request") if line.get("path") == "/messages/jobs"],
            "the requests",
        )
        rpc = [line for line in events(watched, "request") if line["protocol"] == "msgpack_rpc"]
        assert [line["method"] for line in rpc if line.get("queue") == "jobs"] == ["push", "pull", "done"]
        assert all(line["client"].startswith("127.0.0.1:") for line in rpc)
        (pull,) = [line for line in events(watched, "request") if line.get("path") == "/messages/jobs"]
        assert (pull["method"], pull["status"], pull["client"]) == ("GET", 204, "127.0.0.1")
        assert pull["seconds"] >= 0
        with Rpc(watched.rpc) as raw:
            raw.call("auth", "lmq-not-a-token")
        wait_for(lambda: [line for line in events(watched, "request") if line.get("method") == "auth"], "the auth call")
        assert "lmq-not-a-token" not in watched.log()
        assert "the content" not in watched.log()
        assert "word" not in watched.log()
