"""``/metrics`` and ``/metrics/queues`` of real nodes: every metric of the table, and values that are right."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from cryptography import x509
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from lmqcluster import Client
from lmqcluster.node.metrics.table import BY_NAME, QUEUE_SECTION, SECTIONS, STANDARD

from ..promtool import check_metrics
from .cluster import Cluster, NodeProcess, wait_for
from .test_access_tls import SECRET, TlsNode

CONDITIONAL = {one.name for section in SECTIONS for one in section.metrics if one.when}


def page(address: str, path: str = "/metrics") -> str:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=60) as answer:
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        body: bytes = answer.read()
    return body.decode()


def families(text: str) -> dict[str, Metric]:
    """Return the metrics by the names of the table: a counter's with ``_total``."""
    found = text_string_to_metric_families(text)
    return {f"{one.name}_total" if one.type == "counter" else one.name: one for one in found}


def value(address: str, sample: str, path: str = "/metrics", **labels: str) -> float:
    """Return the value of one sample, 0 if it does not exist yet."""
    found = [
        one.value
        for family in text_string_to_metric_families(page(address, path))
        for one in family.samples
        if one.name == sample and one.labels.items() >= labels.items()
    ]
    assert len(found) <= 1, f"{sample} {labels} is ambiguous"
    return found[0] if found else 0.0


def leader_of(cluster: Cluster) -> NodeProcess:
    return wait_for(
        lambda: next((one for one in cluster.nodes if value(one.http, "lmq_raft_is_leader")), None), "a leader"
    )


def kinds(shown: dict[str, Metric]) -> dict[str, str]:
    # The text format 0.0.4 has no type for what is called info in the table.
    return {name: "info" if name.endswith("_info") else family.type for name, family in shown.items()}


def test_the_page_shows_the_metrics_of_the_table(shared_cluster: Cluster, queue_name: str) -> None:
    for node in shared_cluster.nodes:
        with Client(node.rpc) as client:
            client.push(queue_name, "content")
            message = client.pull(queue_name, timeout=0)
            assert message is not None
            message.ack()
    leader = leader_of(shared_cluster)
    wait_for(lambda: value(leader.http, "lmq_raft_proposals_pending") == 0, "nothing to be pending")
    text = page(leader.http)
    check_metrics(text)
    shown = kinds(families(text))
    ours = {name: kind for name, kind in shown.items() if name.startswith("lmq_")}
    expected = {one.name: one.kind for section in SECTIONS for one in section.metrics}
    assert ours == {name: kind for name, kind in expected.items() if name in ours or name not in CONDITIONAL}
    assert set(STANDARD) <= shown.keys()
    for name, family in families(text).items():
        labels = {label for sample in family.samples for label in sample.labels if label != "le"}
        if name in BY_NAME and family.samples:
            assert labels == set(BY_NAME[name].labels), name


def test_messages_are_counted_and_have_an_age(node: NodeProcess, queue_name: str) -> None:
    def counted(name: str) -> float:
        return value(node.http, f"lmq_messages_{name}_total")

    names = ("pushed", "pulled", "acked", "nacked")
    before = {name: counted(name) for name in names}
    empty = value(node.http, "lmq_empty_pulls_total")
    waited = value(node.http, "lmq_time_in_queue_seconds_count")
    with Client(node.rpc) as client:
        client.push_many(queue_name, ["one", "two", "three"])
        first, second = client.pull(queue_name, timeout=0), client.pull(queue_name, timeout=0)
        assert first is not None
        assert second is not None
        first.ack()
        second.nack()
        wait_for(lambda: value(node.http, "lmq_oldest_message_age_seconds") > 0, "a message to have an age")
        while message := client.pull(queue_name, timeout=0):
            message.ack()
    grown = {name: counted(name) - before[name] for name in names}
    assert grown == {"pushed": 3, "pulled": 4, "acked": 3, "nacked": 1}
    assert value(node.http, "lmq_empty_pulls_total") == empty + 1
    assert value(node.http, "lmq_time_in_queue_seconds_count") > waited


def test_every_operation_is_counted_once(node: NodeProcess, queue_name: str) -> None:
    def done(operation: str) -> float:
        return value(node.http, "lmq_operation_duration_seconds_count", operation=operation)

    pushes, acks = done("push"), done("ack")
    batches = value(node.http, "lmq_raft_commit_duration_seconds_count")
    with Client(node.rpc) as client:
        client.push_many(queue_name, [str(number) for number in range(700)])
        for message in client.pull_many(queue_name, 10):
            message.ack()
    assert done("push") > pushes
    assert done("ack") == acks + 10
    assert value(node.http, "lmq_raft_commit_duration_seconds_count") > batches
    assert value(node.http, "lmq_raft_journal_sync_duration_seconds_count") > 0


