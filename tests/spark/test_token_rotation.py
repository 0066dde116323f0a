"""Tokens that end under a query: a principal keeps what its tokens have reserved and stored, and every row
arrives once.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from urllib.error import HTTPError

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lmqcluster import Client, LmqError
from lmqcluster.spark.base.errors import DataLossError
from lmqcluster.spark.base.options import Write
from lmqcluster.spark.writing.pushing import Pusher, Run
from tests.integration.cluster import NodeProcess, wait_for

from .queues import numbered, pulled, push
from .rotation import Query, Tokens

ROWS = 500
_numbers = count(1)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A separate node: with its first token all clients need one."""
    with NodeProcess(tmp_path_factory.mktemp("node")) as node:
        yield node


@pytest.fixture(scope="module")
def tokens(node: NodeProcess) -> Tokens:
    """The node's tokens."""
    return Tokens(node)


@pytest.fixture
def root(node: NodeProcess, tokens: Tokens) -> Iterator[Client]:
    """An administrator's client."""
    with Client(node.rpc, token=tokens.root) as client:
        yield client


@pytest.fixture
def names() -> tuple[str, str, str]:
    """A principal, and two tokens, that no other test uses."""
    number = next(_numbers)
    return f"etl-{number}", f"one-{number}", f"two-{number}"


@pytest.fixture
def query(node: NodeProcess, root: Client, queue: str) -> Query:
    """A query of a queue with 500 messages that reads 100 in each micro-batch."""
    push(root, queue, numbered(ROWS))
    return Query(node.rpc, queue)


def all_once(query: Query) -> bool:
    """Return whether the sink has every row exactly once."""
    return query.rows == numbered(ROWS)


def test_a_token_deleted_before_the_restart(tokens: Tokens, query: Query, names: tuple[str, str, str]) -> None:
    principal, one, two = names
    with query.started(tokens.create(one, principal)) as reader:
        query.advance(reader, 2)
    tokens.delete(one)
    with query.started(tokens.create(two, principal)) as reader:
        query.advance(reader)
    assert all_once(query), len(query.rows)


def test_a_token_deleted_after_the_restart(tokens: Tokens, query: Query, names: tuple[str, str, str]) -> None:
    principal, one, two = names
    with query.started(tokens.create(one, principal)) as reader:
        query.advance(reader, 2)
    secret = tokens.create(two, principal)
    with query.started(secret) as reader:
        query.advance(reader, 1)
        tokens.delete(one)
        query.advance(reader, 1)
    with query.started(secret) as reader:
        query.advance(reader)
    assert all_once(query), len(query.rows)


