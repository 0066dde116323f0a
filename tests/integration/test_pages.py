"""Backlogs that do not fit into memory: on real nodes, with real files."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmqcluster import Client, LmqError
from tests.integration.cluster import Cluster, NodeProcess, wait_for
from tests.integration.programs import run
from tests.integration.test_admin_operations import admin, done
from tests.integration.test_durability_restart import metric

COUNT = 60_000
BATCH = 500
MEMORY = {"LMQ_MEMORY_BYTES_MAX": "64MiB"}
"""An eighth of it is for backlogs; the messages would take three times as much."""


def _body(number: int) -> bytes:
    return b"%07d " % number + random.Random(number).randbytes(92)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, environment=MEMORY) as started:
        with Client(started[0].rpc) as client:
            for start in range(0, COUNT, BATCH):
                client.push_many("long", [_body(number) for number in range(start, start + BATCH)])
        yield started


def _pages(node: NodeProcess) -> list[Path]:
    return sorted((node.data_dir / "pages").glob("*.page"))


def _size(node: NodeProcess, queue: str = "long") -> int:
    return int(node.get_json(f"/v1/queues/{queue}")["size"])


def _wait_for_pages(node: NodeProcess) -> None:
    wait_for(lambda: len(_pages(node)) >= 10 or None, f"pages of {node.name}")


def _wait_for_no_page(node: NodeProcess) -> None:
    wait_for(lambda: not _pages(node) or None, f"no page of {node.name} left")


def _take(node: NodeProcess, first: int, count: int) -> None:
    """Pull and settle `count` messages, which must arrive in order and intact."""
    with Client(node.rpc) as client:
        while count > 0:
            pulled = client.pull_many("long", min(count, BATCH))
            assert [one.content for one in pulled] == [_body(first + i) for i in range(len(pulled))]
            assert all(client.done_many("long", [one.id for one in pulled]))
            first, count = first + len(pulled), count - len(pulled)


def test_long_queues_are_stored_in_pages(cluster: Cluster) -> None:
    for node in cluster:
        _wait_for_pages(node)
        assert _size(node) == COUNT


def test_a_snapshot_names_pages_and_a_restart_does_not_read_them(cluster: Cluster) -> None:
    node = cluster.followers()[0]
    done(admin(node, "snapshot"))
    snapshots = max((node.data_dir / "snapshots").glob("*.snap"))
    assert snapshots.stat().st_size < 2_000_000 < sum(page.stat().st_size for page in _pages(node))
    node.kill()
    node.start()
    assert _size(node) == COUNT
    _take(node, 0, 6_000)


def test_a_backup_contains_the_pages(cluster: Cluster, tmp_path: Path) -> None:
    node = cluster[0]
    size, copy = _size(node), tmp_path / "copy.snap"
    done(admin(node, "backup", str(copy)))
    assert copy.stat().st_size > size * 92
    folder = tmp_path / "restored"
    folder.mkdir()
    other = NodeProcess(folder, "n1", environment=MEMORY)
    done(run("lmq-admin", "restore", str(copy), "--data-dir", str(other.data_dir), "--raft", other.raft))
    # The messages are in pages again, before any node has read them into memory.
    assert len(_pages(other)) >= (size - 20_000) // 2_000
    with other.start():
        assert _size(other) == size
        assert metric(other, "lmq_paged_messages") > size / 2
        _take(other, COUNT - size, size)
        assert _size(other) == 0


def test_a_new_node_gets_the_pages_it_lacks(cluster: Cluster) -> None:
    fresh = cluster.add_node()
    done(admin(fresh, "join", cluster[0].http))
    size = _size(cluster[0])
    wait_for(lambda: (_size(fresh) == size) or None, "the new node's state", 60)
    assert len(_pages(fresh)) >= 10
    _take(fresh, COUNT - size, 6_000)


def test_a_damaged_page_is_reported_and_comes_from_another_node(cluster: Cluster) -> None:
    node = cluster.followers()[0]
    for page in _pages(node):
        data = bytearray(page.read_bytes())
        data[len(data) // 2] ^= 1
        page.write_bytes(data)
    size = _size(node)
    _take(node, COUNT - size, 20_000)
    wait_for(lambda: ("damaged page replaced" in node.log()) or None, "a page of another node")
    assert "page cannot be read" in node.log()
    assert node.running


def test_pushes_are_refused_before_the_disk_is_full(tmp_path: Path) -> None:
    """Use of the disk is bounded; unneeded data is freed, and pushes are accepted again."""
    limits = {**MEMORY, "LMQ_DISK_BYTES_MAX": "6MiB"}
    with NodeProcess(tmp_path, environment=limits) as node, Client(node.rpc, timeout_s=2.0) as client:
        with pytest.raises(LmqError, match="disk_bytes_max"):
            _push_until_refused(client)
        before = _size(node)
        with pytest.raises(LmqError, match="disk_bytes_max"):
            client.push("other", b"x")
        assert _size(node) == before
        client.delete("long")
        wait_for(lambda: _accepts(client), "room on the disk")


def _push_until_refused(client: Client) -> None:
    for _ in range(200):
        client.push_many("long", [os.urandom(1_000) for _ in range(500)])


def _accepts(client: Client) -> bool | None:
    try:
        client.push("other", b"x")
    except LmqError:
        return None
    return True


def test_pages_of_removed_messages_are_deleted(cluster: Cluster) -> None:
    node = cluster[0]
    with Client(node.rpc) as client:
        client.delete("long")
    for one in cluster:
        done(admin(one, "snapshot"))
        _wait_for_no_page(one)
