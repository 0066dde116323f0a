"""The recipes for queues in both flavours, on three nodes: order, safety, bounds, life cycle, local queues."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lmqcluster.client.recipes import (
    ConnectionState,
    CorruptItemError,
    ErrorMode,
    PutError,
    QueueStateError,
    pack_items,
    unpack_items,
)

from .cluster import Cluster
from .recipe_faces import Collector, Face, Wrapped, open_face, within


@pytest.fixture(params=["threads", "aio"])
def face(request: pytest.FixtureRequest, shared_cluster: Cluster) -> Iterator[Face]:
    with open_face(request.param, shared_cluster.rpc_addresses) as made:
        yield made


class Listener:
    def __init__(self) -> None:
        self.single: list[Any] = []
        self.multi: list[Any] = []
        self.failures: list[Any] = []

    def put_completed(self, item: Any) -> None:
        self.single.append(item)

    def put_multi_completed(self, items: Any) -> None:
        self.multi.append(items)

    def put_failed(self, item: Any, error: Exception) -> None:
        self.failures.append((item, error))


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def put_all(queue: Wrapped, items: list[str]) -> None:
    for item in items:
        assert queue.put(item) is True


def test_ten_items_are_delivered_in_order_and_reported_to_listeners(face: Face, queue_name: str) -> None:
    got, heard = Collector(), Listener()
    with face.queue(queue_name, got) as queue:
        queue.add_put_listener(heard)
        put_all(queue, numbers(10))
        assert got.wait(10) == numbers(10)
        assert queue.flush_puts(60) is True
        within(lambda: heard.single == numbers(10), "the calls of the listener")
        queue.remove_put_listener(heard)
        queue.put("10")
        queue.flush_puts(60)
        assert len(heard.single) == 10


def test_two_producers_one_getter(face: Face, queue_name: str) -> None:
    got = Collector()
    with face.other() as second, face.queue(queue_name, got) as one, second.queue(queue_name) as two:
        for number in range(50):
            one.put(f"a{number}")
            two.put(f"b{number}")
        got.wait(100)
        within(lambda: one.message_count() == 0, "an empty queue")
    assert Counter(got.items) == Counter(f"{who}{number}" for who in "ab" for number in range(50))
    for who in "ab":
        assert [item for item in got.items if item[0] == who] == [f"{who}{number}" for number in range(50)]


def test_a_multi_item_put_is_one_message_in_order(face: Face, queue_name: str) -> None:
    got, heard = Collector(), Listener()
    with face.queue(queue_name) as producer:
        producer.add_put_listener(heard)
        producer.put_multi(iter(numbers(100)))
        assert producer.flush_puts(60)
        assert producer.message_count() == producer.last_message_count == 1
        within(lambda: heard.multi == [numbers(100)], "the calls of the listener")
    with face.queue(queue_name, got, safe=True):
        assert got.wait(100) == numbers(100)


@pytest.mark.parametrize("mode", [ErrorMode.REQUEUE, ErrorMode.DELETE])
def test_an_item_whose_consumer_raises(face: Face, queue_name: str, mode: ErrorMode) -> None:
    attempts: Counter[str] = Counter()

    def fails_once(item: str) -> bool:
        attempts[item] += 1
        return item == "bad" and attempts[item] == 1

    got = Collector(fails_once)
    with face.queue(queue_name, got, safe=True) as queue:
        queue.set_error_mode(mode)
        assert queue.error_mode is mode
        put_all(queue, ["bad", "good", "better"])
        got.wait(3 if mode is ErrorMode.REQUEUE else 2)
    assert got.failed == ["bad"]
    assert sorted(got.items) == (["bad", "better", "good"] if mode is ErrorMode.REQUEUE else ["better", "good"])


def test_only_unhandled_items_of_a_group_are_redelivered(face: Face, queue_name: str) -> None:
    seen: list[str] = []

    def fails_once(item: str) -> bool:
        seen.append(item)
        return seen.count("2") == 1 and item == "2"

    got = Collector(fails_once)
    with face.queue(queue_name, got, safe=True) as queue:
        queue.put_multi(numbers(4))
        assert got.wait(4) == numbers(4)
    assert seen == ["0", "1", "2", "2", "3"]


def test_an_item_is_dead_lettered_after_its_last_attempt(face: Face, queue_name: str) -> None:
    got = Collector(lambda item: item == "bad")
    options = {"safe": True, "error_mode": ErrorMode.DEAD_LETTER, "max_attempts": 3}
    with face.queue(queue_name, got, **options) as queue:
        put_all(queue, ["bad", "good"])
        letter = face.run(face.client.pull, f"{queue_name}.dead", 120)
        face.run(face.client.push, queue_name, b"not in the format")
        unreadable = face.run(face.client.pull, f"{queue_name}.dead", 120)
        with pytest.raises(ValueError, match="DEAD_LETTER"):
            queue.set_error_mode(ErrorMode.DELETE)
    assert unpack_items(letter.content) == [b"bad"]
    assert unreadable.content == b"not in the format"
    assert (got.failed, got.items) == (["bad"] * 3, ["good"])


def test_a_failing_consumer_and_a_healthy_one(face: Face, queue_name: str) -> None:
    ailing = Collector(lambda item: len(ailing.items) >= 10)
    healthy = Collector()
    healthy.go.clear()
    one, two = (face.queue(queue_name, taker, safe=True) for taker in (ailing, healthy))
    with one, two:
        put_all(one, numbers(100))
        within(lambda: ailing.failed, "a failure")
        healthy.go.set()
        within(lambda: len(ailing.items) + len(healthy.items) >= 100, "all items")
    assert len(ailing.items) == 10
    assert Counter(ailing.items + healthy.items) == Counter(numbers(100))
    assert set(ailing.failed) <= set(healthy.items)


def test_four_safe_consumers_handle_no_item_twice(face: Face, queue_name: str) -> None:
    takers = [Collector() for _ in range(4)]
    queues = [face.queue(queue_name, taker, safe=True) for taker in takers]
    with queues[0], queues[1], queues[2], queues[3]:
        put_all(queues[0], numbers(400))
        within(lambda: sum(len(taker.items) for taker in takers) >= 400, "all items")
    assert Counter(item for taker in takers for item in taker.items) == Counter(numbers(400))


def test_many_threads(face: Face, queue_name: str) -> None:
    got = Collector()
    with ThreadPoolExecutor(8) as executor:
        options = {"executor": executor} if face.loop is None else {"concurrency": 8}
        with face.queue(queue_name, got, safe=True, **options) as queue:
            got.go.clear()
            put_all(queue, numbers(400))
            within(lambda: got._at_once == 8, "eight calls at once")
            got.go.set()
            got.wait(400)
    assert Counter(got.items) == Counter(numbers(400))
    assert got.most_at_once == 8


def test_flush_waits_for_delayed_puts(face: Face, queue_name: str) -> None:
    heard = Listener()
    with face.queue(queue_name, max_items=1, put_in_background=True, final_flush=0) as queue:
        queue.add_put_listener(heard)
        assert queue.put("first")
        within(lambda: heard.single, "the first")
        assert queue.put("second", timeout=60)
        assert queue.flush_puts(0.1) is False
        assert face.run(face.client.pull, queue_name, 60).text
        assert queue.flush_puts(120) is True
        # Listeners are called when an item is stored; a flush does not wait for them.
        within(lambda: heard.single == ["first", "second"], "the second")
        assert queue.put("third")  # delayed; without a final flush no call waits for it
        started = time.monotonic()
    assert time.monotonic() - started < 60


def test_close_flushes(face: Face, queue_name: str) -> None:
    with face.queue(queue_name) as queue:
        put_all(queue, numbers(500))
    with face.queue(queue_name) as queue:
        assert queue.message_count() == 500


def test_a_bounded_put_waits_until_its_deadline(face: Face, queue_name: str) -> None:
    got = Collector()
    got.go.clear()
    with face.queue(queue_name, got, max_items=1) as queue:
        assert queue.put("1", timeout=60) is True
        within(got.in_hand.is_set, "the first in hand")
        assert queue.put("2", timeout=60) is True
        assert queue.put("3", timeout=0) is False
        assert queue.put("3", timeout=0.2) is False
        got.go.set()
        assert queue.put("4", timeout=120) is True
        assert got.wait(3) == ["1", "2", "4"]


class Stored:
    """Counts the stored puts."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def put_completed(self, item: Any) -> None:
        with self._lock:
            self.count += 1

    def wait(self, count: int) -> None:
        within(lambda: self.count >= count, f"{count} stored")