def test_a_token_that_expires(tokens: Tokens, query: Query, names: tuple[str, str, str]) -> None:
    principal, one, two = names
    secret = tokens.create(two, principal)
    for lifetime_s in (2, 10, 60):
        # A busy machine may need longer than the token lives.
        short = tokens.create(f"{one}-{lifetime_s}", principal, lifetime_s=lifetime_s)
        with contextlib.suppress(LmqError), query.started(short) as reader:
            query.advance(reader, 2 - len(query.rows) // 100)
        wait_for(partial(tokens.has_ended, short), "the end of the token")
        if len(query.rows) == 200:
            break
    assert len(query.rows) == 200
    with query.started(secret) as reader:
        query.advance(reader)
    assert all_once(query), len(query.rows)


def test_a_token_deleted_while_tasks_read(tokens: Tokens, query: Query, names: tuple[str, str, str]) -> None:
    principal, one, two = names
    with query.started(tokens.create(one, principal)) as reader:
        query.advance(reader, 1)
        assert query.plan(reader)
        tokens.delete(one)
        with pytest.raises(LmqError) as refused:
            query.run(reader)
    assert refused.value.code == "unauthorized"
    with query.started(tokens.create(two, principal)) as reader:
        query.advance(reader)
    assert all_once(query), len(query.rows)


def test_a_subscription_that_is_removed_is_data_loss(
    tokens: Tokens, root: Client, query: Query, queue: str, names: tuple[str, str, str]
) -> None:
    principal, one, _ = names
    secret = tokens.create(one, principal)
    with query.started(secret) as reader:
        query.advance(reader, 2)
    root.delete_subscription(f"{queue}-query")
    for _ in range(2):
        with query.started(secret) as reader, pytest.raises(DataLossError, match="may be read twice"):
            query.advance(reader)
    assert len(query.rows) == 200
    with query.started(secret, failOnDataLoss="false") as reader:
        query.advance(reader)
    assert sorted(query.rows) == sorted(numbered(ROWS) + numbered(ROWS)[100:200])


def test_rows_of_an_epoch_stored_by_another_token_are_not_stored_again(
    node: NodeProcess, tokens: Tokens, root: Client, queue: str, names: tuple[str, str, str]
) -> None:
    principal, one, two = names
    rows = numbered(80)

    def write(secret: str, run: str, tasks: list[list[bytes]]) -> tuple[int, Pusher]:
        given = Write.parse({"lmq.servers": node.rpc, "lmq.token": secret})
        stored = 0
        for index, task in enumerate(tasks):
            with Pusher(given, queue, index, Run(3, run)) as pusher:
                pusher.add(queue, task)
            stored += pusher.stored
        return stored, pusher

    assert write(tokens.create(one, principal), "first", [rows[:40]])[0] == 40
    tokens.delete(one)
    secret = tokens.create(two, principal)
    stored, pusher = write(secret, "second", [rows])
    assert sorted(pulled(root, queue)) == rows
    assert stored == 40
    with Client(node.rpc, token=secret) as client:
        client.finish_epoch(queue, 3, "second", pusher.rows, pusher.digests.to_bytes(16, "big"))


def test_a_token_of_another_principal_is_refused_and_changes_nothing(
    tokens: Tokens, query: Query, queue: str, names: tuple[str, str, str]
) -> None:
    """These tokens have no named principal: the query fails at its start, whether or not the old token still exists."""
    _, one, two = names
    with query.started(tokens.create(one)) as reader:
        query.advance(reader, 2)
    secret = tokens.create(two)
    for _ in range(2):
        with query.started(secret) as reader, pytest.raises(LmqError, match=f"belongs to principal '{one}'") as refused:
            query.advance(reader)
        assert refused.value.code == "forbidden"
        tokens.delete_if_known(one)
    with pytest.raises(HTTPError, match="409"):
        # A token of the same name does not take over by its name either.
        tokens.create(one)
    with query.started(tokens.create(f"{two}-heir", one)) as reader:
        query.advance(reader)
    assert all_once(query), len(query.rows)


def test_a_sink_under_another_principal_is_refused(
    node: NodeProcess, tokens: Tokens, root: Client, queue: str, names: tuple[str, str, str]
) -> None:
    _, one, two = names
    # The job of a streaming write has the query's id.
    job = f"spark/stream/{uuid.uuid4()}"
    secrets = [tokens.create(one), tokens.create(two)]
    writes = [Write.parse({"lmq.servers": node.rpc, "lmq.token": secret}) for secret in secrets]
    with Pusher(writes[0], job, 0, Run(3, "first")) as pusher:
        pusher.add(queue, numbered(40))
    with pytest.raises(LmqError, match=f"belongs to principal '{one}'"):
        Pusher(writes[1], job, 0, Run(3, "second"))
    assert len(pulled(root, queue)) == 40


def test_a_running_query_outlives_its_token(
    spark: SparkSession,
    node: NodeProcess,
    tokens: Tokens,
    root: Client,
    queue: str,
    names: tuple[str, str, str],
    tmp_path: Path,
) -> None:
    """In Spark itself: the new token first, then the old one is deleted, and vice versa."""
    principal, one, two = names
    push(root, queue, numbered(300))

    def start(secret: str) -> StreamingQuery:
        rows = spark.readStream.format("lmq").option("lmq.servers", node.rpc).option("lmq.token", secret)
        rows = rows.option("subscribe", queue).option("maxOffsetsPerTrigger", "100").option("lmq.timeout", "60")
        sink = rows.load().select("value").writeStream.format("parquet").option("path", str(tmp_path / "table"))
        return sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(processingTime="1 hour").start()

    def first_micro_batch(secret: str) -> StreamingQuery:
        """Start the query and stop it after its first micro-batch, so that this one stays unsettled."""
        query = start(secret)
        wait_for(lambda: query.lastProgress, "a micro-batch")
        return query

    query = first_micro_batch(tokens.create(one, principal))
    query.stop()
    secret = tokens.create(two, principal)
    query = first_micro_batch(secret)
    tokens.delete(one)
    query.stop()
    tokens.delete(two)
    query = first_micro_batch(tokens.create(f"{two}-next", principal))
    assert query.exception() is None
    query.stop()
    rows = [bytes(row.value) for row in spark.read.parquet(str(tmp_path / "table")).collect()]
    assert sorted(rows) == numbered(300)
