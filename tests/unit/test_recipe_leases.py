"""How long a message is a consumer's of the recipes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from lmqcluster import Client
from lmqcluster.client.recipes import DistributedQueue, QueueOptions, TextSerializer
from lmqcluster.testing import MemoryCluster

PATIENCE_S = 120.0
OPTIONS = QueueOptions(safe=True, lease=3600, put_in_background=False)


def until(probe: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not probe():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


def hold_answers_back(client: Client, held: bool) -> None:
    """Let a client read nothing more from its connection; or end that connection."""

    async def on_loop() -> None:
        connection = client._client._session._connection
        assert connection is not None
        if held:
            connection._transport.pause_reading()
        else:
            connection.abort("cut")

    client._run(on_loop)


def test_a_message_whose_delivery_was_lost_comes_again_long_before_the_lease_would_end() -> None:
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
            hold_answers_back(client, held=True)
            producer.put("lost")
            until(lambda: producer.message_count() == 0, "the node has handed it out")
            hold_answers_back(client, held=False)
            cluster.advance(11)
            assert arrived.wait(PATIENCE_S)
            producer.put("next")
            until(lambda: len(got) == 2, "the next one")
    assert got == ["lost", "next"]


def test_what_a_consumer_holds_is_its_own_for_the_whole_lease() -> None:
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
            (held,) = queue._core._consumption._held.values()
            until(lambda: held.until > time.monotonic() + 3000, "the lease is made longer")
            cluster.advance(3000)
            assert other.pull("q", 0) is None
            go.set()
        assert other.pull("q", 0) is None
    assert got == ["long"]