PUTS = 100
"""Items that each of four producers puts."""


def test_a_bound_is_exact(face: Face, queue_name: str) -> None:
    steps, stored = threading.Semaphore(0), Stored()
    handled: list[str] = []

    def take(item: str) -> None:
        assert steps.acquire(timeout=120)
        handled.append(item)

    queues = [face.queue(queue_name, max_items=10) for _ in range(4)]
    consumer = face.queue(queue_name, take, safe=True, max_items=10)
    with consumer, queues[0], queues[1], queues[2], queues[3], ThreadPoolExecutor(4) as producers:
        for queue in queues:
            queue.add_put_listener(stored)
        puts = [producers.submit(put_all, queue, numbers(PUTS)) for queue in queues]
        # One is in flight, ten wait, and each handled item makes room for exactly one.
        for expected in range(11, 111):
            stored.wait(expected)
            assert (stored.count, consumer.message_count()) == (expected, 10)
            steps.release()
        steps.release(4 * PUTS)
        most = 0
        while not all(put.done() for put in puts):
            most = max(most, consumer.message_count())
        for put in puts:
            put.result()
        within(lambda: len(handled) >= 4 * PUTS, "all items")
    assert 1 <= most <= 10
    assert Counter(handled) == Counter(numbers(PUTS) * 4)


