"""Queries whose token is replaced, and whose only named node dies: on real nodes, mostly called as Spark calls it."""

from __future__ import annotations

import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadMaxRows

from lmqcluster import Client, LmqError
from lmqcluster.spark.base import connecting
from lmqcluster.spark.base.options import BatchRead, StreamRead, Write
from lmqcluster.spark.base.schema import Extras, read_schema
from lmqcluster.spark.reading.batch_reader import PeekReader
from lmqcluster.spark.reading.slices import Slice
from lmqcluster.spark.reading.stream_reader import StreamReader
from lmqcluster.spark.writing.pushing import Pusher
from tests.integration.cluster import Cluster, NodeProcess, wait_for
from tests.integration.test_membership_changes import agree, join, leave

from .queues import numbered, pulled, push

NewReader = Callable[..., StreamReader]
WAIT_S = 120.0


@pytest.fixture
def new_reader() -> Iterator[NewReader]:
    """A function that creates a reader, as a start of the query does."""
    with ExitStack() as readers:

        def make(**options: str) -> StreamReader:
            given = {name.replace("_", "."): value for name, value in options.items()}
            reader = StreamReader(StreamRead.parse(given), read_schema(Extras()))
            readers.callback(reader.stop)
            return reader

        yield make


def on_an_executor(reader: StreamReader, parts: Sequence[Any], **connection: Any) -> list[bytes]:
    """Return the values that tasks read in a process without earlier connections; it gets copies of the reader and of
    the slices.
    """
    connecting._nodes.cache_clear()
    keeper, reader._keeper = reader._keeper, None
    try:
        copy, slices = pickle.loads(pickle.dumps((reader, parts)))
    finally:
        reader._keeper = keeper
    if connection:
        copy._options = replace(copy._options, connection=replace(copy._options.connection, **connection))
    return [value for part in slices for batch in copy.read(part) for value in batch.column("value").to_pylist()]


class Guarded:
    """A node whose clients need a token, which an administrator replaces."""

    def __init__(self, folder: Path) -> None:
        self._tokens = folder / "node.token"
        self.file = folder / "query.token"
        self._number = 0
        self.replace()
        self.node = NodeProcess(folder, arguments=[f"--admin-token-file={self._tokens}", "--durability=memory"])

    def replace(self) -> None:
        """Write a new token into both files; the node does not know it yet."""
        self._number += 1
        self.token = f"the token with number {self._number:04}".replace(" ", "-")
        for file in (self._tokens, self.file):
            file.write_text(self.token)

    def reload(self) -> None:
        """Create the new token at the node, and delete the old one."""

        def is_known() -> bool:
            try:
                with self.client():
                    return True
            except LmqError as exc:
                if exc.code != "unauthorized":
                    raise
                return False

        self.node.signal(signal.SIGHUP)
        wait_for(is_known, "the new token")

    def client(self) -> Client:
        """Return a client with the token of the files."""
        return Client(self.node.rpc, token=self.token, timeout_s=20)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    """The node, started."""
    made = Guarded(tmp_path)
    with made.node:
        yield made


def test_a_running_query_continues_with_the_new_token_of_its_file(
    guarded: Guarded, new_reader: NewReader, queue: str
) -> None:
    with guarded.client() as client:
        push(client, queue, numbered(30))
    reader = new_reader(lmq_servers=guarded.node.rpc, lmq_token_file=str(guarded.file), subscribe=queue)
    read: list[bytes] = []
    offset = reader.initialOffset()
    for _ in range(3):
        end = reader.latestOffset(offset, ReadMaxRows(10))
        before = reader.partitions(offset, end)
        guarded.replace()
        # Planned with the old token, and read with the new one if the executor has the file; else by the next attempt.
        later = reader.partitions(offset, end)
        guarded.reload()
        absent = str(guarded.file.with_name("absent"))
        with pytest.raises(LmqError, match="the nodes refuse the token; nothing was changed") as caught:
            on_an_executor(reader, before, token_file=absent)
        assert caught.value.code == "unauthorized"
        assert "[unauthorized]" in caught.value.message
        assert on_an_executor(reader, before) == on_an_executor(reader, later, token_file=absent)
        read += on_an_executor(reader, reader.partitions(offset, end), token_file=absent)
        reader.commit(end)
        offset = end
    assert read == numbered(30)
    assert reader.latestOffset(offset, ReadMaxRows(10)) == offset


def test_a_token_is_in_no_text_of_a_slice(guarded: Guarded, new_reader: NewReader, queue: str) -> None:
    with guarded.client() as client:
        push(client, queue, numbered(1))
    reader = new_reader(lmq_servers=guarded.node.rpc, lmq_token_file=str(guarded.file), subscribe=queue)
    start = reader.initialOffset()
    [part] = reader.partitions(start, reader.latestOffset(start, ReadMaxRows(1)))
    assert isinstance(part, Slice)
    assert part.contact is not None
    assert part.contact.token == guarded.token
    assert guarded.token not in repr(part) + repr(reader._options)


