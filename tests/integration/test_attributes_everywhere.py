"""Attributes over every path: each push is read by each interface, each journey keeps them, and so do copies and restarts."""

from __future__ import annotations

import json
import shutil
import urllib.parse
from pathlib import Path
from typing import Any

import msgpack
import pytest

from lmqcluster import Client
from lmqcluster.wire.attributes import Attributes, value_text

from .attribute_paths import ATTRIBUTES, JOURNEYS, PUSHES, READS, ok, path
from .cluster import Cluster
from .outage import in_step
from .programs import run
from .raw_http import call

# Hooks are those of the queue that stores a copy; a push to an alias never waits, and jobs and keys store a message once.
COPIED = [name for name in PUSHES if name not in {"LMQ's HTTP", "a push that waits for room", "a job", "v1 in JSON"}]
# A message with a priority or a group joins no window, and a full queue has none.
ACCUMULATED = [name for name in PUSHES if name not in {"asyncio client", "a transaction", "a push that waits for room"}]


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("push", PUSHES)
def test_a_pushed_message_is_read(shared_cluster: Cluster, queue_name: str, push: str, read: str) -> None:
    pushed = PUSHES[push](shared_cluster, queue_name)
    in_step(shared_cluster)
    assert READS[read](shared_cluster, queue_name) == pushed


@pytest.mark.parametrize("push", ["client", "asyncio client", "LMQ's HTTP"])
@pytest.mark.parametrize("journey", JOURNEYS)
def test_a_journey_keeps_attributes(shared_cluster: Cluster, queue_name: str, push: str, journey: str) -> None:
    pushed = PUSHES[push](shared_cluster, queue_name)
    queue = JOURNEYS[journey](shared_cluster, queue_name)
    in_step(shared_cluster)
    for read in ("a page of v1", "client"):
        assert READS[read](shared_cluster, queue) == pushed


@pytest.mark.parametrize("push", COPIED)
def test_a_copy_has_the_attributes(shared_cluster: Cluster, queue_name: str, push: str) -> None:
    with Client(shared_cluster[0].rpc) as client:
        client.bind(queue_name, f"{queue_name}.bound")
        client.update_props(f"{queue_name}.alias", {"destination_queues": [f"{queue_name}.end"]})
    for pushed_to, stored_in in (("", ""), ("", ".bound"), (".alias", ".end")):
        pushed = PUSHES[push](shared_cluster, queue_name + pushed_to)
        assert READS["v1 in JSON"](shared_cluster, queue_name + stored_in) == pushed


@pytest.mark.parametrize("push", ACCUMULATED)
def test_parts_of_a_compound_message_keep_attributes(shared_cluster: Cluster, queue_name: str, push: str) -> None:
    with Client(shared_cluster[0].rpc) as client:
        # The window stays open until both are pushed.
        client.update_props(queue_name, {"accum": 3600})
        pushed = PUSHES[push](shared_cluster, queue_name)
        client.push(queue_name, "y")
        client.push(queue_name, "z", attributes={"tenant": "z"})
    name, value = next(iter(pushed.items()))
    target = f"{path(queue_name, 'messages')}?bytes=0&attribute="
    assert ok(call(shared_cluster[0].http, "GET", target + urllib.parse.quote(f"{name}={value_text(value)}"))).json[
        "messages"
    ]
    assert ok(call(shared_cluster[0].http, "GET", f"{target}tenant=z")).json["messages"]
    assert not ok(call(shared_cluster[0].http, "GET", f"{target}tenant=y")).json["messages"]
    answer = call(
        shared_cluster[0].http, "GET", path(queue_name, "messages"), None, {"accept": "application/x-msgpack"}
    )
    [message] = msgpack.unpackb(ok(answer).body)["messages"]
    assert [part["attributes"] for part in message["content"]] == [pushed, {}, {"tenant": "z"}]


@pytest.mark.parametrize("push", ["client", "LMQ's HTTP"])
def test_pulled_compound_messages_have_the_attributes_of_each_part(
    shared_cluster: Cluster, queue_name: str, push: str
) -> None:
    with Client(shared_cluster[1].rpc) as client:
        client.update_props(queue_name, {"accum": 0.5})
        pushed = PUSHES[push](shared_cluster, queue_name)
        message = client.pull(queue_name, 60)
        assert message is not None
        assert message.part_attributes == [pushed]
        message.put_back()
        answer = call(shared_cluster[2].http, "GET", f"/messages/{queue_name}?cf=msgpack")
        [(headers, _)] = msgpack.unpackb(ok(answer).body, unicode_errors="surrogateescape")
        headers.pop("content-type")
        assert headers == _as_headers(pushed)