def test_life(face: Face, queue_name: str) -> None:
    queue = face.queue(queue_name)
    with pytest.raises(QueueStateError, match="not started"):
        queue.put("x")
    queue.start()
    with pytest.raises(QueueStateError, match="before"):
        queue.start()
    queue.close()
    queue.close()
    with pytest.raises(QueueStateError, match="closed"):
        queue.put("x")
    with pytest.raises(QueueStateError):
        queue.flush_puts(1)
    with pytest.raises(ValueError, match="safe"):
        queue.set_error_mode(ErrorMode.DELETE)


def test_a_producer_never_pulls(face: Face, queue_name: str) -> None:
    with face.queue(queue_name) as queue:
        put_all(queue, numbers(3))
        queue.flush_puts(60)
        messages = face.run(face.client.pull_many, queue_name, 10, 60)
    assert [message.delivery or message.retry - messages[0].retry + 1 for message in messages] == [1, 1, 1]
    assert [unpack_items(message.content) for message in messages] == [[b"0"], [b"1"], [b"2"]]


def test_a_put_that_fails(face: Face, queue_name: str) -> None:
    heard = Listener()
    with face.queue(queue_name) as queue:
        queue.add_put_listener(heard)
        face.run(face.client.update_props, queue_name, {"max_item_size": 100})
        put_all(queue, ["small", "x" * 1000, "little"])
        with pytest.raises(PutError) as raised:
            within(lambda: queue.flush_puts(60), "the failure")
        assert raised.value.item == "x" * 1000
        assert queue.flush_puts(60) is True
        within(lambda: heard.single == ["small", "little"], "the calls of the listener")
        assert [item for item, _ in heard.failures] == ["x" * 1000]
    with face.queue(queue_name, put_in_background=False) as queue, pytest.raises(PutError):
        queue.put("x" * 1000)


def test_an_unreadable_item_does_not_stop_the_loop(face: Face, queue_name: str) -> None:
    got = Collector()
    whole = pack_items([b"lost"])
    corrupt = [b"", b"\0", whole[:-1], whole[:7], b"\xff" + whole, pack_items([b"\xff"]), {"a": 1}, 7]
    with face.queue(queue_name, got, safe=True) as queue:
        for content in corrupt:
            face.run(face.client.push, queue_name, content)
        queue.put("whole")
        assert got.wait(1) == ["whole"]
        within(lambda: queue.message_count() == 0, "an empty queue")


