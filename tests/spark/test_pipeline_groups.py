"""Pipelines and queries that end by themselves take all of a queue with groups, or report what they leave."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lmqcluster import Client
from lmqcluster.client import PushOptions
from lmqcluster.spark.pipelines.archives.archive import ArchiveSettings, archive
from lmqcluster.spark.pipelines.base.access import Access
from lmqcluster.spark.pipelines.base.failures import UNKNOWN, explain
from lmqcluster.spark.pipelines.base.source import Source
from lmqcluster.spark.pipelines.migrate import MigrateSettings, migrate
from tests.integration.cluster import Cluster

from .queues import numbered, pulled, push

GROUPS = 4


def push_groups(client: Client, queue: str, count: int) -> None:
    """Push messages that belong to the groups in turns."""
    options: list[PushOptions | None] = [{"group": f"g{number % GROUPS}"} for number in range(count)]
    assert client.push_many(queue, numbered(count), options=options) == ["ok"] * count


def watch(query: StreamingQuery) -> None:
    query.awaitTermination()


def test_an_archive_and_the_live_queue_are_one_table(
    spark: SparkSession, client: Client, servers: str, queue: str, tmp_path: Path
) -> None:
    push_groups(client, queue, 200)
    table = str(tmp_path / "table")
    archive(spark, ArchiveSettings(source=Source(access=Access(servers=servers), queue=queue), output=table), watch)
    assert client.backlog(queue=queue).messages == 0
    # These are only in the queue; none of the first 200 is.
    push(client, queue, numbered(50, "live"))
    reader = spark.read.format("lmq").option("lmq.servers", servers).option("includeDelivery", "true")
    live = reader.option("subscribe", queue).load().select("incarnation", "offset", "value")
    archived = spark.read.parquet(table).select("incarnation", "offset", "value")
    both = archived.unionByName(live.join(archived, ["incarnation", "offset"], "left_anti"))
    found = [bytes(row["value"]) for row in both.orderBy("incarnation", "offset").collect()]
    assert found == numbered(200) + numbered(50, "live")

    # An archive that cannot take everything reports it, and keeps what it has taken.
    pulled(client, queue)
    push_groups(client, queue, 40)
    (held,) = client.pull_many(queue, 1)
    with pytest.raises(Exception, match="could not be read") as raised:
        archive(spark, ArchiveSettings(source=Source(access=Access(servers=servers), queue=queue), output=table), watch)
    error = explain(raised.value)
    assert error is not None
    assert error.exit_code == UNKNOWN
    assert "9 messages that existed when the query started could not be read: 9 wait for messages" in str(error)
    assert spark.read.parquet(table).count() == 230
    assert held.nack()


@pytest.fixture
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Another cluster, of one node."""
    with Cluster(1, directory=tmp_path_factory.mktemp("target")) as nodes:
        yield nodes


def test_a_migration_keeps_groups_and_their_order(
    spark: SparkSession, client: Client, servers: str, target: Cluster, queue: str, tmp_path: Path
) -> None:
    push_groups(client, queue, 100)
    source = Source(access=Access(servers=servers), queue=queue, partitions_min=4)
    settings = MigrateSettings(
        source=source, target=Access(servers=target[0].rpc), checkpoint=str(tmp_path / "checkpoint")
    )
    migrate(spark, settings, watch)
    assert client.backlog(queue=queue).held == client.backlog(queue=queue).messages == 0
    with Client(target[0].rpc) as other:
        assert (other.backlog(queue=queue).messages, other.backlog(queue=queue).held) == (GROUPS, 100 - GROUPS)
        found: list[bytes] = []
        while part := other.pull_many(queue, 100):
            found += [message.content for message in part]
            assert all(message.ack() for message in part)
    for group in range(GROUPS):
        assert [one for one in found if int(one[2:]) % GROUPS == group] == numbered(100)[group::GROUPS]
