"""`lmqcluster.testing`: time, threads, leftovers, and the fixtures. See also integration/test_same_behaviour.py."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import socket
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lmqcluster import AsyncClient, Client, LmqError, Outcome
from lmqcluster.testing import MemoryCluster

ROOT = Path(__file__).parents[3]
HOUR_S = 3600


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("lmqcluster")]


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


# --- time -----------------------------------------------------------------------------------------------------------


def test_a_message_whose_consumer_died_is_redelivered_after_its_lease() -> None:
    with MemoryCluster() as cluster:
        lmq = cluster.client()
        lmq.update_props("jobs", {"timeout": HOUR_S, "retry": 1})
        lmq.push("jobs", "x")
        assert lmq.pull("jobs", 0) is not None
        cluster.advance(HOUR_S - 60)
        assert lmq.pull("jobs", 0) is None
        cluster.advance(60)
        again = lmq.pull("jobs", 0)
        assert again is not None
        assert again.retry == 0
        cluster.advance(HOUR_S)
        assert lmq.pull("jobs", 0) is None
        assert lmq.backlog(queue="jobs").messages == 0


def test_events_happen_in_order_while_time_is_advanced() -> None:
    """A lease of an hour expires before a pull that waits for two, and one that waits for half an hour gets nothing."""

    async def main(cluster: MemoryCluster) -> list[str | None]:
        async with cluster.async_client() as lmq:
            await lmq.update_props("jobs", {"timeout": HOUR_S})
            await lmq.push("jobs", "x")
            await lmq.pull("jobs", 0)
            waiting = [asyncio.ensure_future(lmq.pull("jobs", wait_s)) for wait_s in (HOUR_S / 2, 2 * HOUR_S)]
            await lmq.ping()
            cluster.advance(3 * HOUR_S)
            return [None if message is None else message.text for message in await asyncio.gather(*waiting)]

    with MemoryCluster() as cluster:
        assert asyncio.run(main(cluster)) == [None, "x"]


def test_a_key_is_forgotten_after_its_window() -> None:
    with MemoryCluster() as cluster:
        lmq = cluster.client()
        for advance_s in (0, HOUR_S):
            cluster.advance(advance_s)
            lmq.push("jobs", "x", key="1")
            lmq.push("jobs", "x", key="1")
        assert len(lmq.pull_many("jobs", 10)) == 2


def test_options_and_transactions_are_those_of_a_node() -> None:
    with MemoryCluster() as cluster:
        lmq = cluster.client()
        lmq.push("jobs", "later", delay=HOUR_S, label="l")
        assert lmq.pull("jobs", 0) is None
        cluster.advance(HOUR_S)
        message = lmq.pull("jobs", 60, lease=2 * HOUR_S)
        assert message is not None
        assert (message.content, message.label) == (b"later", "l")
        cluster.advance(HOUR_S)
        with lmq.transaction() as transaction:
            transaction.done(message)
            transaction.push("results", "done")
        assert transaction.results == ["ok", "ok"]
        cluster.advance(HOUR_S)
        with pytest.raises(LmqError, match="not leased any more"), lmq.transaction() as late:
            late.done(message)


def test_many_leases_that_end_at_different_times() -> None:
    with MemoryCluster() as cluster:
        lmq = cluster.client()
        for hour in range(1, 101):
            lmq.update_props("jobs", {"timeout": hour * HOUR_S})
            lmq.push("jobs", hour)
            assert lmq.pull("jobs", 0) is not None
        cluster.advance(100 * HOUR_S)
        assert [message.content for message in lmq.pull_many("jobs", 200)] == list(range(1, 101))


@pytest.mark.parametrize("seconds", [-1, math.nan, math.inf])
def test_time_runs_forward_only(seconds: float) -> None:
    with MemoryCluster() as cluster, pytest.raises(ValueError, match="advanced"):
        cluster.advance(seconds)


# --- clients --------------------------------------------------------------------------------------------------------


def test_clusters_are_isolated() -> None:
    with MemoryCluster() as first, MemoryCluster() as second:
        first.client().push("jobs", "x")
        assert first.nodes != second.nodes
        assert second.client().pull("jobs", 0) is None


def test_clients_in_many_threads() -> None:
    def work(nodes: str) -> int:
        with Client(nodes, token="any", decode=True) as lmq:
            lmq.push_many("jobs", ["x"] * 100)
            return sum(message.ack() for message in lmq.pull_many("jobs", 50))

    with MemoryCluster() as cluster, ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(work, [cluster.nodes] * 4)) == 200
        assert cluster.client().backlog(queue="jobs").messages == 200


def test_large_contents_pass() -> None:
    content = os.urandom(8 << 20)
    with MemoryCluster() as cluster:
        lmq = cluster.client()
        lmq.push("jobs", content)
        message = lmq.pull("jobs", 0)
        assert message is not None
        assert message.content == content


def test_a_cluster_that_was_closed_cannot_be_reached() -> None:
    with MemoryCluster() as cluster:
        cluster.client().push("jobs", "x")
    with pytest.raises(LmqError) as caught:
        Client(cluster.nodes, timeout_s=0.2).push("jobs", "x")
    assert (caught.value.code, caught.value.outcome) == ("unreachable", Outcome.NOT_APPLIED)
    cluster.close()


# --- leftovers --------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors by /proc")
def test_nothing_is_left_of_a_cluster() -> None:
    async def leave_a_client(cluster: MemoryCluster) -> None:
        lmq = cluster.async_client()
        await lmq.push("jobs", "x")
        waiting = asyncio.ensure_future(lmq.pull("others"))
        await lmq.ping()
        cluster.close()
        await lmq.close(0)
        await asyncio.wait([waiting])
        assert isinstance(waiting.exception(), LmqError)

    gc.collect()
    before = (threads(), open_files())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(leave_a_client(MemoryCluster()))
        dropped = MemoryCluster()
        dropped.client().push("jobs", "x")
        del dropped
        gc.collect()
    assert (threads(), open_files()) == before


def test_no_port_and_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    families = []
    make = socket.socket.__init__

    def note(self: socket.socket, family: int = -1, *arguments: object, **named: object) -> None:
        families.append(family)
        make(self, family, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "__init__", note)
    with MemoryCluster() as cluster:
        cluster.client().push("jobs", "x")
    assert families
    assert socket.AF_INET not in families
    assert socket.AF_INET6 not in families


LOGGING_PROGRAM = """
import logging
from lmqcluster.testing import MemoryCluster