def test_a_wrong_token_is_reported_at_once(guarded: Guarded, new_reader: NewReader) -> None:
    guarded.file.write_text("wrong")
    reader = new_reader(lmq_servers=guarded.node.rpc, lmq_token_file=str(guarded.file), subscribe="q")
    with pytest.raises(LmqError, match=f"the file '{guarded.file}' .* has no other token here"):
        reader.latestOffset(reader.initialOffset(), ReadMaxRows(1))
    reader = new_reader(lmq_servers=guarded.node.rpc, lmq_token="wrong", subscribe="q")
    with pytest.raises(LmqError, match=r"the token of option 'lmq.token' was deleted, has expired or is wrong"):
        reader.latestOffset(reader.initialOffset(), ReadMaxRows(1))


def test_spark_continues_while_the_token_is_replaced(
    guarded: Guarded, spark: SparkSession, queue: str, tmp_path: Path
) -> None:
    def store(rows: DataFrame, epoch: int) -> None:
        stored.extend(bytes(row["value"]) for row in rows.collect())

    stored: list[bytes] = []
    options = {"lmq.servers": guarded.node.rpc, "lmq.token.file": str(guarded.file)}
    rows = spark.readStream.format("lmq").options(**options).option("subscribe", queue).load()
    sink = rows.writeStream.foreachBatch(store).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = sink.start()
    try:
        for number in range(3):
            with guarded.client() as client:
                push(client, queue, numbered(10, f"m{number}"))
            wait_for(lambda: len(stored) >= 10 * (number + 1) or query.exception(), "the rows are stored", WAIT_S)  # noqa: B023
            assert query.exception() is None
            guarded.replace()
            guarded.reload()
    finally:
        query.stop()
    assert stored == [content for number in range(3) for content in numbered(10, f"m{number}")]


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes, which the test kills."""
    with Cluster(3, directory=tmp_path) as nodes:
        yield nodes


def test_a_query_outlives_its_only_named_node_and_all_initial_nodes(
    own: Cluster, new_reader: NewReader, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmqcluster.client.transport.failover.ASK_S", 0.1)
    with Client(own.rpc_addresses) as client:
        push(client, queue, numbered(40))
    named = own[0].rpc
    reader = new_reader(lmq_servers=named, subscribe=queue)
    read: list[bytes] = []
    offset = reader.initialOffset()
    for old in (None, *own.nodes[:3]):
        if old is not None:
            new = own.add_node()
            assert join(new, next(node for node in own.alive if node is not new).http).status == 200
            agree(own.alive)
            wait_for(lambda: new.rpc in {str(one) for one in reader._driver.contact().nodes}, "the new node is known")  # noqa: B023
            assert leave(old).status == 200
            old.kill()
            agree(own.alive)
        end = reader.latestOffset(offset, ReadMaxRows(10))
        read += on_an_executor(reader, reader.partitions(offset, end))
        reader.commit(end)
        offset = end
    assert read == numbered(40)
    with Client([node.rpc for node in own.alive]) as client:
        assert client.backlog(queue=queue).messages == 0


def test_a_write_survives_its_only_named_node_unless_it_keeps_to_that(
    own: Cluster, new_reader: NewReader, queue: str
) -> None:
    bound = new_reader(lmq_servers=own[0].rpc, lmq_discover="false", lmq_timeout="1", subscribe=f"{queue}-bound")
    start = bound.initialOffset()
    assert bound.latestOffset(start, ReadMaxRows(1)) == start
    assert bound._driver.contact().nodes == ()
    options = Write.parse({"lmq.servers": own[0].rpc, "queue": queue, "lmq.batchSize": "1", "lmq.timeout": "60"})
    with Pusher(options, "job", 0) as pusher:
        pusher.add(queue, numbered(20)[:10])
        pusher._wait()
        own[0].kill()
        pusher.add(queue, numbered(20)[10:])
    table = PeekReader(BatchRead.parse({"lmq.servers": own[0].rpc, "subscribe": queue}), read_schema(Extras()))
    ranges = table.partitions()
    # The process knows the other nodes from now on.
    with Pusher(options, "another", 0) as pusher:
        pusher.add(queue, numbered(5, "n"))
    connecting._nodes.cache_clear()
    looked_at = [value for part in ranges for batch in table.read(part) for value in batch.column("value").to_pylist()]
    assert looked_at[:20] == numbered(20)
    with Client([node.rpc for node in own.alive]) as client:
        assert pulled(client, queue) == numbered(20) + numbered(5, "n")
    with pytest.raises(LmqError, match=r"no node of option 'lmq\.servers'"):
        bound.latestOffset(start, ReadMaxRows(1))
