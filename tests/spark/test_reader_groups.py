"""Groups in the stream reader, called as Spark calls it: a micro-batch takes them whole, and no two tasks share one."""

from __future__ import annotations

from itertools import chain

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from lmqcluster import Client
from lmqcluster.spark.base.errors import LeftBehindError
from lmqcluster.spark.reading.slices import Slice
from lmqcluster.spark.reading.stream_reader import StreamReader

from .queues import NewReader, numbered, pulled, values


def push(client: Client, queue: str, contents: list[bytes], group: str) -> None:
    """Push messages of a group."""
    for start in range(0, len(contents), 2_000):
        part = contents[start : start + 2_000]
        client.push_many(queue, part, options=[{"group": group}] * len(part))


def available_now(reader: StreamReader, most: int) -> list[list[bytes]]:
    """Return the values that each micro-batch of a query with Trigger.AvailableNow reads."""
    reader.prepareForTriggerAvailableNow()
    batches, start = [], reader.initialOffset()
    while (end := reader.latestOffset(start, ReadMaxRows(most))) != start:
        batches.append(values(reader, start, end))
        reader.commit(end)
        start = end
    return batches


def test_available_now_takes_all_of_a_group(new_reader: NewReader, client: Client, queue: str) -> None:
    push(client, queue, numbered(40), "g")
    assert new_reader().reportLatestOffset()["backlog"] == 40
    batches = available_now(new_reader(), 15)
    assert [len(batch) for batch in batches] == [15, 15, 10]
    assert list(chain.from_iterable(batches)) == numbered(40)
    assert pulled(client, queue) == []


def test_a_long_group_takes_few_micro_batches(new_reader: NewReader, client: Client, queue: str) -> None:
    push(client, queue, numbered(10_000), "g")
    batches = available_now(new_reader(minPartitions="8"), 3_000)
    assert [len(batch) for batch in batches] == [3_000, 3_000, 3_000, 1_000]
    assert list(chain.from_iterable(batches)) == numbered(10_000)


def test_no_two_tasks_share_a_group(new_reader: NewReader, client: Client, queue: str) -> None:
    names = [f"g{number}" for number in range(5)]
    for number, name in enumerate(names):
        push(client, queue, numbered(1 + 20 * number, name), name)
    client.push_many(queue, numbered(50, "plain"))
    reader = new_reader(minPartitions="6")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    parts = [part for part in reader.partitions(start, end) if isinstance(part, Slice)]
    assert 3 <= len(parts) <= 6
    found = [[value for batch in reader.read(part) for value in batch.column("value").to_pylist()] for part in parts]
    for number, name in enumerate(names):
        holding = [[one for one in part if one.startswith(f"{name}-".encode())] for part in found]
        assert [part for part in holding if part] == [numbered(1 + 20 * number, name)]
    # Messages without a group are divided as before, and every message is read once.
    assert sum(any(one.startswith(b"plain") for one in part) for part in found) > 1
    assert len(set(chain.from_iterable(found))) == sum(map(len, found)) == sum(1 + 20 * n for n in range(5)) + 50


def test_a_group_that_another_consumer_works_on_is_reported_as_left(
    new_reader: NewReader, client: Client, queue: str
) -> None:
    push(client, queue, numbered(5), "g")
    client.push_many(queue, [b"x", b"y"])
    (held,) = client.pull_many(queue, 1)
    reader = new_reader()
    with pytest.raises(LeftBehindError, match=r"4 messages .* 4 wait for messages of their groups that are leased"):
        available_now(reader, 10)
    # The messages that could be read are settled.
    assert held.ack()
    assert available_now(new_reader(), 10) == [numbered(5)[1:]]
    assert client.backlog(queue=queue).messages == 0
