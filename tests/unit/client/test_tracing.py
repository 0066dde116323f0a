"""Spans of the clients: names and attributes by the conventions for messaging, parents and links."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="needs the extra otel")

from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from lmqcluster import Client, LmqError
from lmqcluster.client import AsyncClient
from lmqcluster.client.recipes import DistributedQueue, QueueOptions, TextSerializer
from lmqcluster.testing import MemoryCluster

from .spans import Recorder, linked, traceparent

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def spans() -> Recorder:
    return Recorder()


@pytest.fixture
def cluster() -> Iterator[MemoryCluster]:
    with MemoryCluster() as made:
        yield made


@pytest.fixture
def client(cluster: MemoryCluster, spans: Recorder) -> Client:
    return cluster.client(tracing=spans.provider)


@pytest.fixture
def plain(cluster: MemoryCluster) -> Client:
    return cluster.client()


def shown(attributes: Any) -> dict[str, Any]:
    """Return the attributes of a span without those that differ in each run."""
    varying = ("server.address", "server.port", "messaging.message.id")
    return {name.removeprefix("messaging."): value for name, value in attributes.items() if name not in varying}


def test_a_message_carries_the_span_of_its_push(client: Client, plain: Client, spans: Recorder) -> None:
    client.push("q", b"x", attributes={"n": 1})
    push = spans.one("push q")
    assert push.kind is SpanKind.PRODUCER
    assert shown(push.attributes) == {
        "system": "lmqcluster", "operation.name": "push", "operation.type": "send", "destination.name": "q",
    }  # fmt: skip
    message = plain.pull("q", 0)
    assert message is not None
    assert message.attributes == {"n": 1, "traceparent": traceparent(push)}


def test_a_push_is_a_child_of_the_current_span(client: Client, spans: Recorder) -> None:
    with spans.tracer.start_as_current_span("request"):
        client.push("q", b"x")
    assert spans.parent_name(spans.one("push q")) == "request"


def test_a_trace_of_its_own_stays(client: Client, plain: Client, spans: Recorder) -> None:
    client.push("q", b"x", attributes={"traceparent": PARENT})
    assert traceparent_of(plain) == PARENT
    assert traceparent(spans.one("push q"))[3:35] == PARENT[3:35]


def traceparent_of(plain: Client) -> Any:
    message = plain.pull("q", 0)
    assert message is not None
    return message.attributes["traceparent"]


def test_full_attributes_get_no_trace_and_are_stored(client: Client, plain: Client) -> None:
    full = {f"a{number}": number for number in range(64)}
    client.push("q", b"x", attributes=full)
    message = plain.pull("q", 0)
    assert message is not None
    assert message.attributes == full


def test_a_pull_and_a_block_continue_the_trace(client: Client, spans: Recorder) -> None:
    client.push("q", b"x")
    message = client.pull("q", 0)
    assert message is not None
    with message:
        spans.tracer.start_span("work").end()
    assert spans.names() == ["push q", "pull q", "work", "ack q", "process q"]
    parents = {span.name: spans.parent_name(span) for span in spans.ended()}
    assert parents == {
        "push q": None, "pull q": "push q", "process q": "push q", "work": "process q", "ack q": "process q",
    }  # fmt: skip
    pull, process, ack = spans.one("pull q"), spans.one("process q"), spans.one("ack q")
    assert (pull.kind, process.kind, ack.kind) == (SpanKind.CLIENT, SpanKind.CONSUMER, SpanKind.CLIENT)
    kinds = [shown(span.attributes)["operation.type"] for span in (pull, process, ack)]
    assert kinds == ["receive", "process", "settle"]
    assert process.attributes["messaging.message.id"] == message.id
    assert process.status.status_code is StatusCode.UNSET
    assert pull.start_time <= pull.end_time <= process.start_time


def test_a_block_that_fails_is_an_error_and_its_redelivery_another_child(client: Client, spans: Recorder) -> None:
    client.push("q", b"x")
    message = client.pull("q", 0)
    assert message is not None
    with pytest.raises(ZeroDivisionError), message:
        _ = 1 / 0
    failed = spans.one("process q")
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.attributes["error.type"] == "ZeroDivisionError"
    assert spans.parent_name(spans.one("nack q")) == "process q"
    again = client.pull("q", 0)
    assert again is not None
    with again:
        pass
    both = [span for span in spans.ended() if span.name == "process q"]
    assert [span.attributes["messaging.lmqcluster.delivery"] for span in both] == [1, 2]
    assert [spans.parent_name(span) for span in both] == ["push q", "push q"]


def test_an_ack_without_a_block_continues_the_trace(client: Client, spans: Recorder) -> None:
    client.push("q", b"x")
    message = client.pull("q", 0)
    assert message is not None
    assert message.ack()
    assert spans.parent_name(spans.one("ack q")) == "push q"


def test_a_current_span_of_another_trace_is_linked(client: Client, spans: Recorder) -> None:
    client.push("q", b"x")
    with spans.tracer.start_as_current_span("loop"):
        message = client.pull("q", 0)
        assert message is not None
        with message:
            pass
    process = spans.one("process q")
    assert spans.parent_name(process) == "push q"
    assert linked(process) == [spans.one("loop").context.span_id]


def test_batches_have_links(client: Client, spans: Recorder) -> None:
    client.push_many("q", [b"1", b"2"])
    client.push("q", b"3")
    messages = client.pull_many("q", 10)
    client.done_many("q", [message.id for message in messages])
    many, one = (span for span in spans.ended() if span.name == "push q")
    pull, ack = spans.one("pull q"), spans.one("ack q")
    assert pull.parent is None
    assert linked(pull) == [many.context.span_id, one.context.span_id]
    counts = [span.attributes.get("messaging.batch.message_count") for span in (many, one, pull, ack)]
    assert counts == [2, None, 3, 3]


def test_an_empty_pull_makes_no_span_and_a_refused_call_an_error(client: Client, spans: Recorder) -> None:
    assert client.pull("q", 0) is None
    assert client.pull_many("q", 5) == []
    assert spans.names() == []
    with pytest.raises(LmqError):
        client.push("n" * 300, b"x")
    with pytest.raises(LmqError):
        client.pull("n" * 300, 0)
    push, pull = spans.ended()
    assert (push.status.status_code, push.attributes["error.type"]) == (StatusCode.ERROR, "bad_name")
    assert (pull.status.status_code, pull.attributes["error.type"]) == (StatusCode.ERROR, "bad_name")


def test_a_transaction_is_one_span_that_its_messages_carry(client: Client, plain: Client, spans: Recorder) -> None:
    client.push("q", b"x")
    message = client.pull("q", 0)
    assert message is not None
    with client.transaction() as transaction:
        transaction.push("next", b"y", attributes={"n": 1})
        transaction.done(message)
    commit = spans.one("commit next")
    assert commit.kind is SpanKind.PRODUCER
    assert spans.parent_name(commit) == "push q"
    assert shown(commit.attributes) == {
        "system": "lmqcluster", "operation.name": "commit", "operation.type": "send", "destination.name": "next",
        "batch.message_count": 1,
    }  # fmt: skip
    following = plain.pull("next", 0)
    assert following is not None
    assert following.attributes == {"n": 1, "traceparent": traceparent(commit)}


def test_a_transaction_in_a_block_is_part_of_it(client: Client, spans: Recorder) -> None:
    client.push("q", b"x")
    message = client.pull("q", 0)
    assert message is not None
    with message, client.transaction() as transaction:
        transaction.done(message)
    assert spans.parent_name(spans.one("commit")) == "process q"
    assert "ack q" not in spans.names()


def test_an_unsampled_trace_goes_on_unsampled(client: Client, plain: Client, spans: Recorder) -> None:
    unsampled = PARENT[:-1] + "0"
    plain.push("q", b"x", attributes={"traceparent": unsampled})
    message = client.pull("q", 0)
    assert message is not None
    with message:
        client.push("q", b"y")
    assert spans.names() == []
    assert traceparent_of(plain).startswith(PARENT[:36])


def test_a_malformed_trace_is_none(client: Client, plain: Client, spans: Recorder) -> None:
    for value in ("x", b"\xff", 7, "00-" + "0" * 32 + "-00f067aa0ba902b7-01"):
        plain.push("q", b"x", attributes={"traceparent": value})
    for message in client.messages("q", timeout=0):
        with message:
            pass
    assert {span.parent for span in spans.ended() if span.name == "process q"} == {None}


async def use(client: AsyncClient, spans: Recorder) -> None:
    async with client:
        await client.push("q", b"x")
        async for message in client.messages("q", timeout=0):
            async with message, client.transaction() as transaction:
                transaction.push("next", b"y")
        async with client.session() as session:
            held = await session.pull("next", 0)
            assert held is not None
            async with held:
                await held.nack()
        assert not trace.get_current_span().get_span_context().is_valid


def test_the_asyncio_client(cluster: MemoryCluster, spans: Recorder) -> None:
    import asyncio

    asyncio.run(use(cluster.async_client(tracing=spans.provider), spans))
    parents = {span.name: spans.parent_name(span) for span in spans.ended()}
    assert parents == {
        "push q": None, "pull q": "push q", "process q": "push q", "commit next": "process q", "ack q": "process q",
        "pull next": "commit next", "process next": "commit next", "nack next": "process next",
    }  # fmt: skip


@pytest.mark.parametrize("in_background", [False, True])
def test_a_recipe_continues_the_trace(client: Client, spans: Recorder, in_background: bool) -> None:
    import threading

    seen: list[str] = []
    done = threading.Event()

    def consume(item: str) -> None:
        seen.append(item)
        spans.tracer.start_span(f"work {len(seen)}").end()
        if len(seen) == 1:
            raise ValueError(item)
        done.set()

    options = QueueOptions(safe=True, put_in_background=in_background)
    with DistributedQueue(client, "q", TextSerializer(), consume, options) as queue:
        with spans.tracer.start_as_current_span("request"):
            assert queue.put("item")
        assert done.wait(60)
    assert seen == ["item", "item"]
    first, second = (span for span in spans.ended() if span.name == "process q")
    assert spans.parent_name(first) == "request"
    assert (first.status.status_code, second.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)
    assert spans.one("work 1").parent.span_id == first.context.span_id
    assert spans.one("work 2").parent.span_id == second.context.span_id
    assert spans.parent_name(spans.one("push q")) == "request"


def test_nothing_is_imported_without_tracing(cluster: MemoryCluster) -> None:
    program = (
        "import sys\n"
        "from lmqcluster.testing import MemoryCluster\n"
        "with MemoryCluster() as cluster:\n"
        "    client = cluster.client()\n"
        "    client.push('q', b'x')\n"
        "    with client.pull('q') as message: pass\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_without_the_library_the_reason_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("lmqcluster.client.tracing", "lmqcluster.client.aio.traced_calls"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ModuleNotFoundError, match="install lmqcluster with the extra otel"):
        AsyncClient(tracing=True)
