"""The stream reader on a real cluster, called as Spark calls it: its results, and the state of the cluster in
between.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import pairwise

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

from lmqcluster import Client
from lmqcluster.spark.base.errors import DataLossError, OptionError, TakenOverError
from lmqcluster.spark.base.options import StreamRead
from lmqcluster.spark.base.schema import Extras, read_schema
from lmqcluster.spark.reading.slices import Slice
from lmqcluster.spark.reading.stream_reader import StreamReader
from tests.integration.cluster import wait_for

from .queues import NewReader, expire_leases, numbered, push, settled_and_open, values, wait_until_ready


def test_a_read_shows_how_often_a_message_was_delivered(new_reader: NewReader, client: Client, queue: str) -> None:
    push(client, queue, numbered(2))
    message = client.pull(queue, timeout=0)
    assert message is not None
    message.nack()
    assert client.peek(queue, 5).details is None
    looked_at = client.peek(queue, 5, details=True).details
    assert looked_at is not None
    assert looked_at.deliveries == [1, 0]
    schema = StructType([field for field in read_schema(Extras(delivery=True)) if field.name in ("value", "delivery")])
    reader = new_reader(schema=schema, includeDelivery="true")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    [part] = reader.partitions(start, end)
    rows = [row for batch in reader.read(part) for row in batch.to_pylist()]
    assert rows == [{"value": b"m-000001", "delivery": 1}, {"value": b"m-000000", "delivery": 2}]


def test_without_a_limit_everything_is_read(new_reader: NewReader, client: Client, queue: str) -> None:
    push(client, queue, numbered(20))
    client.reserve_batch(queue, 1, queue=queue, count=5)
    reader = new_reader()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert (end["first"], end["epoch"]) == (1, 2)
    assert values(reader, start, end) == numbered(20)
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_a_restarted_reader_reads_the_same_in_the_same_order(new_reader: NewReader, client: Client, queue: str) -> None:
    push(client, queue, numbered(50))
    reader = new_reader(minPartitions="3")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(30))
    assert [part.end - part.start for part in reader.partitions(start, end) if isinstance(part, Slice)] == [10, 10, 10]
    reader.stop()
    again = new_reader(minPartitions="2")
    assert values(again, again.initialOffset(), end) == numbered(50)[:30]
    assert again.latestOffset(start, ReadMaxRows(50)) == end


def test_a_second_query_takes_the_subscription_over_and_the_first_one_fails(
    new_reader: NewReader, client: Client, queue: str
) -> None:
    push(client, queue, numbered(10))
    first = new_reader(maxOffsetsPerTrigger="5")
    start = first.initialOffset()
    end = first.latestOffset(start, ReadMaxRows(5))
    (part,) = first.partitions(start, end)
    second = new_reader()
    assert second.latestOffset(second.initialOffset(), ReadMaxRows(5)) == end
    for call in (
        lambda: list(first.read(part)),
        lambda: first.latestOffset(end, ReadMaxRows(5)),
        lambda: first.commit(end),
    ):
        with pytest.raises(TakenOverError, match="was taken over by another query, which started later"):
            call()
    assert settled_and_open(client, queue) == (0, [(1, "live", 5)])
    # The second query has everything, once.
    assert values(second, start, end) == numbered(10)[:5]
    last = second.latestOffset(end, ReadMaxRows(5))
    assert values(second, end, last) == numbered(10)[5:]
    second.commit(last)
    assert settled_and_open(client, queue) == (2, [])
    assert client.backlog(queue=queue).messages == 0


def test_expired_leases_charge_no_delivery(new_reader: NewReader, client: Client, queue: str) -> None:
    client.update_props(queue, {"retry": 0})
    push(client, queue, numbered(3))
    offset = None
    for _ in range(3):
        reader = new_reader()
        offset = offset or reader.initialOffset()
        assert reader.latestOffset(offset, ReadMaxRows(3)) != offset
        reader.stop()
        # This simulates a crash before Spark has written the offset, and a long pause.
        expire_leases(client, queue)
        wait_until_ready(client, queue)
    reader = new_reader()
    assert offset is not None
    end = reader.latestOffset(offset, ReadMaxRows(3))
    assert values(reader, offset, end) == numbered(3)
    reader.commit(end)
    assert client.backlog(queue=queue).messages == 0


def test_committed_batches_are_settled_permanently(new_reader: NewReader, client: Client, queue: str) -> None:
    push(client, queue, numbered(3))
    reader = new_reader()
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(3))
    reader.commit(end)
    reader.commit(end)
    new_reader().commit(end)
    assert settled_and_open(client, queue) == (1, [])


def test_skipped_messages_are_reported(
    new_reader: NewReader, client: Client, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    push(client, queue, numbered(10))
    first = new_reader()
    start = first.initialOffset()
    end = first.latestOffset(start, ReadMaxRows(10))
    (part,) = first.partitions(start, end)
    first.stop()
    expire_leases(client, queue)
    wait_until_ready(client, queue)
    lenient = new_reader(failOnDataLoss="false")
    # Tasks read in the session of the query that planned them.
    with pytest.raises(DataLossError, match="its lease ended"):
        list(new_reader().read(part))
    with caplog.at_level(logging.WARNING, "lmqcluster.spark"):
        assert list(lenient.read(part)) == []
        with pytest.raises(DataLossError, match="it is expired"):
            new_reader().partitions(start, end)
        assert lenient.partitions(start, end) == []
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "Messages 0 to 9 are skipped" in caplog.messages[0]
    assert f"batch 1 of subscription {queue!r} is no longer leased (it is expired)" in caplog.messages[1]
    # They are redelivered.
    later = lenient.latestOffset(end, ReadMaxRows(10))
    assert values(lenient, end, later) == numbered(10)


def test_a_query_that_failed_because_data_may_be_lost_fails_again_unchanged(
    new_reader: NewReader, client: Client, queue: str
) -> None:
    push(client, queue, numbered(3))
    first = new_reader()
    start = first.initialOffset()
    end = first.latestOffset(start, ReadMaxRows(3))
    assert values(first, start, end) == numbered(3)
    expire_leases(client, queue)
    wait_until_ready(client, queue)
    for reader in (first, first, new_reader(), new_reader()):
        with pytest.raises(DataLossError, match=r"lease of batch 1 of .* expired"):
            reader.latestOffset(end, ReadMaxRows(3))
        with pytest.raises(DataLossError, match=r"lease of batch 1 of .* expired"):
            reader.commit(end)
    lenient = new_reader(failOnDataLoss="false")
    later = lenient.latestOffset(end, ReadMaxRows(3))
    assert values(lenient, end, later) == numbered(3)


@pytest.mark.parametrize("end", ["rm", "abandon"])
def test_a_batch_that_the_cluster_does_not_know_is_data_loss(
    new_reader: NewReader, client: Client, queue: str, end: str
) -> None:
    """The sink has it, so its messages are duplicated."""
    push(client, queue, numbered(10))
    reader = new_reader()
    start = reader.initialOffset()
    planned = reader.latestOffset(start, ReadMaxRows(5))
    assert values(reader, start, planned) == numbered(5)
    reader.stop()
    if end == "rm":
        client.delete_subscription(queue)
    else:
        client.abandon_batches(queue, session=client.claim_subscription(queue))
    for _ in range(2):
        with pytest.raises(DataLossError, match=r"does not know batch 1 .* may be read twice"):
            new_reader().latestOffset(planned, ReadMaxRows(5))
    with pytest.raises(DataLossError, match=r"does not know batch 1"):
        new_reader().partitions(start, planned)
    bold = new_reader(failOnDataLoss="false")
    after = bold.latestOffset(planned, ReadAllAvailable())
    assert values(bold, planned, after) == numbered(10)


def test_an_older_checkpoint_is_data_loss_at_once(new_reader: NewReader, client: Client, queue: str) -> None:
    push(client, queue, numbered(9))
    reader = new_reader()
    offsets = [reader.initialOffset()]
    for _ in range(3):
        offsets.append(reader.latestOffset(offsets[-1], ReadMaxRows(3)))
    reader.commit(offsets[-1])
    reader.stop()
    # There is nothing to read, and messages were settled nevertheless.
    with pytest.raises(
        DataLossError, match=r"batches 2 to 3 of subscription .* an older copy: their messages are removed"
    ):
        new_reader().latestOffset(offsets[1], ReadMaxRows(3))
    with pytest.raises(DataLossError, match=r"batches 2 to 2 of subscription .* their messages are removed"):
        new_reader().partitions(offsets[1], offsets[2])
    bold = new_reader(failOnDataLoss="false")
    assert bold.latestOffset(offsets[1], ReadMaxRows(3)) == offsets[1]


def test_a_random_subscription_is_held_briefly_until_its_name_is_safe(servers: str, client: Client, queue: str) -> None:
    push(client, queue, numbered(3))
    given = {"lmq.servers": servers, "subscribe": queue}
    reader = StreamReader(StreamRead.parse(given), read_schema(Extras()))
    start = reader.initialOffset()
    assert reader.initialOffset() == start
    end = reader.latestOffset(start, ReadMaxRows(10))
    (batch,) = (client.subscription(end["subscription"]) or {})["batches"]
    assert 0 < batch["expires_in_s"] <= 120
    reader.partitions(start, end)
    (batch,) = (client.subscription(end["subscription"]) or {})["batches"]
    assert batch["expires_in_s"] > 86_000
    reader.stop()


def test_the_first_lease_of_a_random_subscription_becomes_whole_without_a_task(
    servers: str, client: Client, queue: str
) -> None:
    push(client, queue, numbered(3))
    reader = StreamReader(StreamRead.parse({"lmq.servers": servers, "subscribe": queue}), read_schema(Extras()))
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(10))
    # This simulates a foreachBatch function that is busy before it requests rows.
    wait_for(lambda: expires_in_s(client, end["subscription"]) > 86_000, "the whole lease")
    reader.stop()


def expires_in_s(client: Client, subscription: str) -> float:
    """Return the remaining time of the only batch."""
    (batch,) = (client.subscription(subscription) or {})["batches"]
    return float(batch["expires_in_s"])


@pytest.mark.parametrize("named", [True, False])
def test_a_restarted_reader_keeps_the_planned_micro_batch(
    new_reader: NewReader, client: Client, queue: str, named: bool
) -> None:
    push(client, queue, numbered(3))
    options = {} if named else {"lmq.subscription": ""}
    first = new_reader(**options, **{"lmq.lease": "30"})
    start = first.initialOffset()
    end = first.latestOffset(start, ReadMaxRows(3))
    assert values(first, start, end) == numbered(3)
    first.stop()
    # Spark asks a restarted reader for the slices of the planned micro-batch first, and for nothing else until the sink
    # has it.
    again = new_reader(**options, **{"lmq.lease": "3"})
    (part,) = again.partitions(start, end)
    left_s = [expires_in_s(client, end["subscription"])]
    assert left_s[0] <= 3

    def renewed() -> bool:
        left_s.append(expires_in_s(client, end["subscription"]))
        return sum(later > earlier for earlier, later in pairwise(left_s)) >= 4

    wait_for(renewed, "renewals for longer than the lease")
    assert [value for batch in again.read(part) for value in batch.column("value").to_pylist()] == numbered(3)
    again.commit(end)
    assert client.backlog(queue=queue).messages == 0


def test_a_checkpoint_of_another_queue_is_refused(new_reader: NewReader, client: Client, queue: str) -> None:
    push(client, queue, numbered(1))
    reader = new_reader()
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(1))
    with pytest.raises(OptionError, match=f"selects queue 'other', but the checkpoint belongs to queue '{queue}'"):
        new_reader(subscribe="other").latestOffset(end, ReadMaxRows(1))


def test_a_micro_batch_waits_for_enough_messages_or_its_timeout(
    new_reader: NewReader, client: Client, queue: str
) -> None:
    push(client, queue, numbered(2))
    reader = new_reader(minOffsetsPerTrigger="3")
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadMaxRows(10)) == start
    push(client, queue, [b"third"])
    end = reader.latestOffset(start, ReadMaxRows(10))
    assert values(reader, start, end) == [*numbered(2), b"third"]
    push(client, queue, [b"late"])
    impatient = new_reader(minOffsetsPerTrigger="3", maxTriggerDelay="0.05")
    later = end
    while later == end:
        later = impatient.latestOffset(end, ReadMaxRows(10))
    assert values(impatient, end, later) == [b"late"]
    # AvailableNow reads exactly the current messages.
    push(client, queue, [b"last"])
    final = new_reader(minOffsetsPerTrigger="3")
    final.prepareForTriggerAvailableNow()
    assert values(final, later, final.latestOffset(later, ReadMaxRows(10))) == [b"last"]


def test_a_micro_batch_is_limited_by_bytes(new_reader: NewReader, client: Client, new_queue: Callable[[], str]) -> None:
    first, second = new_queue(), new_queue()
    push(client, first, [b"x" * 10] * 4 + [b"y" * 1000] * 5)
    push(client, second, [b"z" * 1000])

    def batch(**options: str) -> list[int]:
        reader = new_reader(**options)
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadMaxRows(100))
        sizes = [len(value) for value in values(reader, start, end)]
        reader.stop()
        client.delete_subscription(options["lmq.subscription"])
        return sizes

    one = {"subscribe": first, "lmq.subscription": first}
    assert batch(**one, maxBytesPerTrigger="2000") == [10] * 4 + [1000] * 2
    assert batch(**one, maxBytesPerTrigger="1") == [10]
    assert batch(**one) == [10] * 4 + [1000] * 5
    # Messages of several queues count with the average size.
    two = {"subscribe": f"{first},{second}", "lmq.subscription": second}
    assert len(batch(**two, maxBytesPerTrigger="2000")) == 2000 * 10 // 6040


def test_the_progress_shows_the_backlog_and_its_age(new_reader: NewReader, client: Client, queue: str) -> None:
    reader = new_reader()
    assert reader.reportLatestOffset() == {"backlog": 0, "backlog_bytes": 0, "oldest_age_s": None, "queues": {}}
    push(client, queue, numbered(2))
    wait_for(lambda: reader.reportLatestOffset()["oldest_age_s"] > 0, "some age")
    assert reader.reportLatestOffset()["backlog"] == 2


def test_several_queues_are_read_as_one_stream(
    new_reader: NewReader, client: Client, new_queue: Callable[[], str]
) -> None:
    names = [f"{new_queue()}.x", f"{new_queue()} (y)"]
    for name in names:
        push(client, name, numbered(2, name))
    push(client, f"{names[0]}{names[1]}", [b"of another queue"])
    reader = new_reader(subscribe=",".join(names))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(10))
    assert sorted(values(reader, start, end)) == sorted(numbered(2, names[0]) + numbered(2, names[1]))


def test_delayed_messages_are_found_when_they_are_due(new_reader: NewReader, client: Client, queue: str) -> None:
    push(client, queue, numbered(1))
    client.update_props(queue, {"timeout": 1.0})
    (message,) = client.pull_many(queue, 1)
    assert message.content == numbered(1)[0]
    reader = new_reader()
    start = end = reader.initialOffset()
    # No other client sends anything that would advance the cluster's clock.
    while end == start:
        end = reader.latestOffset(start, ReadMaxRows(10))
    assert values(reader, start, end) == numbered(1)
