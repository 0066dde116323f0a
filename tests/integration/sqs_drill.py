"""Producers and consumers on AWS's SDK while leaders are killed and answers are lost, and a judge of what they saw.

``python -m tests.integration.sqs_drill --kills 20 --seconds 600`` runs it; with ``--tls`` the clients use TLS and a token.

Eight producers and eight consumers use a standard queue, a FIFO queue of 100 groups, and a fair queue of ten tenants
through a balancer that loses answers. The SDK is unmodified and repeats what failed. The judge demands that no message is
lost, that none is stored twice, that each group keeps its order, and that a delivery whose answer was lost hides no message.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from .cluster import Cluster, wait_for
from .lossy_balancer import LossyBalancer
from .tls_cluster import TLS_KEY, tls_cluster

__all__ = ["Book", "sqs_drill"]

STANDARD, FIFO, FAIR = "drill", "drill.fifo", "drill-fair"
CLIENTS = 8
CONSUMED = (STANDARD, STANDARD, FIFO, FIFO, FIFO, FIFO, FAIR, FAIR)
"""The queue of each consumer."""
GROUPS, TENANTS = 100, 10
VISIBILITY_S = 120
"""Longer than any repetition of a receive: a message that its first receive has not brought to a client is hidden so long."""
ATTEMPTS = 10
BATCH = 5
BACKLOG_MAX = 2_000
WAIT_S = 2
END_S = 2 * VISIBILITY_S + 60
DOWN_S = (0.2, 2.0)
FAILURES = (BotoCoreError, ClientError)


@dataclass(slots=True)
class _Sighting:
    """The latest delivery of a message to a consumer, and when the consumer asked for it."""

    asked_s: float
    deleted: bool = False


@dataclass
class Book:
    """Messages of the clients by their bodies, each of which is sent once.

    Attributes:
        sent: the ids of the messages whose sends were answered.
        unsure: messages whose sends failed although they were repeated: they may be there or not.
        ids: the ids under which each was received.
        hidden: messages that a lost answer had already delivered when a consumer first saw them.
    """

    sent: dict[str, str] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)
    ids: dict[str, set[str]] = field(default_factory=dict)
    hidden: list[str] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    kills: int = 0
    slowest: dict[str, float] = field(default_factory=dict)
    _sightings: dict[str, _Sighting] = field(default_factory=dict)
    _deleted: int = 0
    _last: dict[str, int] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def timed(self, name: str, call: Callable[..., dict[str, Any]], **parameters: Any) -> dict[str, Any] | None:
        """Return the answer to a call of the SDK, None if it failed in spite of its repetitions."""
        begin_s = time.monotonic()
        try:
            return call(**parameters)
        except FAILURES as exc:
            with self._changed:
                self.errors[f"{name} {_code(exc)}"] += 1
            return None
        finally:
            with self._changed:
                self.slowest[name] = max(self.slowest.get(name, 0.0), time.monotonic() - begin_s)

    def note_sent(self, ids: dict[str, str], failed: list[str]) -> None:
        """Note the ids of messages that were sent, and those whose sends failed."""
        with self._changed:
            self.sent |= ids
            self.unsure |= set(failed)

    def note_received(self, message: dict[str, Any], queue: str, asked_s: float) -> None:
        """Note a delivery that a consumer sees."""
        body, now_s = message["Body"], time.monotonic()
        count = int(message["Attributes"]["ApproximateReceiveCount"])
        with self._changed:
            self.ids.setdefault(body, set()).add(message["MessageId"])
            before = self._sightings.get(body)
            self._sightings[body] = _Sighting(asked_s)
            if before is None:
                if count > 1:
                    self.hidden.append(f"{body} was first seen at its delivery {count}")
                if queue == FIFO:
                    self._check_order(message["Attributes"]["MessageGroupId"], body)
            elif before.deleted:
                self.violations.append(f"{body} was delivered after it had been deleted")
            elif now_s - before.asked_s < VISIBILITY_S:
                self.violations.append(f"{body} was delivered again after {now_s - before.asked_s:.1f} s")

    def _check_order(self, group: str, body: str) -> None:
        number = int(body.rpartition(" ")[2])
        if number <= self._last.get(group, -1):
            self.violations.append(f"{body} was first seen after number {self._last[group]} of group {group}")
        self._last[group] = number

    def note_deleted(self, bodies: list[str]) -> None:
        """Note messages whose deletion was answered."""
        with self._changed:
            for body in bodies:
                self._sightings[body].deleted = True
            self._deleted += len(bodies)
            self._changed.notify_all()

    def wait_for_room(self) -> None:
        """Wait while many messages are on their way, but not for ever."""
        with self._changed:
            self._changed.wait_for(lambda: len(self.sent) - len(self.ids) < BACKLOG_MAX, 1)

    def wait_for_all(self) -> None:
        """Wait until the messages whose sends were answered have been received."""
        with self._changed:
            self._changed.wait_for(lambda: self.sent.keys() <= self.ids.keys(), END_S)

    def close(self) -> None:
        """Judge what can be judged at the end only."""
        lost = self.sent.keys() - self.ids.keys()
        if lost:
            self.violations.append(f"{len(lost)} messages were lost, such as {sorted(lost)[:5]}")
        for body, ids in self.ids.items():
            expected = {self.sent[body]} if body in self.sent else ids
            if ids != expected or len(ids) > 1:
                self.violations.append(f"{body} was stored twice: sent as {self.sent.get(body)}, received as {ids}")
        unknown = self.ids.keys() - self.sent.keys() - self.unsure
        if unknown:
            self.violations.append(f"{len(unknown)} messages were never sent, such as {sorted(unknown)[:5]}")
        # A receive that the SDK gave up hides messages, as it may.
        if not any(name.startswith("receive") for name in self.errors):
            self.violations += self.hidden

    def __str__(self) -> str:
        slowest = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.slowest.items())
        return (
            f"{self.kills} kills; {len(self.sent)} sends answered, {len(self.unsure)} failed; {len(self.ids)} messages received, "
            f"{self._deleted} deleted, {len(self.hidden)} hidden by lost answers; errors {dict(self.errors)}; slowest calls: "
            f"{slowest}; {len(self.violations)} violations"
        )


def _code(exc: Exception) -> str:
    return str(exc.response["Error"]["Code"]) if isinstance(exc, ClientError) else type(exc).__name__


class _Clients:
    """Threads that send and receive, until each kind is stopped."""

    def __init__(self, book: Book, clients: list[Any], seed: int) -> None:
        self._book = book
        self._sending, self._receiving = threading.Event(), threading.Event()
        self._problems: list[BaseException] = []
        producers, consumers = clients[:CLIENTS], clients[CLIENTS:]
        self._producers = [
            self._thread(self._produce, sqs, number, random.Random(seed * CLIENTS + number))
            for number, sqs in enumerate(producers)
        ]
        self._consumers = [
            self._thread(self._consume, sqs, queue) for sqs, queue in zip(consumers, CONSUMED, strict=True)
        ]

    def _thread(self, work: Callable[..., None], *arguments: Any) -> threading.Thread:
        def run() -> None:
            try:
                work(*arguments)
            except BaseException as exc:  # noqa: BLE001 - raised where the threads are joined
                self._problems.append(exc)

        return threading.Thread(target=run, name=work.__name__)

    def start(self) -> None:
        for thread in (*self._producers, *self._consumers):
            thread.start()

    def stop_sending(self) -> None:
        self._sending.set()
        self._join(self._producers)

    def stop(self) -> None:
        self._sending.set()
        self._receiving.set()
        self._join([*self._producers, *self._consumers])

    def _join(self, threads: list[threading.Thread]) -> None:
        for thread in threads:
            thread.join()
        if self._problems:
            raise self._problems[0]

    def _produce(self, sqs: Any, producer: int, rng: random.Random) -> None:
        """Send to each queue in turn, singly or in batches; a group has one producer."""
        urls = {name: sqs.get_queue_url(QueueName=name)["QueueUrl"] for name in (STANDARD, FIFO, FAIR)}
        number = 0
        while not self._sending.is_set():
            self._book.wait_for_room()
            queue = (STANDARD, FIFO, FAIR)[number % 3]
            more = {}
            if queue == FIFO:
                more["MessageGroupId"] = f"group-{rng.randrange(GROUPS // CLIENTS) * CLIENTS + producer}"
            elif queue == FAIR:
                more["MessageGroupId"] = f"tenant-{rng.randrange(TENANTS)}"
            bodies = [f"{queue} {producer} {number + place}" for place in range(rng.choice((1, BATCH)))]
            number += len(bodies)
            self._send(sqs, urls[queue], bodies, more)

    def _send(self, sqs: Any, url: str, bodies: list[str], more: dict[str, str]) -> None:
        if len(bodies) == 1:
            answer = self._book.timed("send", sqs.send_message, QueueUrl=url, MessageBody=bodies[0], **more)
            ids = {} if answer is None else {bodies[0]: answer["MessageId"]}
        else:
            entries = [{"Id": str(place), "MessageBody": body, **more} for place, body in enumerate(bodies)]
            answer = self._book.timed("send batch", sqs.send_message_batch, QueueUrl=url, Entries=entries)
            ids = {} if answer is None else {bodies[int(one["Id"])]: one["MessageId"] for one in answer["Successful"]}
        self._book.note_sent(ids, [body for body in bodies if body not in ids])

    def _consume(self, sqs: Any, queue: str) -> None:
        """Receive and delete."""
        url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
        names = ["ApproximateReceiveCount", "MessageGroupId"]
        while not self._receiving.is_set():
            asked_s = time.monotonic()
            options = {"MaxNumberOfMessages": 10, "WaitTimeSeconds": WAIT_S, "MessageSystemAttributeNames": names}
            answer = self._book.timed("receive", sqs.receive_message, QueueUrl=url, **options) or {}
            messages = answer.get("Messages", [])
            for one in messages:
                self._book.note_received(one, queue, asked_s)
            if messages:
                self._delete(sqs, url, messages)

    def _delete(self, sqs: Any, url: str, messages: list[dict[str, Any]]) -> None:
        if len(messages) == 1:
            handle = messages[0]["ReceiptHandle"]
            if self._book.timed("delete", sqs.delete_message, QueueUrl=url, ReceiptHandle=handle) is not None:
                self._book.note_deleted([messages[0]["Body"]])
            return
        entries = [{"Id": str(place), "ReceiptHandle": one["ReceiptHandle"]} for place, one in enumerate(messages)]
        answer = self._book.timed("delete batch", sqs.delete_message_batch, QueueUrl=url, Entries=entries)
        if answer is not None:
            self._book.note_deleted([messages[int(one["Id"])]["Body"] for one in answer.get("Successful", [])])


@dataclass(frozen=True)
class Target:
    """Where clients connect, and the key with which they sign.

    Attributes:
        url: the beginning of an endpoint, before the address.
        key: access key id and secret access key.
        ca: the certificate of the authority; None without TLS.
    """

    url: str = "http"
    key: tuple[str, str] = ("any", "any")
    ca: str | None = None

    def client(self, address: str) -> Any:
        """Return a client of the SDK that repeats what fails."""
        return boto3.client(
            "sqs",
            endpoint_url=f"{self.url}://{address}",
            region_name="us-east-1",
            aws_access_key_id=self.key[0],
            aws_secret_access_key=self.key[1],
            verify=self.ca,
            config=Config(retries={"max_attempts": ATTEMPTS, "mode": "standard"}, connect_timeout=10, read_timeout=60),
        )


def sqs_drill(cluster: Cluster, target: Target, *, kills: int, seconds: float, seed: int) -> Book:
    """Run the clients while a leader is killed at even intervals; return the book."""
    book, rng = Book(), random.Random(seed)
    with LossyBalancer([node.sqs for node in cluster], seed) as balancer:
        clients = [target.client(balancer.address) for _ in range(2 * CLIENTS)]
        attributes = {"VisibilityTimeout": str(VISIBILITY_S)}
        clients[0].create_queue(QueueName=STANDARD, Attributes=attributes)
        clients[0].create_queue(QueueName=FAIR, Attributes=attributes)
        fifo = {**attributes, "FifoQueue": "true", "ContentBasedDeduplication": "true"}
        clients[0].create_queue(QueueName=FIFO, Attributes=fifo)
        threads = _Clients(book, clients, seed)
        threads.start()
        try:
            for _ in range(kills):
                _progress(book)
                time.sleep(max(0.0, seconds / kills - DOWN_S[1]))
                _kill(cluster, rng)
                book.kills += 1
                print(book, flush=True)
            _progress(book)
            threads.stop_sending()
            book.wait_for_all()
        finally:
            threads.stop()
        _check_empty(book, clients[0])
        book.close()
        print(f"seed {seed}: {book}; connections closed: {dict(balancer.cuts)}")
        for one in clients:
            one.close()
    return book


def _progress(book: Book) -> None:
    """Wait until the clients make progress."""
    sent, received = len(book.sent) + 100, len(book.ids) + 100
    wait_for(lambda: len(book.sent) >= sent and len(book.ids) >= received, "100 more messages", 180)


def _kill(cluster: Cluster, rng: random.Random) -> None:
    # Without the node that was killed before, the others have no quorum.
    for node in cluster:
        node.wait_ready()
    leader = cluster.leader()
    leader.kill()
    time.sleep(rng.uniform(*DOWN_S))
    leader.start(wait=False)


def _check_empty(book: Book, sqs: Any) -> None:
    """Look for messages that no consumer has seen, among them second copies."""
    names = [
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesNotVisible",
        "ApproximateNumberOfMessagesDelayed",
    ]
    failed_deletes = sum(count for name, count in book.errors.items() if name.startswith("delete"))
    for queue in (STANDARD, FIFO, FAIR):
        url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
        counts = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        if sum(map(int, counts.values())) > 10 * failed_deletes:
            book.violations.append(f"the queue {queue} is not empty: {counts}")


@contextmanager
def drill_cluster(folder: Path, *, tls: bool) -> Iterator[tuple[Cluster, Target]]:
    """Run three nodes, with TLS and tokens if asked for."""
    if tls:
        with tls_cluster(folder) as (cluster, secret, ca):
            yield cluster, Target("https", (TLS_KEY, secret), ca)
        return
    with Cluster(3, directory=folder) as cluster:
        yield cluster, Target()


def main() -> int:
    """Run the drill as the options say; return 1 if a guarantee was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.sqs_drill", description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=600.0, help="the kills are spread over this time")
    parser.add_argument(
        "--seed", type=int, default=int(time.time()), help="chooses losses and loads (default: the clock)"
    )
    parser.add_argument("--tls", action="store_true", help="clients use TLS and a token")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, drill_cluster(Path(name), tls=options.tls) as (cluster, target):
        book = sqs_drill(cluster, target, kills=options.kills, seconds=options.seconds, seed=options.seed)
        print("\n".join(book.violations[:20]))
        for node in cluster:
            assert "Traceback" not in node.log(), node.log_tail()
    return 1 if book.violations else 0


if __name__ == "__main__":
    sys.exit(main())
