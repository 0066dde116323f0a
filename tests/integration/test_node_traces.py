"""Spans of real nodes: which requests get them, and that a collector never delays a request."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the extra otel")

from lmqcluster import Client

from .cluster import NodeProcess, fetch, wait_for
from .collectors import Receiver, SilentCollector, SpanRecord, spans_in, tree_of
from .raw_http import Connection, call

SPAN = "00f067aa0ba902b7"
_traces = iter(range(0x4BF92F3577B34DA6A3CE929D0E0E4736, 1 << 128))
JSON = {"content-type": "application/json"}
PUSH = ("push {q}", [("commit", [])])


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    with Receiver(tmp_path_factory.mktemp("collector") / "traces.json") as made:
        yield made


@pytest.fixture(scope="module", params=[0, 2], ids=["one-process", "front-ends"])
def node(
    request: pytest.FixtureRequest, receiver: Receiver, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NodeProcess]:
    arguments = ("--trace-otlp-endpoint", receiver.endpoint, "--front-ends", str(request.param))
    with NodeProcess(tmp_path_factory.mktemp("node"), arguments=arguments) as process:
        yield process


class Trace:
    """A trace that a test sends, and its spans."""

    def __init__(self, receiver: Receiver, flags: str = "01") -> None:
        self.id = f"{next(_traces):032x}"
        self.parent = f"00-{self.id}-{SPAN}-{flags}"
        self.headers = {"traceparent": self.parent}
        self._file = receiver.file

    def spans(self) -> list[SpanRecord]:
        return [span for span in spans_in(self._file) if span.trace == self.id]

    def tree(self, count: int) -> list[tuple[str, list[Any]]]:
        """Wait for so many spans; return them as a tree below the span of the test."""
        wait_for(lambda: len(self.spans()) >= count, f"{count} spans of {self.id}")
        return tree_of(self.spans(), SPAN)


def test_a_request_over_http_is_a_tree(node: NodeProcess, receiver: Receiver, queue_name: str) -> None:
    trace = Trace(receiver)
    assert call(node.http, "POST", f"/messages/{queue_name}", b"x", trace.headers).status == 200
    answer = call(node.http, "GET", f"/messages/{queue_name}?t=0")
    assert answer["traceparent"].decode() == trace.parent
    push = (f"push {queue_name}", [("commit", [])])
    assert trace.tree(4) == [("POST /messages/{name}", [push]), (f"deliver {queue_name}", [])]
    spans = {span.name: span for span in trace.spans()}
    request = spans["POST /messages/{name}"]
    assert request.attributes == {
        "http.request.method": "POST", "http.route": "/messages/{name}", "http.response.status_code": 200,
    }  # fmt: skip
    assert request.service == "lmqcluster"
    assert spans[f"push {queue_name}"].attributes["messaging.destination.name"] == queue_name


def test_batches_and_transactions(node: NodeProcess, receiver: Receiver, queue_name: str) -> None:
    first, second = Trace(receiver), Trace(receiver)
    body = b'{"messages": [{"content": "a"}, {"content": "b"}]}'
    assert call(node.http, "POST", f"/v1/queues/{queue_name}/messages", body, JSON | first.headers).status == 200
    with Client(node.rpc) as client:
        message = client.pull(queue_name, 60)
        assert message is not None
        assert message.attributes == first.headers
        operations = b'{"operations": [{"op": "push", "queue": "%b", "content": "c"}]}' % queue_name.encode()
        assert call(node.http, "POST", "/v1/transactions", operations, JSON | second.headers).status == 200
        assert len(client.pull_many(queue_name, 10)) == 2
    push = (f"push {queue_name}", [("commit", [])])
    deliver = (f"deliver {queue_name}", [])
    assert first.tree(5) == [("POST /v1/queues/{name}/messages", [push]), deliver, deliver]
    counts = [one.attributes.get("messaging.batch.message_count") for one in first.spans() if one.name == push[0]]
    assert counts == [2]
    assert second.tree(4) == [("POST /v1/transactions", [push]), deliver]


def test_pushes_over_messagepack_rpc(node: NodeProcess, receiver: Receiver, queue_name: str) -> None:
    trace = Trace(receiver)
    attributes: Any = trace.headers
    with Client(node.rpc) as client:
        client.push(queue_name, b"1", attributes=attributes)
        client.push_many(queue_name, [b"2", b"3"], options=[{"attributes": attributes}, None])
        with client.transaction() as transaction:
            transaction.push(queue_name, b"4", attributes=attributes)
        client.push_marked(
            queue_name, [b"5"], job="j", stream=queue_name, first=0, options=[{"attributes": attributes}]
        )
    push = (f"push {queue_name}", [("commit", [])])
    assert trace.tree(8) == [push] * 4


def test_a_refused_request_has_its_status(node: NodeProcess, receiver: Receiver) -> None:
    trace = Trace(receiver)
    assert call(node.http, "DELETE", "/queues/there-is-none", None, trace.headers).status == 404
    assert trace.tree(1) == [("DELETE /queues/{name}", [])]
    (span,) = trace.spans()
    assert span.attributes["http.response.status_code"] == 404
    assert not span.is_error


@pytest.mark.parametrize("flags", ["00", "0g"])
def test_other_requests_get_no_spans(node: NodeProcess, receiver: Receiver, queue_name: str, flags: str) -> None:
    silent, last = Trace(receiver, flags), Trace(receiver)
    for headers in ({}, silent.headers, {"traceparent": "x"}):
        assert call(node.http, "POST", f"/messages/{queue_name}", b"x", headers).status == 200
    attributes: Any = silent.headers
    with Client(node.rpc) as client:
        client.push(queue_name, b"x", attributes=attributes)
        client.push(queue_name, b"x", attributes={"traceparent": b"\xff"})
        assert len(client.pull_many(queue_name, 10)) == 5
        assert call(node.http, "POST", f"/messages/{queue_name}", b"x", last.headers).status == 200
    last.tree(3)
    assert silent.spans() == []
    names = [span.name for span in spans_in(receiver.file) if queue_name in span.name]
    assert names == [f"push {queue_name}"]


def metric(node: NodeProcess, name: str) -> int:
    found = re.search(rf"^{name} ([0-9.]+)$", fetch(node.http, "/metrics")[1].decode(), re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


def test_exported_spans_are_counted(node: NodeProcess, receiver: Receiver, queue_name: str) -> None:
    trace = Trace(receiver)
    before = metric(node, "lmq_trace_spans_exported_total")
    assert call(node.http, "POST", f"/messages/{queue_name}", b"x", trace.headers).status == 200
    wait_for(lambda: metric(node, "lmq_trace_spans_exported_total") >= before + 3, "three more spans are counted")
    assert metric(node, "lmq_trace_spans_dropped_total") == 0


def test_a_sample_of_nothing_makes_no_spans(receiver: Receiver, tmp_path: Path, queue_name: str) -> None:
    arguments = ("--trace-otlp-endpoint", receiver.endpoint, "--trace-sample", "0")
    trace = Trace(receiver)
    with NodeProcess(tmp_path, arguments=arguments) as node:
        assert call(node.http, "POST", f"/messages/{queue_name}", b"x", trace.headers).status == 200
        assert call(node.http, "GET", f"/messages/{queue_name}?t=0")["traceparent"].decode() == trace.parent
        # Stopping sends the spans that wait.
        assert node.stop() == 0
    assert trace.spans() == []


@contextlib.contextmanager
def dead_endpoint(kind: str) -> Iterator[str]:
    with SilentCollector() as silent:
        if kind == "silent":
            yield silent.endpoint
            return
    yield silent.endpoint


@pytest.mark.parametrize("kind", ["silent", "refusing"])
def test_a_dead_collector_delays_no_request_and_spans_are_counted(tmp_path: Path, queue_name: str, kind: str) -> None:
    with (
        dead_endpoint(kind) as endpoint,
        NodeProcess(tmp_path, arguments=("--trace-otlp-endpoint", endpoint)) as node,
        Connection(node.http) as connection,
    ):
        slowest_s = 0.0
        for number in range(2000):
            headers = {"traceparent": f"00-{number + 1:032x}-{SPAN}-01"}
            begun_s = time.monotonic()
            assert connection.call("POST", f"/messages/{queue_name}", b"x", headers).status == 200
            slowest_s = max(slowest_s, time.monotonic() - begun_s)
        # The collector is given 5 seconds for each answer.
        assert slowest_s < 4
        assert wait_for(lambda: metric(node, "lmq_trace_spans_dropped_total"), "spans are dropped") > 0
        assert metric(node, "lmq_trace_spans_exported_total") == 0
        begun_s = time.monotonic()
        assert node.stop() == 0
        assert time.monotonic() - begun_s < 30
