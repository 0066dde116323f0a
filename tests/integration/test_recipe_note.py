"""The reasons not to use ZooKeeper for queues, measured in counts and sizes, on three nodes.

`tests.benchmarks.scale` measures the aspects of time: rates, starts, memory.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from lmqcluster import LmqError
from lmqcluster.client.recipes import BytesSerializer, PutError

from .cluster import Cluster, fetch
from .recipe_faces import Collector, Face, open_face, within

DEEP = 12_000
"""Beyond the 10,000 at which Curator's sharder considers a queue too long."""
LARGE = 8 << 20
"""Eight times ZooKeeper's maximum."""


@pytest.fixture(params=["threads", "aio"])
def face(request: pytest.FixtureRequest, shared_cluster: Cluster) -> Iterator[Face]:
    with open_face(request.param, shared_cluster.rpc_addresses) as made:
        yield made


def total(cluster: Cluster, name: str) -> int:
    """Return a metric, summed over the nodes."""
    found = [re.search(rf"^{name} (\S+)$", fetch(node.http, "/metrics")[1].decode(), re.MULTILINE) for node in cluster]
    return sum(int(float(one[1])) for one in found if one is not None)


def growth(cluster: Cluster, name: str, work: Callable[[], object]) -> int:
    """Return by how much the work raises a metric."""
    before = total(cluster, name)
    work()
    return total(cluster, name) - before


def fill(face: Face, name: str, count: int) -> None:
    with face.queue(name) as queue:
        for number in range(count):
            queue.put(str(number))
        assert queue.flush_puts(120)
        assert queue.message_count() == count


def test_large_items_work_beside_small_ones(face: Face, queue_name: str) -> None:
    large = bytes(range(256)) * (LARGE >> 8)
    attempts: Counter[int] = Counter()

    def fails_once(item: bytes) -> bool:
        attempts[len(item)] += 1
        if attempts[LARGE] == 1 and len(item) == LARGE:
            raise ValueError("not the first time")
        return False

    got = Collector(fails_once)
    with face.make("DistributedQueue", queue_name, got, BytesSerializer(), safe=True, put_in_background=False) as queue:
        assert queue.put(large)
        assert queue.put(b"small")
        with pytest.raises(PutError) as caught:
            queue.put(b"x" * (65 << 20))
        assert isinstance(caught.value.__cause__, LmqError)
        assert caught.value.__cause__.code == "too_large"
        assert queue.put(b"after")
        assert {len(item) for item in got.wait(3)} == {LARGE, 5}
        assert large in got.items
    assert attempts[LARGE] == 2


def test_a_long_queue_is_counted_and_purged_in_one_step(face: Face, queue_name: str, shared_cluster: Cluster) -> None:
    fill(face, queue_name, DEEP)
    with face.queue(queue_name) as queue:
        log_bytes = growth(shared_cluster, "lmq_raft_log_bytes", queue.message_count)
        assert log_bytes < DEEP, "a count writes something for each message"
        log_bytes = growth(shared_cluster, "lmq_raft_log_bytes", lambda: face.run(face.client.purge, queue_name))
        assert log_bytes < DEEP, "a purge writes something for each message"
        assert queue.message_count() == 0


def test_an_urgent_item_is_next_in_a_long_queue(face: Face, queue_name: str) -> None:
    got = Collector()
    with face.make("DistributedPriorityQueue", queue_name) as queue:
        for number in range(DEEP):
            queue.put(str(number), 7)
        queue.put("urgent", -7)
        assert queue.flush_puts(120)
    with face.make("DistributedPriorityQueue", queue_name, got, safe=True, prefetch=200):
        assert got.wait(3)[:3] == ["urgent", "0", "1"]
    face.run(face.client.purge, queue_name)


def test_an_item_takes_three_entries_and_batches_share_them(
    face: Face, queue_name: str, shared_cluster: Cluster
) -> None:
    got = Collector()
    with ThreadPoolExecutor(16) as executor:
        parallel = {"executor": executor} if face.loop is None else {"concurrency": 16}

        def work() -> None:
            fill(face, queue_name, 3_000)
            with face.queue(queue_name, got, safe=True, prefetch=200, **parallel):
                got.wait(3_000)
                within(lambda: face.run(face.client.backlog, queue=queue_name).messages == 0, "all are confirmed")

        entries = growth(shared_cluster, "lmq_batches_total", work)
    assert Counter(got.items) == Counter(map(str, range(3_000)))
    assert entries < 3_000, "items do not share their entries"


def test_a_put_wakes_one_of_many_consumers(face: Face, queue_name: str, shared_cluster: Cluster) -> None:
    """The cost of an item does not depend on the number of waiting consumers."""
    got = Collector()

    def one_by_one(consumers: int) -> int:
        with ExitStack() as stack:
            for _ in range(consumers):
                stack.enter_context(face.queue(queue_name, got))
            producer = stack.enter_context(face.queue(queue_name, put_in_background=False))
            within(lambda: total(shared_cluster, "lmq_waiters") >= consumers, "all consumers wait")

            def work() -> None:
                for number in range(20):
                    seen = len(got.items)
                    producer.put(str(number))
                    got.wait(seen + 1)

            return growth(shared_cluster, "lmq_operations_total", work)

    few, many = one_by_one(1), one_by_one(40)
    assert few >= 40
    assert many < few + 20 * 5, "the nodes ask for more consumers than one each"
    assert len(got.items) == 40
