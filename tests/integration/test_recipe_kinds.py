"""Queues with ids, priorities and times, simple queues and shards, in both flavours, on three nodes."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lmqcluster.client.recipes import QueueEmpty, QueueStateError

from .cluster import Cluster
from .recipe_faces import Collector, Face, Wrapped, open_face, within


@pytest.fixture(params=["threads", "aio"])
def face(request: pytest.FixtureRequest, shared_cluster: Cluster) -> Iterator[Face]:
    with open_face(request.param, shared_cluster.rpc_addresses) as made:
        yield made


# --- ids ----------------------------------------------------------------------------------------------------------


def test_ids_do_not_change_the_order(face: Face, queue_name: str) -> None:
    got = Collector()
    ids = [str(random.random()) for _ in range(100)]
    with face.make("DistributedIdQueue", queue_name) as queue:
        for item_id in ids:
            queue.put(item_id, item_id)
    with face.make("DistributedIdQueue", queue_name, got, safe=True):
        assert got.wait(100) == ids


def test_items_are_removed_by_their_id(face: Face, queue_name: str) -> None:
    got, strange = Collector(), "a/b|c \N{SNOWMAN}"
    got.go.clear()
    with face.make("DistributedIdQueue", queue_name, got, safe=True, put_in_background=False) as queue:
        queue.put("in hand", "held")
        within(got.in_hand.is_set, "one in hand")
        for item, item_id in (("1", "twice"), ("2", strange), ("3", "twice"), ("4", "kept")):
            queue.put(item, item_id)
        assert (queue.contains("held"), queue.remove("held")) == (False, 0)
        assert (queue.contains("twice"), queue.remove("twice"), queue.contains("twice")) == (True, 2, False)
        assert (queue.remove(strange), queue.remove(strange)) == (1, 0)
        with pytest.raises(ValueError, match="empty"):
            queue.put("x", "")
        got.go.set()
        assert got.wait(2) == ["in hand", "4"]


def test_a_requeued_item_keeps_its_id(face: Face, queue_name: str) -> None:
    got = Collector(lambda item: True)
    with face.make("DistributedIdQueue", queue_name, got, safe=True, retry_delay=600) as queue:
        queue.put("x", "its id")
        within(lambda: got.failed, "a failure")
        within(lambda: queue.contains("its id"), "the item is back")
        assert queue.remove("its id") == 1
    assert got.failed == ["x"]


# --- priorities ---------------------------------------------------------------------------------------------------


def test_lower_priorities_are_first_and_equal_ones_in_order(face: Face, queue_name: str) -> None:
    chance = random.Random(3)
    priorities = [-(2**31), 2**31 - 1, 0, -1, 1] + [chance.randrange(-(2**31), 2**31) for _ in range(95)]
    chance.shuffle(priorities)
    got = Collector()
    with face.make("DistributedPriorityQueue", queue_name) as queue:
        for number, priority in enumerate(priorities):
            queue.put(f"{priority}/{number}", priority)
        queue.put_multi(["same 1", "same 2"], 2**31 - 1)
    expected = [f"{priority}/{number}" for number, priority in enumerate(priorities)]
    expected.sort(key=lambda item: int(item.split("/")[0]))
    with face.make("DistributedPriorityQueue", queue_name, got, safe=True):
        assert got.wait(102) == [*expected, "same 1", "same 2"]


def test_an_urgent_item_is_next_after_the_current_one(face: Face, queue_name: str) -> None:
    attempts: Counter[str] = Counter()

    def fails_once(item: str) -> bool:
        attempts[item] += 1
        return item == "urgent" and attempts[item] == 1

    got = Collector(fails_once)
    got.go.clear()
    with face.make("DistributedPriorityQueue", queue_name, got, safe=True, put_in_background=False) as queue:
        for number in range(11):
            queue.put(str(number), 7)
        within(got.in_hand.is_set, "one in hand")
        queue.put("urgent", -7)
        got.go.set()
        # It fails once, and keeps its priority.
        assert got.wait(12) == ["0", "urgent", *map(str, range(1, 11))]


def test_only_prefetched_items_precede_an_urgent_one(face: Face, queue_name: str) -> None:
    got = Collector()
    got.go.clear()
    with face.make("DistributedPriorityQueue", queue_name) as producer:
        for number in range(6):
            producer.put(str(number), 7)
        producer.flush_puts(120)
        builder = face.module.QueueBuilder(face.client, face.consumer(got), face.module.TextSerializer(), queue_name)
        with Wrapped(face, builder.lock_path("/locks").build_priority_queue(3)):
            within(got.in_hand.is_set, "one in hand")
            producer.put("urgent", -7)
            producer.flush_puts(120)
            got.go.set()
            assert got.wait(7) == ["0", "1", "2", "urgent", "3", "4", "5"]


# --- times --------------------------------------------------------------------------------------------------------


def test_items_are_delivered_when_they_are_due(face: Face, queue_name: str) -> None:
    got = Collector()
    arrived: dict[str, float] = {}
    put_at = time.monotonic()

    def take(item: str) -> None:
        arrived[item] = time.monotonic()
        got(item)

    with face.make("DistributedDelayQueue", queue_name, take) as queue:
        queue.put("far", datetime.now(UTC) + timedelta(days=24))
        queue.put("soon", delay=timedelta(seconds=1))
        queue.put("past", time.time() - 5)
        assert got.wait(2) == ["past", "soon"]
        assert arrived["soon"] - put_at >= 1
        assert queue.message_count() == 1
        for wrong in ({}, {"due": 1.0, "delay": 1}, {"due": datetime(2030, 1, 1)}, {"due": 0}, {"delay": -1}):  # noqa: DTZ001
            with pytest.raises(ValueError, match=r"due|delay|zone"):
                queue.put("x", **wrong)


def test_three_hundred_items_a_millisecond_apart_are_delivered_in_order(face: Face, queue_name: str) -> None:
    got = Collector()
    order = list(range(300))
    random.Random(7).shuffle(order)
    with face.make("DistributedDelayQueue", queue_name) as queue:
        for ahead_s in (4, 16, 64):
            start = time.time() + ahead_s
            for number in order:
                queue.put(str(number), start + number / 1000)
            queue.put_multi(["300", "301"], start + 0.3)
            assert queue.flush_puts(120)
            if time.time() < start:
                break
            face.run(face.client.purge, queue_name)  # The machine was too slow: some were due when they were put.
        within(lambda: time.time() > start + 1, "all are due")
    with face.make("DistributedDelayQueue", queue_name, got, safe=True, prefetch=100):
        came = [int(item) for item in got.wait(302)]
    assert came == list(range(302))


def test_a_failed_item_waits_for_the_retry_delay(face: Face, queue_name: str) -> None:
    times: list[float] = []
    got = Collector(lambda item: times.append(time.monotonic()) or len(times) == 1)
    with face.make("DistributedDelayQueue", queue_name, got, safe=True, retry_delay=1) as queue:
        queue.put("x", delay=0)
        assert got.wait(1) == ["x"]
    assert times[1] - times[0] >= 1


# --- the simple queue ---------------------------------------------------------------------------------------------


def simple(face: Face, name: str) -> Wrapped:
    return Wrapped(face, face.module.SimpleDistributedQueue(face.client, name))


def test_an_empty_simple_queue(face: Face, queue_name: str) -> None:
    queue = simple(face, queue_name)
    assert (queue.peek(), queue.poll()) == (None, None)
    for call in (queue.element, queue.remove):
        with pytest.raises(QueueEmpty):
            call()
    started = time.monotonic()
    assert queue.poll(3) is None
    assert time.monotonic() - started >= 3


def test_a_filled_simple_queue(face: Face, queue_name: str) -> None:
    queue = simple(face, queue_name)
    for data in (b"1", b"\xff2", b"3", b"4"):
        assert queue.offer(data) is True
    assert (queue.peek(), queue.element(), queue.peek()) == (b"1", b"1", b"1")
    assert (queue.poll(), queue.remove(), queue.take(), queue.poll(60)) == (b"1", b"\xff2", b"3", b"4")
    assert queue.poll() is None


def test_a_take_is_woken_by_an_offer_and_each_element_goes_to_one(face: Face, queue_name: str) -> None:
    queue = simple(face, queue_name)
    with ThreadPoolExecutor(10) as threads:
        takes = [threads.submit(queue.take) for _ in range(10)]
        assert not any(take.done() for take in takes)
        for number in range(10):
            queue.offer(str(number).encode())
        assert sorted(take.result(120) for take in takes) == [str(number).encode() for number in range(10)]
    assert queue.poll() is None


# --- shards -------------------------------------------------------------------------------------------------------


def sharder(face: Face, name: str, consumer: Any = None, **policies: Any) -> Wrapped:
    made = face.module

    def allocate(client: Any, shard: str) -> Any:
        return made.DistributedQueue(client, shard, made.TextSerializer(), consumer and face.consumer(consumer))

    used = made.QueueSharderPolicies(**{"new_queue_threshold": 100, "threshold_check": 0.05, **policies})
    return Wrapped(face, made.QueueSharder(face.client, allocate, name, f"{name} leader", used))


def put_into(face: Face, queue: Any, item: str) -> None:
    face.run(queue.put, item)


def test_shards(face: Face, queue_name: str) -> None:
    """A thousand puts while all consumers are blocked, each with an item in flight."""
    got, put = Collector(), Counter[str]()
    got.go.clear()
    one, two = sharder(face, queue_name, got), sharder(face, queue_name, got)
    with pytest.raises(QueueStateError):
        one.get_queue()
    with one, two:
        for number in range(1000):
            shard = (one, two)[number % 2].get_queue()
            put_into(face, shard, str(number))
            put[shard.name] += 1
            time.sleep(0.002)
        within(lambda: one.wrapped.shard_quantity > 1, "a second shard")
        within(lambda: one.wrapped.queue_names == two.wrapped.queue_names, "both know the same")
        got.go.set()
        got.wait(1000)
        names = one.wrapped.queue_names | two.wrapped.queue_names
    assert Counter(got.items) == Counter(str(number) for number in range(1000))
    assert put.keys() <= names
    assert 2 <= len(put) <= 10
    # The latest shard may be new.
    assert sum(count >= 10 for count in put.values()) >= len(put) - 1
    assert sum(put.values()) / len(put) >= 90
    reopened = sharder(face, queue_name, got, max_queues=1)
    with reopened:
        assert reopened.wrapped.queue_names >= names


def test_no_more_shards_than_allowed(face: Face, queue_name: str) -> None:
    with sharder(face, queue_name, new_queue_threshold=5, max_queues=2) as queue:
        for number in range(100):
            put_into(face, queue.get_queue(), str(number))
            time.sleep(0.005)
        within(lambda: queue.wrapped.shard_quantity == 2, "two shards")
        within(
            lambda: not queue.wrapped._core._preferred if face.loop is None else not queue.wrapped._preferred,
            "both full",
        )
        put_into(face, queue.get_queue(), "more")
        assert queue.wrapped.shard_quantity == 2


def test_order_within_a_shard(face: Face, queue_name: str) -> None:
    got = Collector()
    with sharder(face, queue_name, got) as queue:
        shard = queue.get_queue()
        for number in range(200):
            put_into(face, shard, str(number))
        assert got.wait(200) == [str(number) for number in range(200)]