logging.basicConfig(level=logging.INFO)
with MemoryCluster() as cluster:
    lmq = cluster.client()
    lmq.push("jobs", "x")
    lmq.purge("jobs")
"""


def test_the_node_logs_through_logging() -> None:
    """In a separate process: structlog is configured once per process, here perhaps by another test."""
    done = subprocess.run([sys.executable, "-c", LOGGING_PROGRAM], capture_output=True, text=True, check=True)
    assert "messages purged" in done.stderr
    assert done.stdout == ""


# --- pytest ---------------------------------------------------------------------------------------------------------

USERS_TEST = """
def hand_on(lmq):
    with lmq.pull("in", timeout=0) as message:
        lmq.push("out", message.text.upper())

def test_hand_on(lmq_client):
    lmq_client.push("in", "x")
    hand_on(lmq_client)
    assert lmq_client.pull("out", timeout=0).text == "X"

def test_the_next_one_is_empty(lmq_client, lmq_cluster):
    lmq_cluster.advance(60)
    assert lmq_client.pull("in", timeout=0) is None
"""


def pytest_in(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_fixtures(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["lmqcluster.testing.fixtures"]\n')
    (tmp_path / "test_users.py").write_text(USERS_TEST)
    done = pytest_in(tmp_path, "-W", "error")
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


def test_unused_fixtures_are_not_imported(tmp_path: Path) -> None:
    code = (
        "import sys\n\ndef test_it():\n    assert not [name for name in sys.modules if name.startswith('lmqcluster')]\n"
    )
    (tmp_path / "test_users.py").write_text(code)
    done = pytest_in(tmp_path)
    assert done.returncode == 0, done.stdout


def test_async_client_is_the_real_one() -> None:
    with MemoryCluster() as cluster:
        assert type(cluster.async_client(decode=True)) is AsyncClient
        assert type(cluster.client()) is Client
