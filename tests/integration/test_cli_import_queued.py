"""``lmq-admin import queued``: every message once, also after interruptions. The source behaves as queued does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lmqcluster_cli.admin.imports import import_queued
from lmqcluster_cli.shared.connection.api import Api

from .cluster import NodeProcess
from .programs import run
from .queued_http import QueuedHttp


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("source")) as process:
        yield process


def bodies(node: NodeProcess, queue: str) -> list[bytes]:
    return sorted(one["contents"] for one in QueuedHttp(node.queued, "msgpack").poll(queue, 1000))


def test_a_queue_is_drained(source: NodeProcess, node: NodeProcess, queue_name: str) -> None:
    there = QueuedHttp(source.queued, "msgpack")
    there("PUT", f"/queue/{queue_name}")
    pushed = [b"%03d\xff" % n for n in range(150)]
    there.push(queue_name, *pushed)
    there.push(queue_name, b"hidden", delay=600)
    done = run("lmq-admin", "--node", node.http, "import", "queued", f"http://{source.queued}", "--queue", queue_name)
    assert done.code == 0
    assert done.out.splitlines()[-1].split("\t") == [queue_name, "150", "1"]
    assert bodies(node, queue_name) == pushed
    assert node.get_json(f"/v1/queues/{queue_name}/properties")["retry"] == import_queued.RETRY_WITHOUT_END


def test_an_interrupted_import_stores_nothing_twice(
    source: NodeProcess, node: NodeProcess, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = QueuedHttp(source.queued, "msgpack")
    there("PUT", f"/queue/{queue_name}")
    there.push(queue_name, b"a", b"b")
    # Shorter than a restart of the program: the first run pushes, and dies before it deletes.
    monkeypatch.setattr(import_queued, "HIDDEN_S", 0)
    monkeypatch.setattr(import_queued.Source, "delete", interrupted)
    reader = import_queued.Source(f"http://{source.queued}", None)
    with pytest.raises(KeyboardInterrupt):
        import_queued._take_over(reader, queue_name, Api(node.http), waits=False)
    monkeypatch.undo()
    assert import_queued._take_over(reader, queue_name, Api(node.http), waits=True) == 2
    assert bodies(node, queue_name) == [b"a", b"b"]
    assert reader.left(queue_name) == 0


def interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("url", "code"), [("nothing", 2), ("http://127.0.0.1:1", 69)])
def test_unusable_sources_are_refused(node: NodeProcess, tmp_path: Path, url: str, code: int) -> None:
    done = run("lmq-admin", "--node", node.http, "import", "queued", url)
    assert done.code == code
    assert len(done.err.splitlines()) <= 4
