"""Producers and consumers on one queue of a cluster, with queued's published Python and JavaScript clients."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import requests
from queued_client_py import Message, PushItem, QueuedApiError, QueuedClient, QueuedQueueClient

from ..integration.cluster import Cluster
from ..other_language.nodejs import nodejs

__all__ = ["Delivery", "Work", "client", "ended"]

UNSURE = (requests.RequestException, QueuedApiError)
"""Errors after which the client does not know the outcome of its request, or has to resend it."""
WORKER = Path(__file__).parent / "worker.mjs"
POLLED_AT_ONCE = 5


def client(address: str, key: str | None = None) -> QueuedClient:
    """Return queued's Python client of one node."""
    return QueuedClient(f"http://{address}", key)


class Delivery(NamedTuple):
    """A message that a consumer got: the times of request and answer, in seconds of this machine's clock."""

    name: str
    id: int
    asked_s: float
    got_s: float


class Work:
    """The work of producers and consumers, and their results.

    Attributes:
        acknowledged: names of the messages whose push succeeded.
        seen: all deliveries.
        produced: set when the producers have finished; clients that disconnect stop then.
        failures: errors that ended a thread.
    """

    def __init__(self, cluster: Cluster, queue: str, hidden_s: int, seed: int = 0) -> None:
        """Create the work without starting it.

        Args:
            cluster: its nodes, of which any live one is used.
            queue: an existing queue.
            hidden_s: time for which a poll hides a message.
            seed: seed of all random choices.
        """
        self._cluster = cluster
        self._queue_name = queue
        self._hidden_s = hidden_s
        self._seed = seed
        self._finished = threading.Event()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._node_processes: list[subprocess.Popen[str]] = []
        self.acknowledged: set[str] = set()
        self.seen: list[Delivery] = []
        self.produced = threading.Event()
        self.failures: list[BaseException] = []

    # --- threads ------------------------------------------------------------------------------------------------------

    def start(self, work: Callable[[int], None], number: int) -> threading.Thread:
        """Run one of the methods below in a thread."""

        def run() -> None:
            try:
                work(number)
            except BaseException as exc:  # noqa: BLE001 - a failed thread has to fail the run
                self.failures.append(exc)

        thread = threading.Thread(target=run, name=f"{work.__name__}-{number}")
        self._threads.append(thread)
        thread.start()
        return thread

    def producer(self, names: Callable[[int], Iterator[str]]) -> Callable[[int], None]:
        """Return a function that pushes messages of these names, each until its push is acknowledged."""

        def produce(number: int) -> None:
            rng = self._rng("produce", number)
            for name in names(number):
                while not self._push(rng, name):
                    time.sleep(0.05)
                with self._lock:
                    self.acknowledged.add(name)

        return produce

    def consume(self, number: int) -> None:
        """Poll and delete until the end."""
        rng = self._rng("consume", number)
        while not self._finished.is_set():
            asked_s = time.time()
            try:
                polled = self._queue(rng).poll_messages(POLLED_AT_ONCE, self._hidden_s)
            except UNSURE:
                time.sleep(0.05)
                continue
            got_s = time.time()
            with self._lock:
                self.seen += [Delivery(one.contents, one.message.id, asked_s, got_s) for one in polled]
            while polled and not self._delete(rng, [one.message for one in polled]):
                time.sleep(0.05)
            if not polled:
                time.sleep(0.02)

    def vanish(self, number: int) -> None:
        """Disconnect without reading the answer of a poll, or in the middle of the request, repeatedly."""
        rng = self._rng("vanish", number)
        body = msgpack.packb({"count": 2, "visibility_timeout_secs": 1})
        head = f"POST /queue/{self._queue_name}/messages/poll HTTP/1.1\r\nHost: localhost\r\n"
        head += f"Content-Type: application/msgpack\r\nContent-Length: {len(body)}\r\n\r\n"
        request = head.encode() + body
        while not self.produced.wait(0.1):
            host, _, port = rng.choice(self._cluster.nodes).queued.partition(":")
            try:
                with socket.create_connection((host, int(port)), timeout=5) as connection:
                    connection.sendall(request[: rng.choice([len(request), len(request) - 3])])
            except OSError:
                continue

    def javascript(self, installed: Path, messages: int) -> threading.Thread:
        """Run a producer of `messages` messages and a consumer in Node.js; the thread ends when all of them
        are pushed.
        """
        addresses = ",".join(node.queued for node in self._cluster.nodes)
        command = [nodejs(), str(WORKER), f"{installed}/", addresses, self._queue_name]
        command += [str(messages), str(self._hidden_s), f"js{len(self._node_processes)}"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._node_processes.append(process)
        pushed = threading.Event()

        def read(_: int) -> None:
            assert process.stdout is not None
            try:
                with process.stdout:
                    for line in process.stdout:
                        self._take_line(json.loads(line), pushed)
            finally:
                pushed.set()
            code = process.wait()
            if code:
                raise RuntimeError(f"the JavaScript client ended with {code}; see standard error")

        self.start(read, len(self._node_processes))
        return self.start(lambda _: _waited(pushed), len(self._node_processes))

    def end_producing(self) -> None:
        """Stop unfinished producers, and clients that disconnect."""
        self.produced.set()
        for process in self._node_processes:
            assert process.stdin is not None
            process.stdin.write("produced\n")
            process.stdin.flush()

    def stop(self) -> None:
        """Stop everything."""
        self.produced.set()
        self._finished.set()
        for process in self._node_processes:
            assert process.stdin is not None
            process.stdin.close()
        for thread in self._threads:
            thread.join(60)
            if thread.is_alive():
                self.failures.append(RuntimeError(f"{thread.name} does not end"))
        for process in self._node_processes:
            if process.poll() is None:
                process.kill()
            process.wait()

    # --- results ------------------------------------------------------------------------------------------------------

    def missing(self) -> set[str]:
        """Return the names of acknowledged messages that no consumer has got."""
        with self._lock:
            return self.acknowledged - {one.name for one in self.seen}

    def doubled(self) -> list[tuple[Delivery, Delivery]]:
        """Return consecutive deliveries of one message within its visibility time."""
        by_id: dict[int, list[Delivery]] = {}
        for delivery in self.seen:
            by_id.setdefault(delivery.id, []).append(delivery)
        return [
            (first, second)
            for deliveries in by_id.values()
            for first, second in pairwise(sorted(deliveries, key=lambda one: one.got_s))
            if second.got_s - first.asked_s < self._hidden_s
        ]

    # --- helpers ------------------------------------------------------------------------------------------------------

    def _rng(self, kind: str, number: int) -> random.Random:
        return random.Random(f"{self._seed} {kind} {number}")

    def _queue(self, rng: random.Random) -> QueuedQueueClient:
        return client(rng.choice(self._cluster.nodes).queued).queue(self._queue_name)

    def _push(self, rng: random.Random, name: str) -> bool:
        try:
            return bool(self._queue(rng).push_messages([PushItem(name, rng.choice([0, 0, 1]))]))
        except UNSURE:
            return False

    def _delete(self, rng: random.Random, messages: list[Message]) -> bool:
        try:
            self._queue(rng).delete_messages(messages)
        except UNSURE:
            return False
        return True

    def _take_line(self, line: dict[str, Any], pushed: threading.Event) -> None:
        with self._lock:
            if "acknowledged" in line:
                self.acknowledged.add(line["acknowledged"])
            elif "seen" in line:
                self.seen += [Delivery(*one) for one in line["seen"]]
            else:
                pushed.set()


def _waited(event: threading.Event) -> None:
    event.wait()


def ended(condition: Callable[[], Any], work: Work, deadline_s: float) -> bool:
    """Wait until a condition no longer holds, or a thread has failed; return False at the deadline."""
    while condition() and not work.failures:
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.05)
    return True
