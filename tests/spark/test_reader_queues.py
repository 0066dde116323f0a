"""Queues that are deleted, exclusive, suspended, added or removed under a query; the reader is called as
Spark calls it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from lmqcluster import Client
from lmqcluster.spark.base.errors import DataLossError, ExclusiveQueueError, LeftBehindError

from .queues import NewReader, numbered, pulled, push, settled_and_open, values

MOST = ReadMaxRows(100)


@pytest.mark.parametrize("recreated", [False, True])
@pytest.mark.parametrize("by_pattern", [False, True])
def test_a_queue_deleted_after_the_sink_has_its_messages_does_not_end_the_query(
    new_reader: NewReader, client: Client, queue: str, by_pattern: bool, recreated: bool
) -> None:
    other = f"{queue}-other"
    push(client, queue, numbered(3))
    push(client, other, numbered(3, "other"))
    options = {"subscribePattern": f"^{queue}", "subscribe": ""} if by_pattern else {"subscribe": f"{queue},{other}"}
    reader = new_reader(**options)
    start = reader.initialOffset()
    end = reader.latestOffset(start, MOST)
    assert len(values(reader, start, end)) == 6
    client.delete(queue)
    if recreated:
        push(client, queue, [b"new"])
    later = reader.latestOffset(end, MOST)
    assert (values(reader, end, later) if recreated else later) == ([b"new"] if recreated else end)
    reader.commit(later)
    assert settled_and_open(client, queue)[1] == []
    assert pulled(client, other) == []


def test_a_queue_deleted_before_it_was_read_is_named(
    new_reader: NewReader, client: Client, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    other = f"{queue}-other"
    push(client, queue, numbered(3))
    push(client, other, numbered(3, "other"))
    options = {"subscribe": f"{queue},{other}"}
    reader = new_reader(**options)
    start = reader.initialOffset()
    end = reader.latestOffset(start, MOST)
    client.delete(queue)
    with pytest.raises(
        DataLossError, match=rf"queue '{queue}' are gone, because the queue was deleted.* all other messages .*are read"
    ):
        values(reader, start, end)
    reader.stop()
    lenient = new_reader(**options, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "lmqcluster.spark"):
        # The messages of the other queue are read: they are settled with the batch.
        assert values(lenient, start, end) == numbered(3, "other")
    assert "3 messages of batch 1" in caplog.messages[0]
    lenient.commit(end)
    assert pulled(client, other) == []


def test_an_exclusive_queue_is_an_error_at_once(new_reader: NewReader, client: Client, queue: str) -> None:
    client.update_props(queue, {"exclusive": True})
    for lenient in ("true", "false"):
        reader = new_reader(failOnDataLoss=lenient)
        with pytest.raises(
            ExclusiveQueueError, match=rf"'{queue}' is exclusive.*lmq-admin queue set {queue} --no-exclusive"
        ):
            reader.latestOffset(reader.initialOffset(), MOST)
        reader.stop()


def test_queues_that_deliver_nothing_are_reported_and_do_not_block_the_others(
    new_reader: NewReader, client: Client, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    names = {kind: f"{queue}-{kind}" for kind in ("exclusive", "suspended", "open")}
    for name in names.values():
        push(client, name, numbered(2, name))
    client.update_props(names["exclusive"], {"exclusive": True})
    client.suspend(names["suspended"])
    reader = new_reader(subscribe="", subscribePattern=f"^{queue}-")
    report = reader.reportLatestOffset()
    assert {kind: report[kind] for kind in ("exclusive", "suspended")} == {
        kind: [names[kind]] for kind in ("exclusive", "suspended")
    }
    start = reader.initialOffset()
    with caplog.at_level(logging.WARNING, "lmqcluster.spark"):
        end = reader.latestOffset(start, MOST)
        assert values(reader, start, end) == numbered(2, names["open"])
        # No log entry is written for a queue that delivers nothing.
        assert reader.latestOffset(end, MOST) == end
    assert sorted(caplog.messages) == [
        f"queue {names[kind]!r} is {kind}; it is not read" for kind in ("exclusive", "suspended")
    ]
    reader.stop()
    once = new_reader(subscribe="", subscribePattern=f"^{queue}-")
    once.prepareForTriggerAvailableNow()
    with pytest.raises(
        LeftBehindError, match=r"4 messages .*is exclusive \(2 messages\); .*is suspended \(2 messages\)"
    ):
        once.latestOffset(end, MOST)
    client.resume(names["suspended"])
    client.update_props(names["exclusive"], {"exclusive": False})
    last = once.latestOffset(end, MOST)
    assert sorted(values(once, end, last)) == sorted(numbered(2, names["exclusive"]) + numbered(2, names["suspended"]))


def test_queues_are_added_reordered_and_removed_under_a_checkpoint(
    new_reader: NewReader, client: Client, new_queue: Callable[[], str]
) -> None:
    first, second, third = (new_queue() for _ in range(3))
    for name in (first, second, third):
        push(client, name, numbered(2, name))
    offset: dict[str, Any] = {}
    seen: list[bytes] = []

    def run(*names: str, start: dict[str, Any] | None) -> dict[str, Any]:
        reader = new_reader(subscribe=",".join(names), **{"lmq.subscription": first})
        begin = start or reader.initialOffset()
        end = reader.latestOffset(begin, ReadMaxRows(3))
        seen.extend(values(reader, begin, end))
        reader.stop()
        return end

    offset = run(first, second, start=None)
    offset = run(second, first, start=offset)
    offset = run(second, first, third, start=offset)
    assert sorted(seen) == sorted(value for name in (first, second, third) for value in numbered(2, name))
    # The planned messages of a queue that is removed then are read to the end.
    push(client, first, numbered(1, "last"))
    reader = new_reader(subscribe=f"{first},{second}", **{"lmq.subscription": first})
    planned = reader.latestOffset(offset, MOST)
    reader.stop()
    without = new_reader(subscribe=second, **{"lmq.subscription": first})
    assert values(without, offset, planned) == numbered(1, "last")
    push(client, first, [b"not read"])
    assert without.latestOffset(planned, MOST) == planned
    assert pulled(client, first) == [b"not read"]


def test_an_exclusive_queue_hides_no_other_one(new_reader: NewReader, client: Client, queue: str) -> None:
    """It counts as backlog, with messages that are not due too."""
    shut, other = f"{queue}-shut", f"{queue}-open"
    client.push_many(shut, numbered(9), options=[{"delay": 3600}] * 9)
    push(client, other, numbered(2))
    client.update_props(shut, {"exclusive": True})
    reader = new_reader(subscribe="", subscribePattern=f"^{queue}-")
    start = reader.initialOffset()
    assert values(reader, start, reader.latestOffset(start, MOST)) == numbered(2)
