"""A program sees the same behaviour on a real node and on `lmqcluster.testing.MemoryCluster`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import pytest

from lmqcluster import AsyncClient, Client, LmqError
from lmqcluster.testing import MemoryCluster

from .cluster import NodeProcess

WAIT_S = 60.0
LEASE_S = 1


class Place(Protocol):
    """A cluster that the tests run on."""

    nodes: str

    def pass_time(self, seconds: float) -> None:
        """Advance time in memory; on a real node it passes by itself, while the test waits for its effect."""


class _RealNode:
    def __init__(self, nodes: str) -> None:
        self.nodes = nodes

    def pass_time(self, seconds: float) -> None:
        """Do nothing: the test waits in its pull."""


class _InMemory:
    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster
        self.nodes = cluster.nodes

    def pass_time(self, seconds: float) -> None:
        self._cluster.advance(seconds)


@pytest.fixture(scope="module")
def in_memory() -> Iterator[Place]:
    with MemoryCluster() as cluster:
        yield _InMemory(cluster)


@pytest.fixture(scope="module")
def real(node: NodeProcess) -> Place:
    return _RealNode(node.rpc)


@pytest.fixture(params=["in_memory", "real"])
def place(request: pytest.FixtureRequest) -> Place:
    chosen: Place = request.getfixturevalue(request.param)
    return chosen


@pytest.fixture
def lmq(place: Place) -> Iterator[Client]:
    with Client(place.nodes) as client:
        yield client


def test_a_message_arrives_unchanged(lmq: Client, queue_name: str) -> None:
    assert lmq.push(queue_name, {"name": "Ada", "born": 1815}) == "ok"
    message = lmq.pull(queue_name, 0)
    assert message is not None
    assert (message.queue, message.type, message.retry) == (queue_name, "normal", 2)
    assert message.content == {b"name": b"Ada", b"born": 1815}
    assert message.value == {"name": "Ada", "born": 1815}
    assert message.content_type == "application/x-msgpack"
    assert message.ack() is True
    assert message.ack() is False
    assert message.nack() is False
    assert lmq.pull(queue_name, 0) is None


def test_order_and_batches(lmq: Client, queue_name: str) -> None:
    assert lmq.push_many(queue_name, list(range(100))) == ["ok"] * 100
    messages = lmq.pull_many(queue_name, 60)
    assert [message.content for message in messages] == list(range(60))
    assert lmq.done_many(queue_name, [message.id for message in messages]) == [True] * 60
    assert [message.content for message in lmq.pull_many(queue_name, 60)] == list(range(60, 100))


def test_a_nacked_message_has_one_delivery_less(lmq: Client, queue_name: str) -> None:
    lmq.push(queue_name, "x")
    retries = []
    while (message := lmq.pull(queue_name, 0)) is not None:
        retries.append(message.retry)
        assert lmq.release(queue_name, message.id) is True
    assert retries == [2, 1, 0]
    assert lmq.backlog(queue=queue_name).messages == 0


def test_a_message_that_is_put_back_keeps_its_deliveries(lmq: Client, queue_name: str) -> None:
    lmq.push_many(queue_name, ["first", "second"])
    message = lmq.pull(queue_name, 0)
    assert message is not None
    assert message.put_back() is True
    again = lmq.pull(queue_name, 0)
    assert again is not None
    assert (again.text, again.retry) == ("first", 2)


def test_a_lease_ends_and_the_message_is_delivered_again(place: Place, lmq: Client, queue_name: str) -> None:
    lmq.update_props(queue_name, {"timeout": LEASE_S})
    lmq.push(queue_name, "x")
    first = lmq.pull(queue_name, 0)
    place.pass_time(LEASE_S)
    second = lmq.pull(queue_name, WAIT_S)
    assert first is not None
    assert second is not None
    assert (first.text, second.text, first.retry - second.retry) == ("x", "x", 1)
    assert first.ack() is False
    assert second.id != first.id


def test_an_extended_lease_ends_later(place: Place, lmq: Client, queue_name: str) -> None:
    lmq.update_props(queue_name, {"timeout": 3600})
    lmq.push(queue_name, "x")
    message = lmq.pull(queue_name, 0)
    assert message is not None
    place.pass_time(3000)
    assert message.extend() is True
    place.pass_time(3000)
    assert lmq.retain(queue_name, message.id) is True
    assert lmq.pull(queue_name, 0) is None


def test_a_waiting_pull_gets_what_another_client_pushes(place: Place, lmq: Client, queue_name: str) -> None:
    asked = threading.Event()

    def pull() -> object:
        with Client(place.nodes) as other:
            asked.set()
            message = other.pull(queue_name, WAIT_S)
            return None if message is None else message.text

    with ThreadPoolExecutor() as pool:
        pulled = pool.submit(pull)
        asked.wait()
        lmq.push(queue_name, "for you")
        assert pulled.result() == "for you"


def test_accumulated_messages_are_delivered_as_one(place: Place, lmq: Client, queue_name: str) -> None:
    lmq.update_props(queue_name, {"accum": 1.0})
    assert [lmq.push(queue_name, content) for content in ("a", "b")] == ["packing started", "packed"]
    place.pass_time(1)
    message = lmq.pull(queue_name, WAIT_S)
    assert message is not None
    assert (message.type, message.content) == ("package", [b"a", b"b"])


def test_patterns(lmq: Client, new_queue_name: Callable[[], str]) -> None:
    first, second = new_queue_name(), new_queue_name()
    for name in (first, second):
        lmq.update_props(name, {"retry": 1})
    pattern = f"^({first}|{second})$"
    assert lmq.push_all(pattern, "copy") == "ok"
    messages = [lmq.pull_any(pattern, WAIT_S) for _ in range(2)]
    assert {message.queue for message in messages if message is not None} == {first, second}
    assert lmq.pull_any(pattern, 0) is None


def test_default_rules(lmq: Client, queue_name: str) -> None:
    try:
        lmq.set_default_props([(f"^{queue_name}$", {"retry": 7})])
        assert lmq.get_default_props() == [(f"^{queue_name}$", {"retry": 7})]
        lmq.push(queue_name, "x")
        message = lmq.pull(queue_name, 0)
        assert message is not None
        assert message.retry == 7
    finally:
        lmq.set_default_props([])


def test_a_key_stores_once(lmq: Client, queue_name: str) -> None:
    assert [lmq.push(queue_name, "order", key="4711") for _ in range(2)] == ["ok", "ok"]
    assert lmq.push_many(queue_name, ["order", "another"], keys=["4711", "4712"]) == ["ok", "ok"]
    assert [message.text for message in lmq.pull_many(queue_name, 10)] == ["order", "another"]


def test_marked_pushes(lmq: Client, queue_name: str) -> None:
    rows = ["row 0", "row 1", "row 2"]
    assert lmq.push_marked(queue_name, rows, job=queue_name, stream="file", first=0) == 3
    assert lmq.push_marked(queue_name, rows, job=queue_name, stream="file", first=0) is None
    mark = lmq.mark(queue_name, "file")
    assert mark is not None
    assert mark.position == 3
    assert lmq.end_jobs([queue_name]) == 1


def test_batch_leases(lmq: Client, queue_name: str) -> None:
    lmq.push_many(queue_name, ["a", "b", "c"])
    batch = lmq.reserve_batch(queue_name, epoch=1, queue=queue_name, count=2)
    assert (batch.state, batch.count) == ("live", 2)
    assert [message.body for message in lmq.read_batch(queue_name, 1, 0, 2)] == [b"\xa1a", b"\xa1b"]
    assert lmq.settle_batches(queue_name, 1) == []
    assert lmq.delete_subscription(queue_name) == "ok"
    assert lmq.backlog(queue=queue_name).messages == 1


def test_whole_queues(lmq: Client, new_queue_name: Callable[[], str]) -> None:
    source, target = new_queue_name(), new_queue_name()
    lmq.push_many(source, ["a", "b", "c"])
    assert lmq.move(source, target, 2) == 2
    assert lmq.suspend(target) == "ok"
    assert lmq.pull(target, 0) is None
    assert lmq.resume(target) == "ok"
    assert [message.body for message in lmq.peek(target, 10)] == [b"\xa1a", b"\xa1b"]
    assert lmq.purge(target) == 2
    assert lmq.delete(source) == "ok"
    with pytest.raises(LmqError, match="queue_not_found"):
        lmq.purge(source)


def test_errors(lmq: Client, queue_name: str) -> None:
    refused = []
    for call in (
        lambda: lmq.push("x" * 300, "y"),
        lambda: lmq.update_props(queue_name, {"retry": -1}),
        lambda: lmq.pull_any("(", 0),
        lambda: lmq.purge(queue_name),
    ):
        with pytest.raises(LmqError) as caught:
            call()
        refused.append((caught.value.code, str(caught.value.outcome), caught.value.retryable))
    assert [code for code, *_ in refused] == ["bad_name", "bad_property", "bad_pattern", "queue_not_found"]
    assert {tuple(rest) for _code, *rest in refused} == {("not_applied", False)}


def test_a_cancelled_pull_takes_nothing(place: Place, queue_name: str) -> None:
    async def main() -> list[str]:
        async with AsyncClient(place.nodes) as lmq:
            waiting = asyncio.ensure_future(lmq.pull(queue_name))
            await lmq.ping()
            waiting.cancel()
            await asyncio.wait([waiting])
            await asyncio.gather(*(lmq.push(queue_name, f"letter {n}") for n in range(3)))
            return [message.text async for message in lmq.messages(queue_name, timeout=0)]

    assert asyncio.run(main()) == ["letter 0", "letter 1", "letter 2"]


def test_the_cluster_as_the_node_shows_it(lmq: Client) -> None:
    assert lmq.ping() == "pong"
    cluster = lmq.cluster()
    assert cluster["self"] == cluster["leader"]
    assert len(cluster["rpc"]) == 1
