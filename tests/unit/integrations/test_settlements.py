"""Settlements in the background, as the integrations with Celery and dramatiq use them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from lmqcluster import Client
from lmqcluster.client.transport import in_memory
from lmqcluster.integrations import settlements as module
from lmqcluster.integrations.settlements import Settlements
from lmqcluster.integrations.worker_session import WorkerSession
from lmqcluster.testing import MemoryCluster

PATIENCE_S = 120.0
LEASE_S = 600.0
logger = logging.getLogger("test")


class Worker:
    """A client with a session, and its messages."""

    def __init__(self, cluster: MemoryCluster, timeout_s: float = 0.2) -> None:
        self.client = cluster.client(timeout_s=timeout_s)
        self.session = WorkerSession(lambda: self.client, LEASE_S)
        self.freed = threading.Event()
        self.settlements = Settlements(lambda: self.client, self.session, logger, self.freed.set)

    def pull(self, count: int) -> list[str]:
        messages = self.client._run(lambda: self.session.pull("q", count, PATIENCE_S))
        return [message.id for message in messages]


@contextmanager
def outage(client: Client) -> Iterator[None]:
    """Cut a client's connection, and every new one."""
    address = client.address
    assert address is not None
    accept = in_memory._clusters.pop(address)

    async def cut() -> None:
        connection = client._client._session._connection
        assert connection is not None
        connection.abort("cut")

    client._run(cut)
    try:
        yield
    finally:
        in_memory._clusters[address] = accept


def until(probe: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not probe():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


def test_settlements_outlast_an_outage_and_their_number_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PENDING_MAX", 4)
    with MemoryCluster() as cluster:
        worker, other = Worker(cluster), cluster.client()
        other.push_many("q", list(range(5)))
        ids = worker.pull(5)
        with outage(worker.client):
            worker.settlements.ack("q", ids[0])
            worker.settlements.release("q", ids[1])
            assert worker.settlements.has_room
            worker.settlements.put_back("q", ids[2:4])
            worker.settlements.move("q", ids[4], "aside", b"moved")
            assert not worker.settlements.has_room
            assert not worker.settlements.flush(1)
            began = time.monotonic()
            assert not worker.settlements.flush(PATIENCE_S), "a shutdown waits once"
            assert time.monotonic() - began < PATIENCE_S / 2
            assert worker.session.count("q") == 5
        assert worker.freed.wait(PATIENCE_S)
        until(lambda: worker.session.count("q") == 0, "all are settled")
        assert worker.settlements.has_room
        left = [(message.content, message.delivery) for message in other.pull_many("q", 5)]
        assert left == [(1, 2), (2, None), (3, None)]
        moved = other.pull("aside", 0)
        assert moved is not None
        assert moved.content == b"moved"
        worker.settlements.close(worker.client)
        assert worker.client.settlements_given_up == 0


def test_a_refused_settlement_leads_to_redelivery_after_the_lease(caplog: pytest.LogCaptureFixture) -> None:
    with MemoryCluster() as cluster:
        worker, other = Worker(cluster, timeout_s=30), cluster.client()
        other.update_props("aside", {"max_items": 1})
        other.push("aside", b"so it is full")
        other.push("q", 1)
        (receipt,) = worker.pull(1)
        worker.settlements.move("q", receipt, "aside", b"moved")
        assert worker.settlements.flush(PATIENCE_S)
        assert "is full" in caplog.text
        assert other.pull("q", 0) is None
        cluster.advance(LEASE_S + 1)
        message = other.pull("q", PATIENCE_S)
        assert message is not None
        assert message.ack()
        worker.settlements.close(worker.client)


def test_a_late_settlement_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with MemoryCluster() as cluster:
        worker, other = Worker(cluster, timeout_s=30), cluster.client()
        other.push_many("q", [1, 2])
        ids = worker.pull(2)
        cluster.advance(LEASE_S + 1)
        messages = other.pull_many("q", 2, PATIENCE_S)
        worker.settlements.ack("q", ids[0])
        worker.settlements.move("q", ids[1], "aside", b"moved")
        assert worker.settlements.flush(PATIENCE_S)
        assert "was too late" in caplog.text
        assert other.pull("aside", 0) is None
        assert all(message.ack() for message in messages)
        worker.settlements.close(worker.client)


def test_closing_in_an_outage_ends_and_the_rest_is_settled_later() -> None:
    with MemoryCluster() as cluster:
        worker, other = Worker(cluster), cluster.client()
        other.push_many("q", [1, 2, 3])
        ids = worker.pull(3)
        with outage(worker.client):
            worker.settlements.ack("q", ids[0])
            worker.settlements.close(worker.client)
            (finisher,) = [thread for thread in threading.enumerate() if thread.name == "lmqcluster-settlements"]
        left = other.pull_many("q", 3, PATIENCE_S)
        finisher.join(PATIENCE_S)
        assert not finisher.is_alive()
        assert [message.content for message in left] == [2, 3], "the session has ended after the ack"
        assert other.done_many("q", [ids[0]]) == [False]
