"""Bodies that do not fit into memory although their messages do: on real nodes, with real files."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from lmqcluster import Client
from lmqcluster.client.options import PushOptions
from lmqcluster.replication.storage.page_files import page_payload
from tests.integration.cluster import Cluster, NodeProcess, wait_for
from tests.integration.programs import run
from tests.integration.test_admin_operations import admin, done
from tests.integration.test_durability_restart import metric

COUNT = 6_000
SIZE = 16_384
BATCH = 100
MEMORY = {"LMQ_MEMORY_BYTES_MAX": "64MiB"}
"""The bodies are half as large again."""
QUEUE = "urgent"


def _body(number: int) -> bytes:
    return b"%07d " % number + random.Random(number).randbytes(SIZE - 8)


def _options(number: int) -> PushOptions:
    return {"priority": number % 10 + 1}


def _in_order(count: int = COUNT) -> list[int]:
    return [number for priority in range(10) for number in range(priority, count, 10)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, environment=MEMORY) as started:
        with Client(started[0].rpc) as client:
            client.update_props(QUEUE, {"timeout": 600})
            for start in range(0, COUNT, BATCH):
                numbers = range(start, start + BATCH)
                client.push_many(QUEUE, [_body(n) for n in numbers], options=[_options(n) for n in numbers])
        yield started


def _pages(node: NodeProcess) -> list[Path]:
    return sorted((node.data_dir / "pages").glob("*.page"))


def _size(node: NodeProcess) -> int:
    return int(node.get_json(f"/v1/queues/{QUEUE}")["size"])


def _wait_for_bodies_in_pages(node: NodeProcess) -> None:
    wait_for(lambda: metric(node, "lmq_paged_body_bytes") > COUNT * SIZE / 2 or None, f"pages of {node.name}")


def _wait_for_no_page(node: NodeProcess) -> None:
    wait_for(lambda: not _pages(node) or None, f"no page of {node.name} left")


def _damage(page: Path) -> None:
    """Flip a bit, unless the page has just been removed with its contents."""
    with suppress(FileNotFoundError), page.open("r+b") as file:
        data = bytearray(file.read())
        data[len(data) // 2] ^= 1
        file.seek(0)
        file.write(data)


def _take(node: NodeProcess, numbers: list[int]) -> None:
    """Pull and settle these messages, which must arrive in order and intact."""
    with Client(node.rpc) as client:
        while numbers:
            pulled = client.pull_many(QUEUE, min(len(numbers), BATCH))
            assert [one.content for one in pulled] == [_body(number) for number in numbers[: len(pulled)]]
            assert all(client.done_many(QUEUE, [one.id for one in pulled]))
            numbers = numbers[len(pulled) :]


def _is_whole(page: Path) -> bool:
    """Return whether a page matches its digest, or has just been removed."""
    try:
        page_payload(page.read_bytes(), bytes.fromhex(page.stem))
    except FileNotFoundError:
        return True
    except ValueError:
        return False
    return True


def _wait_for_whole_pages(node: NodeProcess) -> None:
    """Wait until damaged pages that were not needed yet are found and replaced after a start."""
    node.kill()
    node.start()
    wait_for(lambda: all(map(_is_whole, _pages(node))) or None, "whole pages")


def _left() -> list[int]:
    return _in_order()[-LEFT[0] :]


LEFT = [COUNT]
"""The number of messages left."""


def _take_some(node: NodeProcess, count: int) -> None:
    _take(node, _left()[:count])
    LEFT[0] -= count


def test_bodies_are_stored_in_pages(cluster: Cluster) -> None:
    for node in cluster:
        _wait_for_bodies_in_pages(node)
        assert _size(node) == LEFT[0]
        assert metric(node, "lmq_memory_used_bytes") < COUNT * SIZE / 2
        _take_some(node, 200)


def test_a_restart_does_not_read_them(cluster: Cluster) -> None:
    node = cluster.followers()[0]
    done(admin(node, "snapshot"))
    snapshot = max((node.data_dir / "snapshots").glob("*.snap"))
    assert snapshot.stat().st_size < COUNT * SIZE / 4
    node.kill()
    node.start()
    assert metric(node, "lmq_paged_body_bytes") > COUNT * SIZE / 2
    _take_some(node, 400)


def test_a_damaged_page_comes_from_another_node_while_a_pull_waits_for_it(cluster: Cluster) -> None:
    node = cluster.followers()[0]
    for page in _pages(node):
        _damage(page)
    _take_some(node, 1_000)
    assert "damaged page replaced" in node.log()
    assert node.running
    _wait_for_whole_pages(node)


def test_a_node_waits_for_damaged_pages_that_others_have_mostly_delivered(cluster: Cluster) -> None:
    """The rest of these pages is compacted, on all nodes with the same log entry."""
    node, other = cluster.followers()
    for page in _pages(node):
        _damage(page)
    before = node.log().count("damaged page replaced")
    _take_some(other, 1_000)
    wait_for(lambda: _size(node) == LEFT[0] or None, "the entries that the others have applied")
    assert node.log().count("damaged page replaced") > before
    assert "a damaged page is needed" in node.log()
    assert node.running
    _wait_for_whole_pages(node)


def test_a_new_node_gets_the_pages_it_lacks(cluster: Cluster) -> None:
    fresh = cluster.add_node()
    done(admin(fresh, "join", cluster[0].http))
    wait_for(lambda: (_size(fresh) == LEFT[0]) or None, "the new node's state", 60)
    _take_some(fresh, 400)


def test_a_backup_holds_bodies_and_is_restored_into_pages(cluster: Cluster, tmp_path: Path) -> None:
    copy = tmp_path / "copy.snap"
    done(admin(cluster[0], "backup", str(copy)))
    assert copy.stat().st_size > LEFT[0] * SIZE
    folder = tmp_path / "restored"
    folder.mkdir()
    other = NodeProcess(folder, "n1", environment=MEMORY)
    done(run("lmq-admin", "restore", str(copy), "--data-dir", str(other.data_dir), "--raft", other.raft))
    with other.start():
        assert metric(other, "lmq_paged_body_bytes") > LEFT[0] * SIZE / 2
        _take(other, _left())
        assert _size(other) == 0


def test_pages_of_removed_bodies_are_deleted(cluster: Cluster) -> None:
    _take_some(cluster[0], LEFT[0])
    for node in cluster:
        done(admin(node, "snapshot"))
        _wait_for_no_page(node)
