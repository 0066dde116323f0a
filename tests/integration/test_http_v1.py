"""The ``/v1`` routes. Every answer is validated against the OpenAPI document that the node serves."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import jsonschema
import msgpack
import pytest

from lmqcluster import Client

from .cluster import NodeProcess
from .raw_http import Answer, Connection, call, settle

JSON = "application/json"
MSGPACK = "application/x-msgpack"


class Api:
    """Calls ``/v1`` routes and checks every answer against the served document."""

    def __init__(self, address: str) -> None:
        self.address = address
        answer = call(address, "GET", "/openapi.json")
        assert (answer.status, answer["content-type"]) == (200, b"application/json")
        self.document = answer.json
        self.paths = sorted(self.document["paths"], key=lambda path: path.count("{"))

    def __call__(
        self,
        method: str,
        target: str,
        value: Any = None,
        *,
        headers: dict[str, str] | None = None,
        raw: bytes | None = None,
    ) -> Answer:
        body = raw if raw is not None else None if value is None else json.dumps(value).encode()
        headers = ({"Content-Type": JSON} if body is not None else {}) | (headers or {})
        answer = call(self.address, method, target, body, headers)
        self.check(method, target.partition("?")[0], answer)
        return answer

    def ok(self, method: str, target: str, value: Any = None, **more: Any) -> Any:
        answer = self(method, target, value, **more)
        assert answer.status in {200, 204}, answer
        return answer.json if answer.body else None

    def problem(self, answer: Answer, status: int, code: str) -> None:
        assert answer.status == status
        problem = answer.json
        assert (problem["status"], problem["code"]) == (status, code)
        assert problem["outcome"] == "not_applied"

    def check(self, method: str, path: str, answer: Answer) -> None:
        """Validate an answer against the schema of its route, status and media type."""
        media_type = answer.headers.get("content-type", b"").decode().partition(";")[0]
        if media_type == "application/problem+json":
            self.validate(answer.json, {"$ref": "#/components/schemas/Problem"})
            assert answer.status >= 400
        operation = self.operation(path, method)
        if operation is None:
            assert answer.status in {404, 405, 501}
            return
        responses = operation["responses"]
        described = responses.get(str(answer.status), responses.get("default"))
        assert described is not None, f"{method} {path} is not documented to answer {answer.status}"
        if not answer.body:
            assert "content" not in described, f"{method} {path} {answer.status} has no body"
            return
        schema = described["content"][media_type]["schema"]
        if media_type == JSON:
            self.validate(answer.json, schema)
        elif media_type == MSGPACK:
            self.validate(_as_json(msgpack.unpackb(answer.body)), schema)

    def operation(self, path: str, method: str) -> Any:
        wanted = path.rstrip("/").split("/")
        for template in self.paths:
            parts = template.split("/")
            if len(parts) == len(wanted) and all(
                t.startswith("{") or t == w for t, w in zip(parts, wanted, strict=True)
            ):
                return self.document["paths"][template].get(method.lower())
        return None

    def validate(self, value: Any, schema: Any) -> None:
        root = {**schema, "components": self.document["components"]}
        jsonschema.Draft202012Validator(root).validate(value)


def _as_json(value: Any) -> Any:
    """Convert a MessagePack answer to the form that the schema describes for JSON."""
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, list):
        return [_as_json(item) for item in value]
    if isinstance(value, dict):
        return {key: _as_json(item) for key, item in value.items()}
    return value


@pytest.fixture(scope="module")
def api(node: NodeProcess) -> Api:
    return Api(node.http)


def test_the_document_is_a_valid_3_1_document(api: Api) -> None:
    assert api.document["openapi"] == "3.1.0"
    for schema in api.document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


# --- push, pull, settle
# -------------------------------------------------------------------------------------------------


def test_push_pull_ack(api: Api, queue_name: str) -> None:
    messages = [
        {"content": "one"},
        {"content": "zwei ü", "content_type": "text/plain"},
        {"content": {"base64": "/wA="}},
    ]
    pushed = api.ok("POST", f"/v1/queues/{queue_name}/messages", {"messages": messages})
    first = pushed["results"][0]["sequence"]
    assert pushed == {"results": [{"accum": "no", "sequence": first + place} for place in range(3)]}
    pulled = api.ok("POST", f"/v1/queues/{queue_name}/pull", {"max": 100, "timeout": 5})["messages"]
    assert [message["content"] for message in pulled] == ["one", "zwei ü", {"base64": "/wA="}]
    assert [message["content_type"] for message in pulled] == [
        "application/octet-stream", "text/plain", "application/octet-stream",
    ]  # fmt: skip
    assert {(m["queue"], m["type"], m["retry"]) for m in pulled} == {(queue_name, "normal", 2)}
    ids = [message["id"] for message in pulled]
    assert api.ok("POST", f"/v1/queues/{queue_name}/ack", {"ids": [*ids, "nonsense"]}) == {
        "results": [True, True, True, False]
    }
    assert api.ok("POST", f"/v1/queues/{queue_name}/ack", {"ids": ids}) == {"results": [False] * 3}
    assert api.ok("POST", f"/v1/queues/{queue_name}/pull", {"max": 1}) == {"messages": []}


def test_nack_and_extend(api: Api, queue_name: str) -> None:
    api.ok("POST", f"/v1/queues/{queue_name}/messages", {"messages": [{"content": "m"}]})
    ids = [m["id"] for m in api.ok("POST", f"/v1/queues/{queue_name}/pull")["messages"]]
    assert api.ok("POST", f"/v1/queues/{queue_name}/extend", {"ids": ids}) == {"results": [True]}
    assert api.ok("POST", f"/v1/queues/{queue_name}/nack", {"ids": ids}) == {"results": [True]}
    assert api.ok("POST", f"/v1/queues/{queue_name}/pull")["messages"][0]["retry"] == 1


def test_msgpack_both_ways(api: Api, queue_name: str) -> None:
    body = msgpack.packb({"messages": [{"content": b"\xff\x00"}, {"content": "text"}, {"content": b"t"}]})
    headers = {"Content-Type": MSGPACK}
    answer = api("POST", f"/v1/queues/{queue_name}/messages", raw=body, headers=headers)
    assert answer["content-type"] == MSGPACK.encode()
    assert [result["accum"] for result in msgpack.unpackb(answer.body)["results"]] == ["no"] * 3
    answer = api("POST", f"/v1/queues/{queue_name}/pull", {"max": 10}, headers={"Accept": MSGPACK})
    messages = msgpack.unpackb(answer.body)["messages"]
    assert [message["content"] for message in messages] == [b"\xff\x00", b"text", b"t"]
    ids = msgpack.packb({"ids": [message["id"] for message in messages]})
    answer = api("POST", f"/v1/queues/{queue_name}/ack", raw=ids, headers=headers | {"Accept": JSON})
    assert answer.json == {"results": [True] * 3}


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("*/*", JSON),
        ("text/html", JSON),
        (MSGPACK, MSGPACK),
        (f"{MSGPACK};q=0.5, {JSON};q=0.9", JSON),
        (f"{JSON};q=0.5, {MSGPACK}", MSGPACK),
        ("application/msgpack", MSGPACK),
        (f"{MSGPACK};q=x", JSON),
    ],
)
def test_accept_chooses_the_format(api: Api, accept: str, content_type: str) -> None:
    assert api("GET", "/v1/queues", headers={"Accept": accept})["content-type"] == content_type.encode()


def test_one_batch_is_shared_with_lmq_routes(api: Api, queue_name: str) -> None:
    api.ok("POST", f"/v1/queues/{queue_name}/messages", {"messages": [{"content": "m", "content_type": "text/x"}]})
    answer = call(api.address, "GET", f"/messages/{queue_name}?t=0")
    assert (answer.body, answer["content-type"]) == (b"m", b"text/x")
    ids = [answer["x-lmq-message-id"].decode()]
    assert api.ok("POST", f"/v1/queues/{queue_name}/ack", {"ids": ids}) == {"results": [True]}


def test_a_large_batch(api: Api, queue_name: str) -> None:
    messages = [{"content": str(i)} for i in range(1000)]
    assert len(api.ok("POST", f"/v1/queues/{queue_name}/messages", {"messages": messages})["results"]) == 1000
    pulled = api.ok("POST", f"/v1/queues/{queue_name}/pull", {"max": 1000})["messages"]
    assert [int(message["content"]) for message in pulled] == list(range(1000))
    results = api.ok("POST", f"/v1/queues/{queue_name}/ack", {"ids": [message["id"] for message in pulled]})["results"]
    assert results == [True] * 1000
    call(api.address, "DELETE", f"/queues/{queue_name}")


def test_a_pull_waits_for_the_first_message_only(api: Api, queue_name: str) -> None:
    with Connection(api.address) as connection:
        body = json.dumps({"max": 10, "timeout": None}).encode()
        connection.ask("POST", f"/v1/queues/{queue_name}/pull", body, {"Content-Type": JSON})
        settle(api.address)
        assert connection.is_silent(0.1)
        api.ok("POST", f"/v1/queues/{queue_name}/messages", {"messages": [{"content": "m"}]})
        assert [message["content"] for message in connection.read().json["messages"]] == ["m"]
    assert api.ok("POST", f"/v1/queues/{queue_name}/pull", {"timeout": 0.1}) == {"messages": []}


def test_a_vanished_batch_puller_consumes_nothing(api: Api, queue_name: str) -> None:
    with Connection(api.address) as connection:
        connection.ask("POST", f"/v1/queues/{queue_name}/pull", b'{"max":5,"timeout":60}', {"Content-Type": JSON})
        settle(api.address)
    settle(api.address)
    api.ok("POST", f"/v1/queues/{queue_name}/messages", {"messages": [{"content": "m"}]})
    assert api.ok("POST", f"/v1/queues/{queue_name}/pull", {"timeout": 5})["messages"][0]["retry"] == 2


def test_compound_messages_have_parts(api: Api, queue_name: str) -> None:
    hooks = {"pre_http_push": [["lmq_hook_preserve_header", ["x-foo"]]]}
    api.ok("PATCH", f"/v1/queues/{queue_name}/properties", {"accum": 1, "hooks": hooks})
    opened = api.ok("POST", f"/v1/queues/{queue_name}/messages", {"messages": [{"content": "a"}]})
    call(api.address, "POST", f"/messages/{queue_name}", b"\xff", {"X-Foo": "1", "Content-Type": "text/x"})
    pushed = api.ok("POST", f"/v1/queues/{queue_name}/messages", {"messages": [{"content": "b"}]})
    message = api.ok("POST", f"/v1/queues/{queue_name}/pull", {"timeout": 10})["messages"][0]
    assert pushed == {"results": [{"accum": "yes"}]}
    assert opened["results"] == [{"accum": "new", "sequence": message["sequence"]}]
    assert (message["type"], message["content_type"]) == ("compound", "multipart/mixed")
    assert message["content"] == [
        {"content": "a", "content_type": "application/octet-stream", "attributes": {}},
        {"content": {"base64": "/w=="}, "content_type": "text/x", "attributes": {"x-foo": "1"}},
        {"content": "b", "content_type": "application/octet-stream", "attributes": {}},
    ]
    answer = api("POST", f"/v1/queues/{queue_name}/nack", {"ids": [message["id"]]})
    assert answer.status == 200
    again = api("POST", f"/v1/queues/{queue_name}/pull", {"timeout": 10}, headers={"Accept": MSGPACK})
    assert [part["content"] for part in msgpack.unpackb(again.body)["messages"][0]["content"]] == [b"a", b"\xff", b"b"]


# --- idempotency
# --------------------------------------------------------------------------------------------------------


def test_idempotency_key_header_makes_a_retry_safe(api: Api, queue_name: str) -> None:
    body = {"messages": [{"content": "a"}, {"content": "b"}]}
    for _ in range(3):
        api.ok("POST", f"/v1/queues/{queue_name}/messages", body, headers={"Idempotency-Key": '"8e03978e"'})
    assert len(api.ok("POST", f"/v1/queues/{queue_name}/pull", {"max": 10})["messages"]) == 2
    api.ok("POST", f"/v1/queues/{queue_name}/messages", body, headers={"Idempotency-Key": "another"})
    assert len(api.ok("POST", f"/v1/queues/{queue_name}/pull", {"max": 10})["messages"]) == 2


def test_idempotency_key_per_message(api: Api, queue_name: str) -> None:
    for contents in ("ab", "bc"):
        messages = [{"content": c, "key": f"key-{c}"} for c in contents]
        api.ok("POST", f"/v1/queues/{queue_name}/messages", {"messages": messages})
    pulled = api.ok("POST", f"/v1/queues/{queue_name}/pull", {"max": 10})["messages"]
    assert [message["content"] for message in pulled] == ["a", "b", "c"]


def test_idempotency_key_on_lmq_pushes(api: Api, new_queue_name: Callable[[], str]) -> None:
    first, second = new_queue_name(), new_queue_name()
    for name in (first, first, second):
        answer = call(api.address, "POST", f"/messages/{name}", b"m", {"Idempotency-Key": "k"})
        assert (answer.status, answer.body) == (200, b'{"accum":"no"}')
    for name in (first, second):
        statuses = [call(api.address, "GET", f"/messages/{name}?t=0").status for _ in range(2)]
        assert statuses == [200, 204]


@pytest.mark.parametrize("key", ["", '""', "k" * 256])
def test_bad_idempotency_keys_are_refused(api: Api, queue_name: str, key: str) -> None:
    headers = {"Idempotency-Key": key}
    answer = api("POST", f"/v1/queues/{queue_name}/messages", {"messages": [{"content": "m"}]}, headers=headers)
    api.problem(answer, 400, "bad_request")
    assert call(api.address, "POST", f"/messages/{queue_name}", b"m", headers).status == 400


# --- queues and properties
# ------------------------------------------------------------------------------------------------


def test_queues_are_listed_in_pages(api: Api, queue_name: str) -> None:
    names = [f"{queue_name}-{i}" for i in range(5)]
    for name in names:
        call(api.address, "POST", f"/messages/{name}", b"xyz")
    queues = api.ok("GET", "/v1/queues")["queues"]
    assert [queue["name"] for queue in queues if queue["name"] in names] == names
    page = api.ok("GET", f"/v1/queues?limit=2&after={names[0]}")
    assert [queue["name"] for queue in page["queues"]] == names[1:3]
    assert page["next"] == names[2]
    api.problem(api("GET", "/v1/queues?limit=0"), 400, "bad_request")
    api.problem(api("GET", "/v1/queues?limit=x"), 400, "bad_request")


def test_one_queue(api: Api, queue_name: str) -> None:
    api.problem(api("GET", f"/v1/queues/{queue_name}"), 404, "queue_not_found")
    api.ok("POST", f"/v1/queues/{queue_name}/messages", {"messages": [{"content": "abc"}, {"content": "de"}]})
    ids = [m["id"] for m in api.ok("POST", f"/v1/queues/{queue_name}/pull")["messages"]]
    queue = api.ok("GET", f"/v1/queues/{queue_name}")
    assert queue.pop("oldest_age_s") >= 0
    assert queue.pop("push_rate") >= 0
    assert queue.pop("pull_rate") >= 0
    assert time.time() - 60 < queue.pop("created_at") <= queue.pop("changed_at") < time.time() + 60
    assert queue == {
        "name": queue_name, "suspended": False, "ready": 1, "delayed": 0, "leased": 1, "accumulating": 0,
        "pushes_waiting": 0, "dead_letters": 0, "size": 2, "bytes": 5, "exclusive_holder": None, "standing_by": 0,
        "waiting_pulls": 0, "groups": 0, "held": 0, "held_back": {},
        "pushed_total": 2, "pulled_total": 1, "acked_total": 0, "nacked_total": 0, "redelivered_total": 0, "dropped_total": 0,
        "purged_total": 0, "moved_out_total": 0, "moved_in_total": 0, "expired_total": 0, "dead_lettered_total": 0,
        "refused_total": 0, "discarded_total": 0, "withdrawn_total": 0, "deduplicated_total": 0,
        "properties": {"accum": 0, "retry": 2, "timeout": 30}, "own_properties": {}, "annotations": {}, "stale": False,
    }  # fmt: skip
    api.ok("POST", f"/v1/queues/{queue_name}/ack", {"ids": ids})
    queue = api.ok("GET", f"/v1/queues/{queue_name}")
    assert (queue["size"], queue["leased"], queue["acked_total"], queue["bytes"]) == (1, 0, 1, 2)
    assert api("DELETE", f"/v1/queues/{queue_name}").status == 204
    api.problem(api("DELETE", f"/v1/queues/{queue_name}"), 404, "queue_not_found")


def test_subscriptions(api: Api, node: NodeProcess, queue_name: str) -> None:
    path = f"/v1/subscriptions/{queue_name}"
    for method, target in (("GET", path), ("POST", f"{path}/abandon")):
        api.problem(api(method, target), 404, "subscription_not_found")
    with Client(node.rpc) as client:
        client.push_many(queue_name, ["a", "b", "c"])
        client.reserve_batch(queue_name, 7, queue=queue_name, count=2, lease_s=100)
    shown = api.ok("GET", path)
    assert 90 < shown["batches"][0].pop("expires_in_s") <= 100
    batches = [{"epoch": 7, "state": "live", "count": 2}]
    assert shown == {"name": queue_name, "owner": "", "session": None, "settled": 0, "batches": batches}
    assert queue_name in [one["name"] for one in api.ok("GET", "/v1/subscriptions")["subscriptions"]]
    assert api("POST", f"{path}/abandon", {}).status == 204
    assert api.ok("GET", f"/v1/queues/{queue_name}")["ready"] == 3
    # The subscription has no state left.
    api.problem(api("GET", path), 404, "subscription_not_found")
    with Client(node.rpc) as client:
        client.settle_batches(queue_name, 7)
    assert api.ok("GET", path)["settled"] == 7
    assert api("DELETE", path).status == 204
    api.problem(api("DELETE", path), 404, "subscription_not_found")


def test_jobs(api: Api, node: NodeProcess, queue_name: str) -> None:
    path = f"/v1/jobs/{queue_name}"
    api.problem(api("DELETE", path), 404, "job_not_found")
    with Client(node.rpc) as client:
        assert client.begin_epoch(queue_name, 3, "run")
        client.push_marked(queue_name, ["a"], job=queue_name, stream="s", first=0, note=b"0" * 16, epoch=3, run="run")
    [shown] = [one for one in api.ok("GET", "/v1/jobs")["jobs"] if one["name"] == queue_name]
    assert 0 <= shown.pop("idle_s") < 100
    counted = {"streams": 1, "messages": 1, "note_bytes": 16, "unclaimed": 0}
    assert shown == {"name": queue_name, "owner": "", "finished_epoch": None, "open_epoch": 3, **counted}
    assert api("DELETE", path).status == 204
    api.problem(api("DELETE", path), 404, "job_not_found")


def test_properties(api: Api, queue_name: str) -> None:
    target = f"/v1/queues/{queue_name}/properties"
    assert api.ok("GET", target) == {"accum": 0, "retry": 2, "timeout": 30}
    assert api("PATCH", target, {"accum": 1.5, "timeout": 2.5}).status == 204
    assert api.ok("GET", target) == {"accum": 1.5, "retry": 2, "timeout": 2.5}
    api.problem(api("PATCH", target, {"retry": "x"}), 400, "bad_property")
    assert api("DELETE", target).status == 204
    assert api.ok("GET", target) == {"accum": 0, "retry": 2, "timeout": 30}


def test_names_that_are_not_utf8(api: Api, queue_name: str) -> None:
    name = f"{queue_name}%ff"
    api.ok("POST", f"/v1/queues/{name}/messages", {"messages": [{"content": "m"}]})
    shown = {"base64": base64.b64encode(queue_name.encode() + b"\xff").decode()}
    assert api.ok("GET", f"/v1/queues/{name}")["name"] == shown
    assert api.ok("POST", f"/v1/queues/{name}/pull")["messages"][0]["queue"] == shown
    api.ok("DELETE", f"/v1/queues/{name}")


def test_names_are_one_segment(api: Api, queue_name: str) -> None:
    name = f"{queue_name}/a b+ü"
    api.ok("POST", f"/v1/queues/{quote(name, safe='')}/messages", {"messages": [{"content": "m"}]})
    assert api.ok("GET", f"/v1/queues/{quote(name, safe='')}")["name"] == name


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "", "{}", "[]", "null", "1", "{", '{"messages":1}', '{"messages":{}}', '{"messages":[1]}', '{"messages":[{}]}',
        '{"messages":[{"content":1}]}', '{"messages":[{"content":null}]}', '{"messages":[{"content":{"base64":"!"}}]}',
        '{"messages":[{"content":"a","content_type":1}]}', '{"messages":[{"content":"a","content_type":"a\\r\\nb: c"}]}',
        '{"messages":[{"content":"a","content_type":""}]}', '{"messages":[{"content":"a","key":""}]}',
        '{"messages":[{"content":"a","key":1}]}', '{"messages":[{"content":"a","unknown":1}]}', '{"messages":[],"more":1}',
        '{"messages":[{"content":"\\ud800"}]}', '{"messages":[{"content":"good"},{"content":NaN}]}', "[" * 5000,
    ],
)  # fmt: skip
def test_bad_pushes_store_nothing(api: Api, queue_name: str, body: str) -> None:
    answer = api("POST", f"/v1/queues/{queue_name}/messages", raw=body.encode())
    api.problem(answer, 400, "bad_request")
    assert api("GET", f"/v1/queues/{queue_name}").status == 404


@pytest.mark.parametrize(
    "body",
    ['{"max":0}', '{"max":-1}',
     '{"max":10001}', '{"max":"1"}', '{"max":1.0}', '{"max":true}', '{"timeout":-1}', '{"timeout":"1"}',
     '{"timeout":true}', '{"timeout":[]}', "[]", '{"min":1}', '{"timeout":1e999}'],
)  # fmt: skip
def test_bad_pulls_consume_nothing(api: Api, queue_name: str, body: str) -> None:
    api.ok("POST", f"/v1/queues/{queue_name}/messages", {"messages": [{"content": "m"}]})
    api.problem(api("POST", f"/v1/queues/{queue_name}/pull", raw=body.encode()), 400, "bad_request")
    assert api.ok("POST", f"/v1/queues/{queue_name}/pull")["messages"][0]["retry"] == 2


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
@pytest.mark.parametrize(
    "body", ["", "{}", '{"ids":1}', '{"ids":[1]}', '{"ids":[""]}', '{"id":"x"}', '{"ids":["%s"]}' % ("x" * 65)]
)
def test_bad_settlements(api: Api, queue_name: str, verb: str, body: str) -> None:
    api.ok("POST", f"/v1/queues/{queue_name}/messages", {"messages": []})
    api.problem(api("POST", f"/v1/queues/{queue_name}/{verb}", raw=body.encode()), 400, "bad_request")


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
def test_settlements_on_an_unknown_queue(api: Api, queue_name: str, verb: str) -> None:
    api.problem(api("POST", f"/v1/queues/{queue_name}/{verb}", {"ids": ["x"]}), 404, "queue_not_found")
    assert api("GET", f"/v1/queues/{queue_name}").status == 404


def test_an_empty_batch_is_a_no_op(api: Api, queue_name: str) -> None:
    assert api.ok("POST", f"/v1/queues/{queue_name}/messages", {"messages": []}) == {"results": []}


@pytest.mark.parametrize(
    "body",
    [b"\xc1", b"\x81\xa8messages", b"\x90", b"\x81\xa8messages\x91\x81\xa7content\xd4\x01\x00", b"\x91" * 5000, b"\x80\x80",
     b"\x81\xa8messages\x91\x81\xa7content\xc0"],
)  # fmt: skip
def test_bad_msgpack(api: Api, queue_name: str, body: bytes) -> None:
    answer = api("POST", f"/v1/queues/{queue_name}/messages", raw=body, headers={"Content-Type": MSGPACK})
    api.problem(answer, 400, "bad_request")
    assert answer["content-type"] == b"application/problem+json"


def test_too_many_messages_and_ids(api: Api, queue_name: str) -> None:
    messages = [{"content": ""}] * 10_001
    answer = api("POST", f"/v1/queues/{queue_name}/messages", {"messages": messages})
    api.problem(answer, 413, "too_large")
    api.problem(api("POST", f"/v1/queues/{queue_name}/ack", {"ids": ["x"] * 10_001}), 413, "too_large")


def test_other_content_types_are_415(api: Api, queue_name: str) -> None:
    answer = api("POST", f"/v1/queues/{queue_name}/messages", raw=b"<x/>", headers={"Content-Type": "text/xml"})
    api.problem(answer, 415, "unsupported_media_type")


@pytest.mark.parametrize(
    ("method", "target", "allow"),
    [
        ("PUT", "/v1/queues", b"GET"),
        ("POST", "/v1/queues/q", b"GET, PUT, DELETE"),
        ("PUT", "/v1/queues/q/messages", b"GET, POST"),
        ("HEAD", "/v1/cluster", b"GET"),
        ("GET", "/v1/cluster/join", b"POST"),
        ("POST", "/livez", b"GET"),
        ("PUT", "/v1/queues/q/properties", b"GET, PATCH, DELETE"),
    ],
)
def test_wrong_methods_are_405(api: Api, method: str, target: str, allow: bytes) -> None:
    answer = call(api.address, method, target)
    assert (answer.status, answer["allow"]) == (405, allow)
    if method != "HEAD":
        api.check(method, target, answer)


def test_unknown_routes_and_methods(api: Api) -> None:
    api.problem(api("GET", "/v1/nothing"), 404, "route_not_found")
    api.problem(api("GET", "/v1/queues/q/nothing"), 404, "route_not_found")
    api.problem(api("PROPFIND", "/v1/queues"), 501, "not_implemented")


@pytest.mark.parametrize("name", ["%00", "a" * 256, "%zz", "%0d%0a"])
def test_bad_names(api: Api, name: str) -> None:
    code = "bad_request" if name == "%zz" else "bad_name"
    api.problem(api("GET", f"/v1/queues/{name}"), 400, code)
    api.problem(api("POST", f"/v1/queues/{name}/messages", {"messages": [{"content": "x"}]}), 400, code)
