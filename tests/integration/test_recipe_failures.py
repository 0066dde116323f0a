"""The recipes in both flavours while consumers and nodes are killed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import pytest

from lmqcluster.client.recipes import ConnectionState

from .cluster import Cluster, clean_environment, reaper
from .recipe_faces import Collector, Face, open_face, within

ITEMS, KILLS = (1000, 2) if "LMQ_CAMPAIGN" in os.environ else (200, 1)
VICTIM = """
import asyncio, sys
from lmqcluster import AsyncClient, Client
from lmqcluster.client import recipes
from lmqcluster.client.recipes import aio

flavour, nodes, queue, safe = sys.argv[1:]
options = recipes.QueueOptions(safe=safe == "True", lease=3)

def take(item):
    print(item, flush=True)
    if item == "1":
        sys.stdin.read()

async def main():
    async with AsyncClient(nodes) as client:
        async def consume(item):
            await asyncio.to_thread(take, item)
        async with aio.DistributedQueue(client, queue, aio.TextSerializer(), consume, options):
            await asyncio.Event().wait()

if flavour == "aio":
    asyncio.run(main())
else:
    with Client(nodes) as client, recipes.DistributedQueue(client, queue, recipes.TextSerializer(), take, options):
        sys.stdin.read()
"""


@pytest.fixture(scope="module")
def disrupted_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes that the tests of this module kill and restart."""
    with Cluster(3, directory=tmp_path_factory.mktemp("hurt")) as nodes:
        yield nodes


@pytest.fixture(params=["threads", "aio"])
def face(request: pytest.FixtureRequest, disrupted_cluster: Cluster) -> Iterator[Face]:
    with open_face(request.param, disrupted_cluster.rpc_addresses) as made:
        yield made


@pytest.mark.parametrize(("safe", "with_leader"), [(True, False), (True, True), (False, False)])
def test_a_consumer_is_killed(
    face: Face, queue_name: str, disrupted_cluster: Cluster, safe: bool, with_leader: bool
) -> None:
    flavour = "threads" if face.loop is None else "aio"
    with face.queue(queue_name) as queue:
        for number in range(4):
            queue.put(str(number))
        queue.flush_puts(120)
        nodes = ",".join(face.addresses)
        victim = subprocess.Popen(
            [sys.executable, "-c", VICTIM, flavour, nodes, queue_name, str(safe)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=clean_environment(),
            start_new_session=True,
        )
        reaper.tell("+", victim.pid)
        with victim:
            assert victim.stdout is not None
            assert [victim.stdout.readline(), victim.stdout.readline()] == ["0\n", "1\n"]
            victim.kill()
        reaper.tell("-", victim.pid)
        if with_leader:
            disrupted_cluster.leader().restart()
        # It is redelivered in its old position.
        left = ["1", "2", "3"] if safe else ["2", "3"]
        within(lambda: queue.message_count() == len(left), "the end of the session")
    got = Collector()
    with face.queue(queue_name, got, safe=True):
        assert got.wait(len(left)) == left


class Restarts:
    """Kills and restarts one node after the other, the leader first, until stopped."""

    def __init__(self, cluster: Cluster) -> None:
        self.count = 0
        self._cluster = cluster
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._cluster.leader().restart()
            self.count += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def test_consumers_while_nodes_are_killed(face: Face, queue_name: str, disrupted_cluster: Cluster) -> None:
    ailing = Collector(lambda item: len(ailing.items) >= 10)
    takers = [ailing, *(Collector() for _ in range(4))]
    threads = ThreadPoolExecutor(8)
    many = {"executor": threads} if face.loop is None else {"concurrency": 8}
    with threads:
        queues = [face.queue(queue_name, taker, safe=True, lease=60) for taker in takers[:4]]
        queues.append(face.queue(queue_name, takers[4], safe=True, lease=60, **many))
        producer = face.queue(queue_name, put_in_background=False)
        with queues[0], queues[1], queues[2], queues[3], queues[4], producer, Restarts(disrupted_cluster) as restarts:
            put = 0
            while put < ITEMS or restarts.count < KILLS:
                assert producer.put(str(put))
                put += 1
            within(lambda: sum(len(taker.items) for taker in takers) >= put, "all items")
    assert Counter(item for taker in takers for item in taker.items) == Counter(str(number) for number in range(put))
    assert not set(ailing.failed) & set(ailing.items)


def test_exclusive_consumers_while_nodes_are_killed(face: Face, queue_name: str, disrupted_cluster: Cluster) -> None:
    handled: list[int] = []  # appended to by one consumer at a time, if they are exclusive
    queues = [
        face.queue(queue_name, lambda item: handled.append(int(item)), safe=True, lease=20, exclusive=True)
        for _ in range(3)
    ]
    producer = face.queue(queue_name, put_in_background=False, exclusive=True, safe=True)
    put = 0
    with producer, queues[0], queues[1], queues[2], Restarts(disrupted_cluster) as restarts:
        while put < ITEMS or restarts.count < 2 * KILLS:
            assert producer.put(str(put))
            put += 1
        within(lambda: len(set(handled)) >= put, "all items", 600)
    # The item in flight may be repeated.
    assert [number for place, number in enumerate(handled) if handled[place - 1 : place] != [number]] == list(
        range(put)
    )


class Watcher(Collector):
    """Receives state changes too."""

    def __init__(self) -> None:
        super().__init__()
        self.states: list[ConnectionState] = []

    def state_changed(self, state: ConnectionState) -> None:
        self.states.append(state)


class Consumer:
    def __init__(self, face: Face, watcher: Watcher) -> None:
        self.consume_message = face.consumer(watcher)
        self.state_changed = watcher.state_changed


def test_the_consumer_receives_connection_states(queue_name: str, face: Face, disrupted_cluster: Cluster) -> None:
    got = Watcher()
    leader = disrupted_cluster.leader()
    order = [leader.rpc, *(node.rpc for node in disrupted_cluster if node is not leader)]
    flavour = "threads" if face.loop is None else "aio"
    with (
        open_face(flavour, order) as first,
        first.queue(queue_name, Consumer(first, got), safe=True, lease=60) as queue,
    ):
        within(lambda: got.states == [ConnectionState.CONNECTED], "connected")
        leader.kill()
        within(lambda: got.states[-1] is ConnectionState.RECONNECTED, "reconnected")
        queue.put("after")
        assert got.wait(1) == ["after"]
        assert got.states == [ConnectionState.CONNECTED, ConnectionState.SUSPENDED, ConnectionState.RECONNECTED]
    leader.start()


def test_an_outage_longer_than_the_lease(queue_name: str, face: Face, disrupted_cluster: Cluster) -> None:
    got = Watcher()
    with face.queue(queue_name, Consumer(face, got), safe=True, lease=2) as queue:
        queue.put("before")
        got.wait(1)
        for node in disrupted_cluster:
            node.kill()
        within(lambda: ConnectionState.LOST in got.states, "lost")
        queue.put("during")
        disrupted_cluster.start()
        # The first one is redelivered if its ack did not arrive.
        within(lambda: "during" in got.items, "the item put during the outage")
        queue.put("after")
        within(lambda: "after" in got.items, "the item put after the outage")
    assert set(got.items) == {"before", "during", "after"}
    # While the nodes are killed one after another, the client may reach one that still runs.
    assert got.states[0] is ConnectionState.CONNECTED
    assert got.states[-3:] == [ConnectionState.SUSPENDED, ConnectionState.LOST, ConnectionState.RECONNECTED]
    assert got.states.count(ConnectionState.LOST) == 1