def test_requests_are_counted_by_route_and_status(node: NodeProcess, queue_name: str) -> None:
    def served(operation: str, code: str) -> float:
        return value(node.http, "lmq_request_duration_seconds_count", protocol="http", operation=operation, code=code)

    push, missing = "POST /messages/{name}", "GET /v1/queues/{name}"
    before = served(push, "200"), served(missing, "404"), served("GET unknown", "404")
    urllib.request.urlopen(f"http://{node.http}/messages/{queue_name}", data=b"content").close()
    for path in (f"/v1/queues/{queue_name}-absent", "/no/such/route"):
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"http://{node.http}{path}")
    assert (served(push, "200"), served(missing, "404"), served("GET unknown", "404")) == tuple(n + 1 for n in before)
    assert value(node.http, "lmq_requests_in_flight", protocol="http") == 1


def test_connections_and_waiting_pulls(node: NodeProcess, queue_name: str) -> None:
    with Client(node.rpc) as client:
        client.push(queue_name, "content")
        assert value(node.http, "lmq_connections", protocol="msgpack_rpc") >= 1
        assert value(node.http, "lmq_connections", protocol="http") >= 1


def test_members_monitor_each_other_until_the_quorum_is_lost(cluster: Cluster) -> None:
    leader = leader_of(cluster)
    others = [one for one in cluster.nodes if one is not leader]
    assert value(leader.http, "lmq_raft_members") == 3
    for one in others:
        assert value(one.http, "lmq_raft_has_leader") == 1
        assert value(one.http, "lmq_raft_peer_connected", peer_name=leader.name) == 1
        wait_for(
            lambda one=one: value(leader.http, "lmq_raft_peer_round_trip_seconds_count", peer_name=one.name),  # type: ignore[misc]
            "a round trip",
        )
        wait_for(
            lambda one=one: (  # type: ignore[misc]
                value(leader.http, "lmq_raft_peer_match_index", peer_name=one.name)
                == value(leader.http, "lmq_raft_commit_index")
            ),
            "the member to have the whole log",
        )
    changes = {one.name: value(one.http, "lmq_raft_leader_changes_total") for one in others}
    leader.kill()
    for one in others:

        def recovered(one: NodeProcess = one) -> bool:
            changed = value(one.http, "lmq_raft_leader_changes_total") > changes[one.name]
            return changed and value(one.http, "lmq_ready") == 1

        wait_for(recovered, "a new leader")
        assert value(one.http, "lmq_raft_peer_connected", peer_name=leader.name) == 0
    # Without a quorum a node still shows its state.
    survivor, other = others
    other.kill()
    wait_for(lambda: not value(survivor.http, "lmq_raft_has_leader"), "the loss of the quorum")
    assert value(survivor.http, "lmq_ready") == 0
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(f"http://{survivor.http}/messages/jobs", data=b"content", timeout=60)
    assert value(survivor.http, "lmq_raft_proposals_failed_total", reason="no_leader") == 1


def test_the_page_of_queues(node: NodeProcess, new_queue_name: Callable[[], str]) -> None:
    names = [f'{new_queue_name()} "quoted"' for _ in range(3)]
    with Client(node.rpc) as client:
        for name in names:
            client.push(name, "content")
    path = f"/metrics/queues?name={quote('^the-page-of-queues|^test-the-page-of-queues')}"
    text = page(node.http, path)
    check_metrics(text)
    expected = {one.name: one.kind for one in QUEUE_SECTION.metrics}
    assert kinds(families(text)) == expected
    for name in names:
        assert value(node.http, "lmq_queue_messages", path, queue=name, state="ready") == 1
        assert value(node.http, "lmq_queue_messages_pushed_total", path, queue=name) == 1
    assert value(node.http, "lmq_queue_metrics_omitted", f"{path}&limit=1") == 2


@pytest.mark.parametrize("query", ["limit=0", "limit=all", "limit=100001", "name=(", "name=%zz"])
def test_a_wrong_query_is_refused(node: NodeProcess, query: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"http://{node.http}/metrics/queues?{query}")
    problem = json.loads(caught.value.read())
    assert caught.value.code == 400
    assert problem["code"] in ("bad_request", "bad_pattern")


def test_the_expiry_of_the_certificate_is_shown(tmp_path: Path) -> None:
    with TlsNode(tmp_path) as node:
        request = urllib.request.Request(
            f"https://{node.process.http}/metrics", headers={"Authorization": f"Bearer {SECRET}"}
        )
        with urllib.request.urlopen(request, context=node.context, timeout=60) as answer:
            shown = families(answer.read().decode())["lmq_tls_certificate_expiry_seconds"]
        certificate = x509.load_pem_x509_certificate((node.certificates / "n1.crt").read_bytes())
        assert [one.value for one in shown.samples] == [certificate.not_valid_after_utc.timestamp()]
