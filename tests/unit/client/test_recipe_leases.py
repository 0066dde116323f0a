"""The time for which a consumer of the recipes holds a message, and its redelivery afterwards."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from lmqcluster import Client
from lmqcluster.client.recipes import DistributedQueue, ErrorMode, QueueOptions, TextSerializer
from lmqcluster.client.transport import in_memory
from lmqcluster.client.transport.calls import Settlement
from lmqcluster.testing import MemoryCluster

PATIENCE_S = 120.0
OPTIONS = QueueOptions(safe=True, lease=3600, put_in_background=False)


def until(probe: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not probe():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


def hold_answers_back(client: Client) -> None:
    """Stop a client from reading its connection, once a pull waits there."""

    async def on_loop() -> bool:
        connection = client._client._session._connection
        pulls = connection is not None and any(call.waits for call in connection.pending.values())
        if pulls:
            connection._transport.pause_reading()
        return pulls

    until(lambda: client._run(on_loop), "a pull")


def cut(client: Client) -> None:
    """Close the connection of a client."""

    async def on_loop() -> None:
        client._client._session._connection.abort("cut")

    client._run(on_loop)


def test_a_lost_delivery_is_repeated_long_before_the_lease_expires() -> None:
    got: list[str] = []
    arrived = threading.Event()

    def take(item: str) -> None:
        got.append(item)
        arrived.set()

    with MemoryCluster() as cluster:
        client, other = cluster.client(), cluster.client()
        with (
            DistributedQueue(client, "q", TextSerializer(), take, OPTIONS),
            DistributedQueue(other, "q", TextSerializer(), options=OPTIONS) as producer,
        ):
            hold_answers_back(client)
            producer.put("lost")
            until(lambda: producer.message_count() == 0, "the node has delivered it")
            cut(client)
            assert arrived.wait(PATIENCE_S)
            producer.put("next")
            until(lambda: len(got) == 2, "the next one")
    assert got == ["lost", "next"]


def test_a_consumer_holds_its_messages_for_the_whole_lease() -> None:
    got: list[str] = []
    go, begun = threading.Event(), threading.Event()

    def take(item: str) -> None:
        got.append(item)
        begun.set()
        assert go.wait(PATIENCE_S)

    with MemoryCluster() as cluster:
        client, other = cluster.client(), cluster.client()
        with DistributedQueue(client, "q", TextSerializer(), take, OPTIONS) as queue:
            queue.put("long")
            assert begun.wait(PATIENCE_S)
            cluster.advance(3000)
            assert other.pull("q", 0) is None
            go.set()
        assert other.pull("q", 0) is None
    assert got == ["long"]


def test_messages_of_a_silent_consumer_are_handled_in_their_old_order() -> None:
    got: list[str] = []
    go, begun = threading.Event(), threading.Event()

    def hold(item: str) -> None:
        begun.set()
        assert go.wait(PATIENCE_S)

    options = QueueOptions(safe=True, lease=3600, prefetch=3)
    with MemoryCluster() as cluster:
        silent, other = cluster.client(), cluster.client()
        with DistributedQueue(other, "q", TextSerializer(), options=options) as producer:
            for number in range(5):
                producer.put(str(number))
        with DistributedQueue(silent, "q", TextSerializer(), hold, options) as queue:
            assert begun.wait(PATIENCE_S)
            with DistributedQueue(other, "q", TextSerializer(), got.append, options):
                until(lambda: len(got) == 2, "the messages without a lease")
            for number in range(5, 8):
                queue.put(str(number))
            queue.flush_puts()
            cluster.advance(3601)
            with DistributedQueue(other, "q", TextSerializer(), got.append, options):
                until(lambda: len(got) == 8, "the rest")
            go.set()
    assert got == ["3", "4", "0", "1", "2", "5", "6", "7"]


def test_a_consumer_that_outlives_its_queue_keeps_its_item_until_the_session_ends() -> None:
    go, begun = threading.Event(), threading.Event()

    def hold(item: str) -> None:
        begun.set()
        assert go.wait(PATIENCE_S)

    options = QueueOptions(safe=True, exclusive=True, lease=3600, final_flush=0)
    with MemoryCluster() as cluster:
        client, other = cluster.client(), cluster.client()
        with DistributedQueue(client, "q", TextSerializer(), hold, options) as queue:
            queue.put("long")
            assert begun.wait(PATIENCE_S)
        with other.session() as next_one:
            assert next_one.pull("q", 0) is None
            cluster.advance(3601)
        go.set()
        with other.session() as next_one:
            assert next_one.pull("q", PATIENCE_S) is not None


def test_a_group_whose_session_has_ended_is_not_delivered_further() -> None:
    got: list[str] = []
    go, begun = threading.Event(), threading.Event()

    def take(item: str) -> None:
        got.append(item)
        begun.set()
        assert go.wait(PATIENCE_S)

    with MemoryCluster() as cluster:
        client, other = cluster.client(), cluster.client()
        with DistributedQueue(client, "q", TextSerializer(), take, QueueOptions(safe=True, lease=1)) as queue:
            queue.put_multi(["0", "1"])
            assert begun.wait(PATIENCE_S)
            cluster.advance(2)
            message = other.pull("q", PATIENCE_S)
            session = queue._core._consumption._pulls._session
            until(lambda: session is None or session.lost, "the client knows")
            go.set()
            assert message is not None
            assert message.ack()
    assert got == ["0"]


def exclusive(client: Client, take: Callable[[str], None] | None, prefetch: int = 1) -> DistributedQueue[str]:
    options = QueueOptions(safe=True, exclusive=True, lease=3600, put_in_background=False, prefetch=prefetch)
    return DistributedQueue(client, "q", TextSerializer(), take, options)


@pytest.mark.parametrize("prefetch", [1, 7])
def test_one_exclusive_consumer_has_all_items_in_order_and_then_the_next(prefetch: int) -> None:
    got: list[tuple[int, str]] = []
    failed: list[str] = []

    def taker(number: int) -> Callable[[str], None]:
        def take(item: str) -> None:
            if item == "3" and not failed:
                failed.append(item)
                raise ValueError(item)
            got.append((number, item))

        return take

    with MemoryCluster() as cluster, exclusive(cluster.client(), None) as producer:
        first, second = (exclusive(cluster.client(), taker(number), prefetch) for number in (1, 2))
        first.start()
        second.start()
        for number in range(20):
            producer.put(str(number))
        until(lambda: len(got) == 20, "the first items")
        owner = got[0][0]
        (first if owner == 1 else second).close()
        for number in range(20, 40):
            producer.put(str(number))
        until(lambda: len(got) == 40, "the other items")
        (second if owner == 1 else first).close()
    assert failed == ["3"]
    assert got == [(owner if number < 20 else 3 - owner, str(number)) for number in range(40)]


def test_nothing_overtakes_an_item_whose_delivery_to_an_exclusive_consumer_was_lost() -> None:
    got: list[str] = []
    with MemoryCluster() as cluster:
        client = cluster.client()
        with exclusive(client, got.append), exclusive(cluster.client(), None) as producer:
            producer.put("first")
            until(lambda: got == ["first"], "its turn")
            hold_answers_back(client)
            producer.put("lost")
            until(lambda: producer.message_count() == 0, "the node has delivered it")
            producer.put("next")
            cut(client)
            until(lambda: len(got) == 3, "all items")
    assert got == ["first", "lost", "next"]


def test_prefetched_items_of_an_exclusive_consumer_wait_for_a_failed_one() -> None:
    got: list[str] = []
    go = threading.Event()

    def take(item: str) -> None:
        assert go.wait(PATIENCE_S)
        got.append(item)
        if got.count("1") == 1 and item == "1":
            raise ValueError(item)

    with MemoryCluster() as cluster, exclusive(cluster.client(), None) as producer:
        for number in range(5):
            producer.put(str(number))
        with exclusive(cluster.client(), take, prefetch=5):
            until(lambda: producer.message_count() == 0, "all are taken")
            go.set()
            until(lambda: len(got) == 6, "all items")
    assert got == ["0", "1", "1", "2", "3", "4"]


def settlements(client: Client) -> list[Settlement]:
    """Return the settlements that the client has to send."""
    return [call for call in tuple(client._client._session._backlog) if isinstance(call, Settlement)]


@pytest.mark.parametrize("prefetch", [1, 5])
def test_nothing_overtakes_an_item_whose_exclusive_consumer_cannot_acknowledge_it(prefetch: int) -> None:
    got: list[str] = []
    go, begun = threading.Event(), threading.Event()

    def take(item: str) -> None:
        got.append(item)
        begun.set()
        assert go.wait(PATIENCE_S)

    with MemoryCluster() as cluster, exclusive(cluster.client(), None) as producer:
        for number in range(3):
            producer.put(str(number))
        client = cluster.client(timeout_s=0.2)
        with exclusive(client, take, prefetch):
            assert begun.wait(PATIENCE_S)
            address = client.address
            assert address is not None
            accept = in_memory._clusters.pop(address)
            cut(client)
            go.set()
            until(lambda: settlements(client), "the ack")
            first = settlements(client)[0].deadline
            until(lambda: settlements(client)[0].deadline > first, "its time is over")
            assert got == ["0"]
            in_memory._clusters[address] = accept
            until(lambda: len(got) == 3, "all items")
        assert producer.message_count() == 0
    assert got == ["0", "1", "2"]


@pytest.mark.parametrize("is_exclusive", [True, False])
def test_a_refused_settlement_does_not_keep_the_item_at_the_consumer(
    is_exclusive: bool, caplog: pytest.LogCaptureFixture
) -> None:
    got: list[str] = []
    dead_letters: dict[str, Any] = {"max_attempts": 3, "error_mode": ErrorMode.DEAD_LETTER}
    options = QueueOptions(safe=True, exclusive=is_exclusive, lease=3600, prefetch=2, **dead_letters)
    with MemoryCluster() as cluster:
        client = cluster.client()
        client.update_props("q.dead", {"max_items": 1})
        client.push("q.dead", b"so it is full")
        client.push("q", b"unreadable")
        with DistributedQueue(cluster.client(), "q", TextSerializer(), got.append, options) as queue:
            queue.put("next")
            until(lambda: "was not settled" in caplog.text, "the refusal")
            if is_exclusive:
                assert got == []
            client.purge("q.dead")
            until(lambda: got == ["next"], "the other item")
            cluster.advance(3601)
            message = client.pull("q.dead", PATIENCE_S)
    assert message is not None
    assert message.content == b"unreadable"


def test_an_operators_retry_limit_is_not_changed() -> None:
    with MemoryCluster() as cluster:
        client, operator = cluster.client(), cluster.client()
        operator.update_props("q", {"retry": 1, "dead_letter_queue": "poison"})
        for _ in range(2):
            # A consumer that dies with its item.
            with DistributedQueue(client, "q", TextSerializer(), options=QueueOptions(safe=True)) as queue:
                if queue.message_count() == 0:
                    queue.put("poison")
                    queue.flush_puts()
                with client.session(600) as session:
                    assert session.pull("q", PATIENCE_S) is not None
                    client._run(session._session.abandon)
                    cluster.advance(601)
                until(lambda: operator.backlog(pattern="q|poison").messages == 1, "the end of the session")
        letter = operator.pull("poison", PATIENCE_S)
        assert letter is not None
        assert letter.delivery == 1