def test_the_format() -> None:
    example = bytes.fromhex("00010001 01 00000002 6869 01 00000000 02")
    assert pack_items([b"hi", b""]) == example
    assert unpack_items(example + b"more") == [b"hi", b""]
    assert unpack_items(pack_items([])) == []
    assert len(pack_items([])) == 5
    chance = random.Random(5)
    for _ in range(200):
        items = [chance.randbytes(chance.randrange(40)) for _ in range(chance.randrange(5))]
        packed = pack_items(items)
        assert unpack_items(packed) == items
        with pytest.raises(CorruptItemError):
            unpack_items(packed[: chance.randrange(len(packed))])
    with pytest.raises(CorruptItemError):
        unpack_items(bytes.fromhex("00010001 01 ffffffff 02"))


def local_consumer(face: Face, **options: Any) -> Wrapped:
    return Wrapped(face, face.run(lambda: face.module.BlockingQueueConsumer(**options)))


def test_a_local_queue(face: Face, queue_name: str) -> None:
    states: list[ConnectionState] = []
    local = local_consumer(face, on_state_change=states.append, capacity=2)
    assert local.take(0.05) is None
    with face.make("DistributedQueue", queue_name, local.wrapped) as queue:
        put_all(queue, numbers(10))
        queue.flush_puts(60)
        within(lambda: len(local) == 2, "a full local queue")
        assert local.items() == ["0", "1"]
        # One item waits with the consumer; the others are still in the cluster.
        within(lambda: queue.message_count() == 7, "seven waiting")
        assert local.take() == "0"
        assert local.take(60) == "1"
        drained: list[str] = []
        within(lambda: drained.extend(local.drain(3)) or len(drained) == 8, "the rest")
        assert drained == numbers(10)[2:]
    assert states == [ConnectionState.CONNECTED]


def test_closing_returns_items_not_begun(face: Face, queue_name: str) -> None:
    got = Collector()
    got.go.clear()
    queue = face.queue(queue_name, got, safe=True, prefetch=10, final_flush=0.1)
    queue.start()
    put_all(queue, numbers(10))
    queue.flush_puts(60)
    within(got.in_hand.is_set, "one in hand")
    queue.close()
    with face.queue(queue_name) as rest:
        # A coroutine is cancelled and its item returned; a thread cannot be cancelled, so its item stays leased.
        left = numbers(10)[1:] if face.loop is None else numbers(10)
        within(lambda: rest.message_count() == len(left), "the returned items")
        messages = face.run(face.client.pull_many, queue_name, 10, 60)
    got.go.set()
    assert [unpack_items(message.content)[0].decode() for message in messages] == left


def test_an_exit_in_the_consumer_is_not_an_error(shared_cluster: Cluster, queue_name: str) -> None:
    def leave(item: str) -> None:
        raise SystemExit(3)

    with open_face("threads", shared_cluster.rpc_addresses) as face:
        queue = face.queue(queue_name, leave, safe=True)
        queue.start()
        queue.put("x")
        queue.flush_puts(60)
        within(lambda: queue.wrapped._core._consumption._stop, "the exit")
        with pytest.raises(SystemExit):
            queue.close()
        assert unpack_items(face.client.pull(queue_name, 60).content) == [b"x"]


def test_the_builder(face: Face, queue_name: str) -> None:
    got = Collector()
    serializer = face.module.JsonSerializer()
    builder = face.module.QueueBuilder(face.client, face.consumer(got), serializer, queue_name)
    built = builder.lock_path("/locks").max_items(5).put_in_background(False).final_flush_time(1).lease(60)
    with Wrapped(face, built.build_queue()) as queue:
        queue.put({"n": 1})
        assert got.wait(1) == [{"n": 1}]
        queue.set_error_mode(ErrorMode.DELETE)
    for made in (built.build_id_queue(), built.build_priority_queue(3), built.build_delay_queue()):
        assert made.name == queue_name


def test_a_lease_is_renewed_while_the_consumer_runs(face: Face, queue_name: str) -> None:
    got = Collector()
    got.go.clear()
    other = Collector()
    with face.queue(queue_name, got, safe=True, lease=3) as queue, face.queue(queue_name, other, safe=True, lease=3):
        queue.put("long")
        within(lambda: got.in_hand.is_set() or other.in_hand.is_set(), "the item in hand")
        threading.Event().wait(7)
        got.go.set()
        within(lambda: got.items or other.items, "the item handled")
    assert got.items + other.items == ["long"]
