"""The headers ``traceparent`` and ``tracestate`` of requests over HTTP become attributes of the pushed messages."""

from __future__ import annotations

from typing import Any

import pytest

from .cluster import NodeProcess
from .raw_http import Answer, Connection, call
from .test_http_v1 import Api

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
HEADERS = {"traceparent": PARENT, "tracestate": "vendor=1"}
TRACED = {"traceparent": PARENT, "tracestate": "vendor=1"}


@pytest.fixture
def api(node: NodeProcess) -> Api:
    return Api(node.http)


def pulled(api: Api, queue: str) -> list[dict[str, Any]]:
    answer = call(
        api.address, "POST", f"/v1/queues/{queue}/pull", b'{"max": 100}', {"Content-Type": "application/json"}
    )
    assert answer.status == 200
    messages: list[dict[str, Any]] = answer.json["messages"]
    return messages


def test_a_trace_goes_through_lmqs_routes(node: NodeProcess, queue_name: str) -> None:
    assert call(node.http, "POST", f"/messages/{queue_name}", b"x", HEADERS).status == 200
    answer = call(node.http, "GET", f"/messages/{queue_name}?t=0")
    assert (answer["traceparent"], answer["tracestate"]) == (PARENT.encode(), b"vendor=1")


def test_messages_of_a_batch_get_the_trace_of_the_request(api: Api, queue_name: str) -> None:
    own = {"traceparent": "own"}
    messages = [{"content": "a"}, {"content": "b", "attributes": {"n": 1}}, {"content": "c", "attributes": own}]
    api.ok("POST", f"/v1/queues/{queue_name}/messages", {"messages": messages}, headers=HEADERS)
    assert [one["attributes"] for one in pulled(api, queue_name)] == [TRACED, {"n": 1, **TRACED}, own]


def test_messages_of_a_transaction_get_the_trace_of_the_request(api: Api, queue_name: str) -> None:
    operations = [{"op": "push", "queue": queue_name, "content": "a"}]
    api.ok("POST", "/v1/transactions", {"operations": operations}, headers=HEADERS)
    assert [one["attributes"] for one in pulled(api, queue_name)] == [TRACED]


HOSTILE = [
    *(b"traceparent: x", b"traceparent:", b"traceparent: " + PARENT.upper().encode(), b"traceparent: \xff\xfe"),
    *(b"traceparent: " + b"0" * 4000, b"traceparent: 00-" + b"0" * 32 + b"-" + SPAN.encode() + b"-01"),
    b"traceparent: " + PARENT.encode() + b"\r\ntraceparent: " + PARENT.encode(),
    *(b"tracestate: vendor=1", b"traceparent: " + PARENT.encode() + b", " + PARENT.encode()),
]


def send(address: str, target: str, headers: bytes, body: bytes) -> Answer:
    with Connection(address) as connection:
        kind = b"host: %b\r\ncontent-type: application/json\r\ncontent-length: %d" % (address.encode(), len(body))
        connection.send(b"POST %b HTTP/1.1\r\n%b\r\n%b\r\n\r\n%b" % (target.encode(), headers, kind, body))
        return connection.read()


@pytest.mark.parametrize("headers", HOSTILE)
def test_a_malformed_trace_is_ignored(api: Api, queue_name: str, headers: bytes) -> None:
    lists, step = b'{"messages": [{"content": "v1"}]}', b'{"op": "push", "queue": "%b", "content": "step"}'
    assert send(api.address, f"/messages/{queue_name}", headers, b"lmq").status == 200
    assert send(api.address, f"/v1/queues/{queue_name}/messages", headers, lists).status == 200
    operations = b'{"operations": [%b]}' % (step % queue_name.encode())
    assert send(api.address, "/v1/transactions", headers, operations).status == 200
    found = pulled(api, queue_name)
    assert [one["attributes"] for one in found] == [{}, {}, {}]


@pytest.mark.parametrize("state", [b"x", b"a=" + b"x" * 3000, b"," * 4000, b"a=1," * 900, b"a=\xc3\xa9"])
def test_a_malformed_state_is_left_out(api: Api, queue_name: str, state: bytes) -> None:
    headers = b"traceparent: %b\r\ntracestate: %b" % (PARENT.encode(), state)
    assert send(api.address, f"/messages/{queue_name}", headers, b"lmq").status == 200
    assert [one["attributes"] for one in pulled(api, queue_name)] == [{"traceparent": PARENT}]
