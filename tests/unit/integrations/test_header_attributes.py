"""Headers of Celery's messages and options of dramatiq's are attributes, without loss, in both directions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from dramatiq import Message
from kombu import Connection, Consumer, Exchange, Producer, Queue

import lmqcluster.integrations.kombu  # noqa: F401 - registers lmq://
from lmqcluster import Client, LmqError
from lmqcluster.client import PushOptions
from lmqcluster.integrations.dramatiq import LmqBroker
from lmqcluster.integrations.header_attributes import as_attributes, push_with_attributes
from lmqcluster.testing import MemoryCluster
from lmqcluster.wire.attributes import ATTRIBUTE_BYTES_MAX, ATTRIBUTES_MAX, pack_attributes
from lmqcluster.wire.trace_context import parse_traceparent

PATIENCE_S = 60.0
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture(scope="module")
def cluster() -> Iterator[MemoryCluster]:
    with MemoryCluster() as made:
        yield made


@pytest.fixture
def client(cluster: MemoryCluster) -> Client:
    return cluster.client()


# --- which headers are attributes -------------------------------------------------------------------------------------


def test_strings_numbers_and_bytes_are_attributes() -> None:
    scalars = {"text": "é", "empty": "", "whole": -5, "real": 0.5, "raw": b"\xff"}
    others = {"none": None, "flag": True, "list": [1], "map": {}, "large": 1 << 63, "infinite": float("inf"), "": "x"}
    odd: dict[Any, Any] = {"n" * 256: 1, "surrogate": "\ud800", "\ud800": 1, 7: 1}
    found = as_attributes({**scalars, **others, **odd})
    assert found == scalars
    pack_attributes(found, ATTRIBUTE_BYTES_MAX)


@pytest.mark.parametrize(
    "headers", [{f"h{number}": number for number in range(80)}, {"a": "x" * 9000, "b": "y" * 9000}]
)
def test_headers_beyond_the_room_are_left_out(headers: dict[str, Any]) -> None:
    found = as_attributes({**headers, "id": "i", "traceparent": PARENT}, ("id",))
    assert len(found) <= ATTRIBUTES_MAX
    assert list(found)[:2] == ["traceparent", "id"]
    assert found.items() <= {**headers, "id": "i", "traceparent": PARENT}.items()
    assert len(found) > 2
    pack_attributes(found, ATTRIBUTE_BYTES_MAX)


def test_values_that_fill_the_room_exactly_can_be_packed() -> None:
    headers = {f"{number:02}" + "n" * 100: "v" * 200 for number in range(60)}
    found = as_attributes(headers)
    assert 30 < len(found) < 60
    pack_attributes(found, ATTRIBUTE_BYTES_MAX)


def test_a_push_goes_without_attributes_if_the_nodes_take_none() -> None:
    tried: list[PushOptions] = []

    def push(options: PushOptions) -> None:
        tried.append(options.copy())
        if "attributes" in options:
            raise LmqError("too_large", "no")

    push_with_attributes(push, {"label": "l", "attributes": {"a": 1}})
    assert tried == [{"label": "l", "attributes": {"a": 1}}, {"label": "l"}]
    with pytest.raises(LmqError, match="no"):
        push_with_attributes(lambda _: push({"attributes": {"a": 1}}), {"label": "l"})


# --- Celery -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def connection(cluster: MemoryCluster, request: pytest.FixtureRequest) -> Iterator[Connection]:
    with Connection(f"lmq://{cluster.nodes}/{request.node.name.replace('[', '').replace(']', '')}") as made:
        yield made


def stored(connection: Connection) -> str:
    name: str = connection.transport.stored_name("tasks")
    return name


def tasks() -> Queue:
    return Queue("tasks", Exchange("tasks", "direct"), routing_key="tasks")


def taken(connection: Connection) -> Any:
    messages: list[Any] = []
    with Consumer(connection.channel(), [tasks()], on_message=messages.append) as consumer:
        consumer.consume()
        connection.drain_events(timeout=PATIENCE_S)
        messages[0].ack()
        return messages[0]


HEADERS = {
    "task": "t", "id": "i", "retries": 0, "eta": None, "timelimit": [None, 3], "ignore_result": False, "stamps": {},
    "traceparent": PARENT, "raw": b"\xff", "argsrepr": "(1,)",
}  # fmt: skip


def test_headers_of_a_task_are_attributes(connection: Connection, client: Client) -> None:
    Producer(connection.channel()).publish([], routing_key="tasks", headers=HEADERS, declare=[tasks()])
    message = client.pull(stored(connection), PATIENCE_S)
    assert message is not None
    scalars = {"task": "t", "id": "i", "retries": 0, "traceparent": PARENT, "raw": b"\xff", "argsrepr": "(1,)"}
    assert message.attributes == scalars
    assert message.nack(place="head")
    assert taken(connection).headers == HEADERS


def test_headers_that_cannot_be_attributes_are_not_lost(connection: Connection) -> None:
    headers = {**HEADERS, "large": "x" * 20_000, **{f"h{number}": number for number in range(100)}}
    Producer(connection.channel()).publish([], routing_key="tasks", headers=headers, declare=[tasks()])
    assert taken(connection).headers == headers


def test_attributes_of_another_producer_are_headers(connection: Connection, client: Client) -> None:
    Producer(connection.channel()).publish([1], routing_key="tasks", headers={"task": "t", "n": 1}, declare=[tasks()])
    message = client.pull(stored(connection), PATIENCE_S)
    assert message is not None
    with client.transaction() as transaction:
        transaction.done(message)
        transaction.push(
            stored(connection), message.content, attributes={**message.attributes, "n": 2, "more": b"\x00"}
        )
    again = taken(connection)
    assert again.payload == [1]
    assert again.headers == {"task": "t", "n": 2, "more": b"\x00"}


def test_a_body_with_the_name_of_a_task_is_a_task(connection: Connection, client: Client) -> None:
    attributes = {"task": "t", "traceparent": PARENT}
    kinds = ["application/json"]
    tasks()(connection.channel()).declare()
    body = json.dumps([[1], {}, {}]).encode()
    client.push_many(stored(connection), [body], content_types=kinds, options=[{"attributes": attributes}])
    message = taken(connection)
    assert message.payload == [[1], {}, {}]
    assert message.headers == {**attributes, "id": message.properties["correlation_id"]}


def test_a_message_that_cannot_be_read_keeps_its_attributes(connection: Connection, client: Client) -> None:
    tasks()(connection.channel()).declare()
    client.push(stored(connection), b"[1]", attributes={"n": 1})
    client.push(stored(connection), b"{", attributes={"task": "t"})
    channel = connection.channel()
    assert channel.basic_get("tasks") is None
    assert channel.basic_get("tasks") is None
    aside = [client.pull(f"{stored(connection)}.unreadable", PATIENCE_S) for _ in range(2)]
    assert sorted(str(one and one.attributes) for one in aside) == ["{'n': 1}", "{'task': 't'}"]


# --- dramatiq ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def broker(cluster: MemoryCluster, request: pytest.FixtureRequest) -> Iterator[LmqBroker]:
    made = LmqBroker(cluster.nodes, namespace=request.node.name, middleware=[])
    made.declare_queue("default")
    yield made
    made.close()


OPTIONS = {"traceparent": PARENT, "n": 1, "list": [1], "large": "x" * 20_000, "none": None}


def sent(broker: LmqBroker) -> Message[Any]:
    message: Message[Any] = Message("default", "act", (1,), {}, dict(OPTIONS))
    broker.enqueue(message)
    return message


def test_options_of_a_message_are_attributes(broker: LmqBroker, client: Client) -> None:
    message = sent(broker)
    pulled = client.pull(broker.stored_name("default"), PATIENCE_S)
    assert pulled is not None
    own = {"actor_name": "act", "message_id": message.message_id}
    assert pulled.attributes == {"traceparent": PARENT, "n": 1, **own}
    with client.transaction() as transaction:
        transaction.done(pulled)
        more = {**pulled.attributes, "n": 2, "more": "m"}
        transaction.push(broker.stored_name("default"), pulled.content, attributes=more)
    again = next(broker.consume("default", timeout=60_000))
    assert again is not None
    assert again.options == {**OPTIONS, "n": 2, "more": "m"}
    assert (again.actor_name, again.args) == ("act", (1,))


def test_a_broker_with_tracing_gives_messages_a_context(cluster: MemoryCluster) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="needs the extra otel")
    broker = LmqBroker(cluster.nodes, namespace="traced", middleware=[], tracing=sdk.TracerProvider())
    broker.declare_queue("default")
    broker.enqueue(Message("default", "act", (), {}, {}))
    message = next(broker.consume("default", timeout=60_000))
    assert message is not None
    assert parse_traceparent(message.options["traceparent"]) is not None
    broker.close()


def test_a_dead_letter_keeps_its_options_and_attributes(broker: LmqBroker, client: Client) -> None:
    sent(broker)
    consumer = broker.consume("default", timeout=60_000)
    message = next(consumer)
    assert message is not None
    consumer.nack(message)
    letter = client.pull(broker.stored_name("default.XQ"), PATIENCE_S)
    assert letter is not None
    assert letter.attributes["traceparent"] == PARENT
    assert Message.decode(letter.content).options == OPTIONS
