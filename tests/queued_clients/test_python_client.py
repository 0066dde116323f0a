"""queued's Python client, as it is published, on a cluster whose nodes are killed."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgpack
import pytest
import requests
from queued_client_py import Message, PushItem, QueuedApiError, QueuedClient, QueuedQueueClient, QueuedUnauthorizedError

from ..integration.cluster import Cluster, wait_for
from ..integration.queued_http import QueuedHttp

MESSAGES = 120
HIDDEN_S = 20
DEADLINE_S = 240.0
UNSURE = (requests.RequestException, QueuedApiError)
"""The client does not know what became of its request, or is to send it again."""


def client(address: str, key: str | None = None) -> QueuedClient:
    return QueuedClient(f"http://{address}", key)


def test_every_call_of_the_client(shared_cluster: Cluster, queue_name: str) -> None:
    first, second, third = (client(node.queued) for node in shared_cluster)
    first.create_queue(queue_name)
    with pytest.raises(QueuedApiError) as refused:
        second.create_queue(queue_name)
    assert (refused.value.status, refused.value.error) == (409, "QueueAlreadyExists")
    assert queue_name in third.list_queues()
    queue = second.queue(queue_name)
    ids = queue.push_messages([PushItem({"n": n}, 0) for n in range(3)])
    polled = third.queue(queue_name).poll_messages(2, 60)
    assert [(one.message.id, one.contents) for one in polled] == [(ids[0], {"n": 0}), (ids[1], {"n": 1})]
    tag = first.queue(queue_name).update_message(polled[0].message, 0)
    queue.delete_messages([polled[0].message, polled[1].message])
    # What was returned is behind what had waited.
    waited, again = queue.poll_messages(2, 60)
    assert (waited.message.id, again.message.id) == (ids[2], ids[0])
    assert again.message.poll_tag != tag
    assert [one.message.id for one in queue.poll_messages(1, 60, True)] == [ids[2]]
    metrics = queue.metrics()
    assert (metrics.message_counter, metrics.successful_push_counter, metrics.missing_delete_counter) == (2, 3, 1)
    with pytest.raises(QueuedApiError) as gone:
        queue.update_message(Message(ids[1], polled[1].message.poll_tag), 5)
    assert (gone.value.status, gone.value.error) == (404, "MessageNotFound")
    first.delete_queue(queue_name)
    assert queue_name not in second.list_queues()


def test_keys_of_the_client(secret_cluster: Cluster) -> None:
    node = secret_cluster.nodes[0]
    node.wait_upgraded()
    secret = QueuedHttp(node.http)("POST", "/v1/tokens", {"name": "boss", "role": "admin"}).value["token"]
    admin = client(node.queued, secret)
    wait_for(lambda: requests.get(f"http://{node.queued}/queues", timeout=30).status_code == 401, "a token is needed")
    admin.create_queue("mail")
    admin.set_api_key("a key", "mail")
    assert [(one.key, one.prefix) for one in admin.list_api_keys()] == [("a key", "mail")]
    holder = client(node.queued, "a key")
    assert holder.queue("mail").push_messages([PushItem(1, 0)])
    with pytest.raises(QueuedUnauthorizedError):
        holder.list_queues()
    admin.delete_api_key("a key")
    with pytest.raises(QueuedUnauthorizedError):
        holder.queue("mail").poll_messages(1, 1)


class Run:
    """Producers and consumers on a cluster while somebody kills its nodes."""

    def __init__(self, cluster: Cluster, queue: str) -> None:
        self.cluster = cluster
        self.queue_name = queue
        self.acknowledged: set[str] = set()
        self.seen: list[tuple[str, int, float, float]] = []
        self.produced = threading.Event()
        self.finished = threading.Event()
        self.lock = threading.Lock()
        self.failures: list[BaseException] = []

    def queue(self, rng: random.Random) -> QueuedQueueClient:
        return client(rng.choice(self.cluster.nodes).queued).queue(self.queue_name)

    def produce(self, number: int) -> None:
        rng = random.Random(number)
        for n in range(MESSAGES):
            name = f"{number}-{n}"
            while not self._push(rng, name):
                time.sleep(0.05)
            with self.lock:
                self.acknowledged.add(name)

    def _push(self, rng: random.Random, name: str) -> bool:
        try:
            return bool(self.queue(rng).push_messages([PushItem(name, rng.choice([0, 0, 1]))]))
        except UNSURE:
            return False

    def consume(self, number: int) -> None:
        rng = random.Random(100 + number)
        while not self.finished.is_set():
            queue = self.queue(rng)
            asked = time.monotonic()
            try:
                polled = queue.poll_messages(5, HIDDEN_S)
            except UNSURE:
                time.sleep(0.05)
                continue
            got = time.monotonic()
            with self.lock:
                self.seen += [(one.contents, one.message.id, asked, got) for one in polled]
            while polled and not self._delete(rng, [one.message for one in polled]):
                time.sleep(0.05)
            if not polled:
                time.sleep(0.02)

    def _delete(self, rng: random.Random, messages: list[Message]) -> bool:
        try:
            self.queue(rng).delete_messages(messages)
        except UNSURE:
            return False
        return True

    def vanish(self, number: int) -> None:
        """Clients that hang up without reading the answer, or in the middle of their request."""
        rng = random.Random(200 + number)
        body = msgpack.packb({"count": 2, "visibility_timeout_secs": 1})
        head = f"POST /queue/{self.queue_name}/messages/poll HTTP/1.1\r\nHost: localhost\r\n"
        head += f"Content-Type: application/msgpack\r\nContent-Length: {len(body)}\r\n\r\n"
        request = head.encode() + body
        while not self.produced.wait(0.1):
            host, _, port = rng.choice(self.cluster.nodes).queued.partition(":")
            try:
                with socket.create_connection((host, int(port)), timeout=5) as connection:
                    connection.sendall(request[: rng.choice([len(request), len(request) - 3])])
            except OSError:
                continue

    def guarded(self, work: Callable[[int], None], number: int) -> threading.Thread:
        def run() -> None:
            try:
                work(number)
            except BaseException as exc:  # noqa: BLE001 - a failed thread has to fail the test
                self.failures.append(exc)

        thread = threading.Thread(target=run, name=f"{work.__name__}-{number}")
        thread.start()
        return thread


def wait_while(condition: Callable[[], Any], run: Run, deadline: float) -> None:
    while condition() and not run.failures:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_nothing_is_lost_or_handed_out_twice_while_nodes_are_killed(cluster: Cluster) -> None:
    cluster.nodes[0].wait_upgraded()
    client(cluster.nodes[0].queued).create_queue("work")
    run = Run(cluster, "work")
    deadline = time.monotonic() + DEADLINE_S
    producers = [run.guarded(run.produce, n) for n in range(2)]
    others = [*(run.guarded(run.consume, n) for n in range(3)), run.guarded(run.vanish, 0)]
    try:
        for round_ in range(3):
            goal = (round_ + 1) * MESSAGES // 2
            wait_while(lambda goal=goal: len(run.acknowledged) < goal, run, deadline)  # type: ignore[misc]
            node = cluster.nodes[round_]
            node.kill()
            wait_while(lambda goal=goal: len(run.acknowledged) < goal + 10, run, deadline)  # type: ignore[misc]
            node.start()
        for thread in producers:
            wait_while(thread.is_alive, run, deadline)
        run.produced.set()
        wait_while(lambda: run.acknowledged - {name for name, *_ in list(run.seen)}, run, deadline)
    finally:
        run.produced.set()
        run.finished.set()
        for thread in (*producers, *others):
            thread.join(60)
    assert not run.failures
    assert run.acknowledged <= {name for name, *_ in run.seen}
    by_id: dict[int, list[tuple[float, float]]] = {}
    for _, identifier, asked, got in run.seen:
        by_id.setdefault(identifier, []).append((asked, got))
    for deliveries in by_id.values():
        deliveries.sort()
        for (asked, _), (_, got_again) in pairwise(deliveries):
            assert got_again - asked >= HIDDEN_S
