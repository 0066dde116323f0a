"""A task's rows are stored once, whatever happens to its attempts: on a real cluster, without Spark."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Sequence

import pytest

from lmqcluster import Client, LmqError
from lmqcluster.client import PushOptions
from lmqcluster.spark.base.connecting import Cluster
from lmqcluster.spark.base.options import Write
from lmqcluster.spark.writing.pushing import Pusher, Run, Stream, finish

from .queues import numbered, pulled

REQUEST = 20


class BreakdownError(Exception):
    """The end of an attempt."""


def options(servers: str) -> Write:
    """Options for small requests."""
    return Write.parse({"lmq.servers": servers, "lmq.batchSize": str(REQUEST)})


def attempt(servers: str, job: str, queue: str, rows: Sequence[bytes], *, until: int | None = None) -> int:
    """Push rows as a task does, or only the first ones and then fail; return the number stored."""
    pusher = Pusher(options(servers), job, 0)
    with contextlib.suppress(BreakdownError), pusher:
        pusher.add(queue, rows[:until])
        if until is not None:
            raise BreakdownError
    return pusher.stored


@pytest.mark.parametrize("seed", range(5))
def test_attempts_in_any_order_store_every_row_once(servers: str, client: Client, queue: str, seed: int) -> None:
    """As after a shuffle, a repeated task has the same rows in another order, and fails at another row."""
    chance = random.Random(seed)
    rows = [b"%d" % chance.randrange(100) for _ in range(300)]
    stored = 0
    for until in [chance.randrange(301) for _ in range(3)] + [None, None]:
        chance.shuffle(rows)
        stored += attempt(servers, queue, queue, rows, until=until)
    assert stored == len(rows)
    assert sorted(pulled(client, queue)) == sorted(rows)


def test_rows_keep_their_order(servers: str, client: Client, queue: str) -> None:
    rows = numbered(300)
    attempt(servers, queue, queue, rows, until=100)
    attempt(servers, queue, queue, rows)
    assert pulled(client, queue) == rows


def test_attempts_at_the_same_time_store_every_row_once(servers: str, client: Client, queue: str) -> None:
    """As with speculative execution, both run to the end, alternating request by request."""
    rows = numbered(400)
    turns = threading.Barrier(2)
    stored: list[int] = []

    def push(mine: list[bytes]) -> None:
        with Pusher(options(servers), queue, 0) as pusher:
            for start in range(0, len(mine), 2 * REQUEST):
                turns.wait(60)
                pusher.add(queue, mine[start : start + 2 * REQUEST])
        stored.append(pusher.stored)

    threads = [threading.Thread(target=push, args=(mine,)) for mine in (rows, rows[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sum(stored) == len(rows)
    assert sorted(pulled(client, queue)) == rows


def test_a_job_costs_one_number_and_notes_only_while_it_is_unfinished(servers: str, client: Client, queue: str) -> None:
    def job() -> tuple[int, int, int]:
        (found,) = [one for one in client.jobs() if one["name"] == queue]
        return found["streams"], found["messages"], found["note_bytes"]

    attempt(servers, queue, queue, numbered(1000), until=500)
    assert job() == (1, 500, 16 * 500)
    with Pusher(options(servers), queue, 0) as pusher:
        pusher.add(queue, numbered(1000))
    assert pusher.streams == [Stream(queue, f"0/{queue}", 1000)]
    assert job() == (1, 1000, 16 * 1000)
    with Cluster(options(servers).connection) as cluster:
        finish(cluster, queue, pusher.streams)
        assert job() == (1, 1000, 0)
        # Later rows count as stored.
        assert attempt(servers, queue, queue, [b"late"]) == 0
        assert client.end_jobs([queue]) == 1
        finish(cluster, queue, pusher.streams)
    assert len(pulled(client, queue)) == 1000


def test_a_run_with_other_partitions_stores_what_is_missing(servers: str, client: Client, queue: str) -> None:
    """Eight tasks of ten rows, of which five ended; then two tasks of forty, and a repetition of the epoch."""
    rows = [b"%d" % (number // 3) for number in range(80)]
    stored = 0
    for index in range(5):
        with Pusher(options(servers), queue, index, Run(4, "first")) as pusher:
            pusher.add(queue, rows[index * 10 : index * 10 + 10])
        stored += pusher.stored
    digests = 0
    for index in range(2):
        with Pusher(options(servers), queue, index, Run(4, "second")) as pusher:
            pusher.add(queue, rows[::-1][index * 40 : index * 40 + 40])
        stored, digests = stored + pusher.stored, digests + pusher.digests
    assert stored == 80
    total = (digests % (1 << 128)).to_bytes(16, "big")
    client.finish_epoch(queue, 4, "second", 80, total)
    with Pusher(options(servers), queue, 0, Run(4, "third")) as pusher:
        pusher.add(queue, rows)
    assert (pusher.stored, pusher.rows) == (0, 80)
    client.finish_epoch(queue, 4, "third", pusher.rows, pusher.digests.to_bytes(16, "big"))
    with pytest.raises(LmqError, match="finished with 80 rows, and these 79 are not the same"):
        client.finish_epoch(queue, 4, "third", 79, total)
    assert sorted(pulled(client, queue)) == sorted(rows)
    (job,) = [one for one in client.jobs() if one["name"] == queue]
    assert (job["finished_epoch"], job["open_epoch"], job["messages"], job["note_bytes"]) == (4, None, 80, 0)


def test_equal_rows_of_other_queues_are_other_rows(servers: str, client: Client, queue: str) -> None:
    other = f"{queue}-other"
    with Pusher(options(servers), queue, 0, Run(0, "first")) as pusher:
        pusher.add(queue, [b"same"])
    with Pusher(options(servers), queue, 0, Run(0, "second")) as pusher:
        pusher.add(other, [b"same"])
    with pytest.raises(LmqError, match="all attempts together have stored 2"):
        client.finish_epoch(queue, 0, "second", pusher.rows, pusher.digests.to_bytes(16, "big"))
    assert [pulled(client, one) for one in (queue, other)] == [[b"same"]] * 2


def test_a_task_of_an_earlier_run_stores_nothing_more(servers: str, client: Client, queue: str) -> None:
    rows = numbered(3 * REQUEST)

    def outlive_the_run() -> None:
        with Pusher(options(servers), queue, 0, Run(0, "first")) as old:
            old.add(queue, rows[:REQUEST])
            old._wait()
            with Pusher(options(servers), queue, 0, Run(0, "second")) as pusher:
                pusher.add(queue, rows)
            old.add(queue, rows[REQUEST:])

    with pytest.raises(LmqError, match="another run has taken over"):
        outlive_the_run()
    with pytest.raises(LmqError, match="another run of epoch 0 has taken over"):
        Pusher(options(servers), queue, 0, Run(0, "first"))
    assert pulled(client, queue) == rows


def test_an_attempt_whose_input_is_cut_short_does_not_end_the_stream(servers: str, client: Client, queue: str) -> None:
    """If the part of a task before the sink fails, the sink sees the end of its rows, as of a smaller task."""
    assert attempt(servers, queue, queue, numbered(1000)[:300]) == 300
    assert attempt(servers, queue, queue, numbered(1000)) == 700
    assert pulled(client, queue) == numbered(1000)


def test_an_attempt_after_the_end_of_the_write_stores_nothing_more(servers: str, client: Client, queue: str) -> None:
    rows = numbered(5 * REQUEST)

    def outlive_the_write() -> None:
        with Pusher(options(servers), queue, 0) as pusher:
            pusher.add(queue, rows[: 3 * REQUEST])
            assert attempt(servers, queue, queue, rows) > 0
            client.end_jobs([queue])
            pusher.add(queue, rows[3 * REQUEST :])

    with pytest.raises(LmqError, match="ended while this attempt of partition 0 was still running"):
        outlive_the_write()
    assert pulled(client, queue) == rows


def test_partitions_and_queues_are_independent(servers: str, client: Client, queue: str) -> None:
    long_name = queue + "x" * (255 - len(queue))
    for partition in range(2):
        with Pusher(options(servers), queue, partition) as pusher:
            pusher.add(queue, [b"a", b"a"])
            pusher.add(long_name, [b"b"])
    assert pulled(client, queue) == [b"a"] * 4
    assert pulled(client, long_name) == [b"b"] * 2


def test_rows_with_and_without_idempotency_keys_keep_their_order(servers: str, client: Client, queue: str) -> None:
    values, keys = [b"a", b"b", b"b", b"c", b"c"], [None, b"k", b"k", None, None]
    for job in ("first", "second"):
        with Pusher(options(servers), f"{queue}-{job}", 0) as pusher:
            pusher.add(queue, values, keys)
    assert pulled(client, queue) == [b"a", b"b", b"c", b"c", b"a", b"c", b"c"]


@pytest.mark.parametrize("keys", [None, [b"1", b"2"]], ids=["numbered", "with keys"])
def test_content_types_and_attributes_are_kept(
    servers: str, client: Client, queue: str, keys: list[bytes | None] | None
) -> None:
    with Pusher(options(servers), queue, 0) as pusher:
        pusher.add(
            queue, [b"1,2", b"plain"], keys, ["text/csv", None], [{"attributes": {"note": "kept", "n": 1}}, None]
        )
    typed, plain = client.peek(queue, 10)
    assert (typed.content_type, typed.body, typed.attributes) == ("text/csv", b"1,2", {"n": 1, "note": "kept"})
    assert (plain.content_type, plain.attributes) == ("application/x-msgpack", {})


def test_requests_are_bounded_by_their_attributes_too(servers: str, client: Client, queue: str) -> None:
    attributes: list[PushOptions | None] = [{"attributes": {"raw": bytes(9_000)}}] * 8
    pushing = Write.parse({"lmq.servers": servers, "lmq.batchBytes": "20000"})
    with Pusher(pushing, queue, 0) as pusher:
        pusher.add(queue, [b""] * 8, options=attributes)
        assert len(pusher._streams[queue].unsent.values) == 2
    assert len(client.peek(queue, 10)) == 8


def test_rows_carry_options_and_are_stored_once_with_them(servers: str, client: Client, queue: str) -> None:
    """Rows that differ only in their options are different rows."""
    rows = [b"same"] * 3 + [b"last"]
    wanted: list[PushOptions | None] = [{"group": "a", "priority": 5}, {"group": "b"}, None, {"priority": 9}]
    for until in (2, None):
        pusher = Pusher(options(servers), queue, 0)
        with contextlib.suppress(BreakdownError), pusher:
            pusher.add(queue, rows[:until], options=wanted[:until])
            pusher._flush()
            if until is not None:
                raise BreakdownError
    found = client.pull_many(queue, 10)
    assert [(message.content, message.group, message.priority) for message in found] == [
        (b"same", "b", 0),
        (b"same", None, 0),
        (b"same", "a", 5),
        (b"last", None, 9),
    ]