@pytest.mark.parametrize("push", PUSHES)
def test_lmqs_http_returns_attributes_as_headers(shared_cluster: Cluster, queue_name: str, push: str) -> None:
    pushed = PUSHES[push](shared_cluster, queue_name)
    answer = ok(call(shared_cluster[2].http, "GET", f"/messages/{queue_name}?t=60"))
    for name, value in _as_headers(pushed).items():
        assert answer[name] == value.encode("utf-8", "surrogateescape"), name
    # A control character cannot be in a header.
    assert "raw" not in answer.headers


def test_a_snapshot_and_a_backup_keep_attributes(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    expected: dict[str, Attributes] = {}
    with Cluster(3, directory=tmp_path / "old") as cluster:
        for push in PUSHES:
            queue = f"push.{len(expected)}"
            expected[queue] = PUSHES[push](cluster, queue)
        for journey in JOURNEYS:
            queue = f"journey.{len(expected)}"
            PUSHES["asyncio client"](cluster, queue)
            expected[JOURNEYS[journey](cluster, queue)] = ATTRIBUTES
        with Client(cluster[0].rpc) as client:
            client.push("leased", "x", attributes=ATTRIBUTES)
            client.update_props("leased", {"timeout": 3600})
            assert client.pull("leased", 60) is not None
            client.push("delayed", "x", attributes=ATTRIBUTES, delay=3600)
            client.update_props("window", {"accum": 3600})
            client.push("window", "x", attributes=ATTRIBUTES)
            client.push("window", "y", attributes={"tenant": "y"})
        in_step(cluster)
        before = _all_attributes(cluster, 0)
        assert {queue: before[queue] for queue in expected} == {queue: [one] for queue, one in expected.items()}
        assert before["window"] == [ATTRIBUTES, {"tenant": "y"}]
        assert before["leased"] == before["delayed"] == [ATTRIBUTES]
        for node in cluster:
            ok(call(node.http, "POST", "/v1/snapshots"))
        file = tmp_path / "backup"
        assert run("lmq-admin", "--node", cluster[1].http, "backup", str(file)).code == 0
        for node in cluster:
            node.kill()
        cluster.start()
        assert all(status["snapshot_index"] > 0 for status in _opened(cluster))
        in_step(cluster)
        for place in range(3):
            assert _all_attributes(cluster, place) == before
    with Cluster(1, directory=tmp_path / "new") as restored:
        [node] = restored
        node.stop()
        node.peers = ()
        shutil.rmtree(node.data_dir)
        assert run("lmq-admin", "restore", str(file), "--data-dir", str(node.data_dir), "--raft", node.raft).code == 0
        node.start()
        assert _all_attributes(restored, 0) == before


def _as_headers(attributes: Attributes) -> dict[str, str]:
    """Return the headers of attributes; bytes that are not UTF-8 are surrogates."""
    return {
        name: value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)
        for name, value in attributes.items()
        if name != "raw"
    }


def _all_attributes(cluster: Cluster, place: int) -> dict[str, list[Attributes]]:
    """Return the attributes of all messages, or of the parts of compound ones, by queue, as a node has them."""
    found: dict[str, list[Attributes]] = {}
    http = cluster[place].http
    for queue in cluster[place].get_json("/v1/queues")["queues"]:
        target = path(queue["name"], "messages")
        answer = ok(call(http, "GET", f"{target}?limit=1000", None, {"accept": "application/x-msgpack"}))
        messages: list[Any] = msgpack.unpackb(answer.body)["messages"]
        parts = [part for one in messages for part in (one["content"] if one["type"] == "compound" else [one])]
        found[queue["name"]] = [part["attributes"] for part in parts]
    return found


def _opened(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the last log line of each node about its data directory."""
    return [
        [json.loads(line) for line in node.log().splitlines() if "data directory opened" in line][-1]
        for node in cluster
    ]
