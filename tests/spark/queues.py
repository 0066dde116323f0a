"""Filling and inspecting queues in tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from lmqcluster import Client
from lmqcluster.spark.reading.stream_reader import StreamReader
from tests.integration.cluster import fetch, wait_for

__all__ = [
    "NewReader",
    "expire_leases",
    "numbered",
    "pulled",
    "push",
    "ready",
    "settled_and_open",
    "values",
    "wait_until_ready",
]

NewReader = Callable[..., StreamReader]


def numbered(count: int, stem: str = "m") -> list[bytes]:
    """Return distinct contents in order."""
    return [b"%b-%06d" % (stem.encode(), number) for number in range(count)]


def pulled(client: Client, queue: str) -> list[bytes]:
    """Pull and ack everything that is ready, in order."""
    contents: list[bytes] = []
    while messages := client.pull_many(queue, 10_000, 0):
        assert all(client.done_many(queue, [message.id for message in messages]))
        contents += [message.content for message in messages]
    return contents


def ready(http: str, queue: str) -> int:
    """Return the number of ready messages of the queue, from the node with this HTTP address."""
    status, body = fetch(http, f"/v1/queues/{queue}")
    if status == 404:
        return 0
    assert status == 200, body
    return int(json.loads(body)["ready"])


def push(client: Client, queue: str, contents: Sequence[bytes]) -> None:
    """Push contents in order."""
    assert client.push_many(queue, list(contents)) == ["ok"] * len(contents)


def wait_until_ready(client: Client, queue: str) -> None:
    """Wait until a message is ready, because leases have expired or delays are over."""
    wait_for(lambda: client.backlog(queue=queue).oldest_due_us is not None, f"messages in {queue}")


def expire_leases(client: Client, subscription: str) -> None:
    """Expire the leases of a subscription at once, like those of a query that has stalled for long."""
    found = client.subscription(subscription)
    assert found is not None
    assert client.renew_batches(subscription, 0.1, session=found["session"])


def settled_and_open(client: Client, subscription: str) -> tuple[int, list[tuple[int, str, int]]]:
    """Return the highest settled epoch, and (epoch, state, messages) of all batches that are not settled."""
    found = client.subscription(subscription)
    assert found is not None
    return found["settled"], [(batch["epoch"], batch["state"], batch["count"]) for batch in found["batches"]]


def values(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
    """Return the values that the tasks of a micro-batch read."""
    return [
        value
        for part in reader.partitions(start, end)
        for batch in reader.read(part)
        for value in batch.column("value").to_pylist()
    ]
