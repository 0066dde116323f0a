"""Queues that need attention, as `lmq-admin check`, ``/v1``, the metrics and a limited token show them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from lmqcluster import Client

from .cluster import Cluster, NodeProcess, fetch, wait_for
from .programs import run_here, run_in_terminal
from .test_http_v1 import Api

EXPECTED = {("dead_letters", "poison"), ("returns", "flaky"), ("waiting", "late")}
THRESHOLDS = ("--attention-waiting-seconds", "1", "--attention-returns", "5")


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node with a queue for each reason, and one that works."""
    with NodeProcess(tmp_path_factory.mktemp("troubled"), arguments=THRESHOLDS) as node:
        wait_for(lambda: attention(node)["age_s"] is not None, "the first visit of the queues")
        with Client(node.rpc) as client:
            client.push("late", "x")
            client.push("well", "x")
            client.pull("well", timeout=0).ack()
            client.update_props("poison", {"retry": 0})
            client.push("poison", "x")
            client.pull("poison", timeout=0).nack()
            client.update_props("flaky", {"retry": 1000})
            client.push("flaky", "x")
            for _ in range(6):
                message = client.pull("flaky", timeout=0)
                message.nack()
            client.pull("flaky", timeout=0)
        wait_for(lambda: reasons(node) == EXPECTED, "the list")
        yield node


def attention(node: NodeProcess) -> dict:
    return node.get_json("/v1/cluster/check")["attention"]


def reasons(node: NodeProcess) -> set[tuple[str, str]]:
    return {(one["reason"], one["queue"]) for one in attention(node)["queues"]}


def test_the_api_has_the_list_in_two_places(troubled: NodeProcess) -> None:
    api = Api(troubled.http)
    found = api.ok("GET", "/v1/cluster/check")["attention"]
    assert found["totals"] == {"dead_letters": 1, "returns": 1, "waiting": 1}
    assert {one["queue"]: one["count"] for one in found["queues"]} == {"poison": 1, "flaky": 6, "late": 1}
    overview = api.ok("GET", "/v1/overview")["attention"]
    assert overview["totals"] == found["totals"]


def test_metrics_have_the_numbers(troubled: NodeProcess) -> None:
    lines = fetch(troubled.http, "/metrics")[1].decode().splitlines()
    shown = {line for line in lines if line.startswith("lmq_queues_needing_attention")}
    assert shown == {f'lmq_queues_needing_attention{{reason="{reason}"}} 1' for reason, _queue in EXPECTED}


def test_check_names_the_queues(troubled: NodeProcess) -> None:
    result = run_here("--node", troubled.http, "check", "--json")
    is_well = all(one["ok"] for one in json.loads(result.out)["checks"] if one["name"] != "safe to stop")
    # A node that is alone is never safe to stop, which counts as a problem of the cluster.
    assert (result.code, is_well) == (69, True)
    code, seen = run_in_terminal("lmq-admin", "--node", troubled.http, "check", columns=200)
    assert code == 69
    for text in ("queue late", "queue flaky", "queue poison", "ATTENTION", "returned or not answered in time: 6 of"):
        assert text in seen, seen


def test_a_limited_token_sees_only_its_queues(tmp_path) -> None:
    secret = {"LMQ_CLUSTER_SECRET": "the secret of one node"}
    with NodeProcess(tmp_path, arguments=THRESHOLDS, environment=secret) as node:
        run_here("--node", node.http, "message", "push", "late", "x")
        run_here("--node", node.http, "message", "push", "later", "x")
        create = ("--node", node.http, "token", "create")
        admin = run_here(*create, "boss", "--role", "admin").out.strip()
        limited = run_here(*create, "some", "--role", "read", "--queues", "^later$", environment={"LMQ_TOKEN": admin})

        def seen(token: str) -> set[str]:
            result = run_here("--node", node.http, "check", "--json", environment={"LMQ_TOKEN": token})
            return {one["queue"] for one in json.loads(result.out)["attention"]["queues"]}

        wait_for(lambda: seen(admin) == {"late", "later"}, "both queues")
        assert seen(limited.out.strip()) == {"later"}


def test_only_queues_are_no_problem_of_the_cluster(tmp_path) -> None:
    with Cluster(3, directory=tmp_path, arguments=THRESHOLDS) as nodes:
        run_here("--node", nodes[0].http, "message", "push", "late", "x")

        def is_well_but_for_queues() -> bool:
            answer = nodes[1].get_json("/v1/cluster/check")
            return all(one["ok"] for one in answer["checks"]) and bool(answer["attention"]["queues"])

        wait_for(is_well_but_for_queues, "a healthy cluster with a queue that needs attention")
        result = run_here("--node", nodes[1].http, "check")
    assert result.code == 1, result.out
    assert "queue late\tATTENTION\t" in result.out
