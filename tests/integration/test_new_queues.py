"""Queues that ``PUT /v1/queues/NAME`` and ``lmq-admin queue create`` make: plain, FIFO as in SQS, and fair."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

from .cluster import NodeProcess
from .programs import Result, run_here
from .sqs_http import SqsHttp
from .test_http_v1 import Api


@pytest.fixture
def api(node: NodeProcess) -> Api:
    return Api(node.http)


def admin(node: NodeProcess, *arguments: str) -> Result:
    return run_here("--node", node.http, *arguments)


def made(node: NodeProcess, name: str) -> tuple[Any, Any]:
    """Return the own properties and the annotations of a queue."""
    found = node.get_json(f"/v1/queues/{name}")
    return found["own_properties"], found["annotations"]


@pytest.mark.parametrize(
    ("options", "attributes"),
    [
        ([], {}),
        (["--content-deduplication"], {"ContentBasedDeduplication": "true"}),
        (["--no-content-deduplication"], {"ContentBasedDeduplication": "false"}),
        (
            ["--key-scope", "group", "--timeout", "90"],
            {"DeduplicationScope": "messageGroup", "VisibilityTimeout": "90"},
        ),
    ],
)
def test_a_fifo_queue_is_the_one_of_sqs(
    node: NodeProcess, queue_name: str, options: list[str], attributes: dict[str, str]
) -> None:
    ours, theirs = f"{queue_name[-50:]}.fifo", f"{queue_name[-50:]}-sqs.fifo"
    sqs = SqsHttp(node.sqs)
    assert admin(node, "queue", "create", ours, "--fifo", *options) == (0, "", "")
    wanted = {"FifoQueue": "true", **attributes}
    sqs("CreateQueue", QueueName=theirs, Attributes=wanted)
    assert made(node, ours) == made(node, theirs)
    # A client of SQS that creates it again, with the same attributes, gets it.
    url = sqs("CreateQueue", QueueName=ours, Attributes=wanted)["QueueUrl"]
    more = {} if "--content-deduplication" in options else {"MessageDeduplicationId": "d"}
    sent = [sqs("SendMessage", QueueUrl=url, MessageBody="x", MessageGroupId="g", **more) for _ in range(2)]
    assert sent[0]["MessageId"] == sent[1]["MessageId"]
    assert node.get_json(f"/v1/queues/{ours}")["size"] == 1


def test_a_queue_that_exists_stays_as_it_is(node: NodeProcess, api: Api, queue_name: str) -> None:
    words = ("--retry", "5", "--annotate", "team=a")
    assert json.loads(admin(node, "queue", "create", queue_name, *words, "--json").out) == {"new": True}
    refused = admin(node, "queue", "create", queue_name, "--fair")
    text = f"there is a queue {queue_name} already, and it was not changed"
    assert (refused.code, refused.err) == (65, f"lmq-admin: {text}; lmq-admin queue set {queue_name} changes it\n")
    assert api.ok("PUT", f"/v1/queues/{queue_name}", {"properties": {"retry": 6}}) == {"new": False}
    assert made(node, queue_name) == ({"retry": 5}, {"team": "a"})
    assert admin(node, "queue", "create", queue_name, "--content-deduplication").code == 2


def test_kinds_and_their_properties(node: NodeProcess, api: Api, queue_name: str) -> None:
    assert api.ok("PUT", f"/v1/queues/{queue_name}") == {"new": True}
    assert made(node, queue_name) == ({}, {})
    fair = {"kind": "fair", "properties": {"retry": 1}, "annotations": {"team": "a"}}
    assert api.ok("PUT", f"/v1/queues/{queue_name}-fair", fair) == {"new": True}
    assert made(node, f"{queue_name}-fair") == ({"group_mode": "fair", "retry": 1}, {"team": "a"})
    short = f"{queue_name[-50:]}.fifo"
    assert api.ok("PUT", f"/v1/queues/{short}", {"kind": "fifo", "properties": {"max_age": None}}) == {"new": True}
    properties, annotations = made(node, short)
    assert ("max_age" in properties, properties["key_window"], annotations) == (False, 300, {"sqs.kind": "fifo"})


@pytest.mark.parametrize(
    ("end", "body", "code"),
    [
        ("", {"kind": "fifo"}, "bad_request"),
        ("é.fifo", {"kind": "fifo"}, "bad_request"),
        ("x" * 80 + ".fifo", {"kind": "fifo"}, "bad_request"),
        ("", {"kind": "other"}, "bad_request"),
        ("", {"kind": ["fifo"]}, "bad_request"),
        ("", {"kind": "fair", "content_deduplication": True}, "bad_request"),
        (".fifo", {"kind": "fifo", "content_deduplication": 1}, "bad_request"),
        ("", {"properties": {"retry": -1}}, "bad_property"),
        ("", {"properties": {"unknown": 1}}, "bad_property"),
        ("", {"properties": []}, "bad_property"),
        ("", {"annotations": {"a": 1}}, "bad_property"),
        ("", {"annotations": {"a": "x" * 20_000}}, "too_large"),
        ("", {"fifo": True}, "bad_request"),
    ],
)
def test_what_creates_no_queue(api: Api, queue_name: str, end: str, body: Any, code: str) -> None:
    path = f"/v1/queues/{quote(queue_name[-50:] + end)}"
    assert api("PUT", path, body).json["code"] == code
    assert api("GET", path).status == 404
