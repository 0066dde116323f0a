"""A node restarts from a snapshot with queues that have annotations, as all queues of SQS have."""

from __future__ import annotations

from pathlib import Path

from .cluster import NodeProcess
from .programs import run
from .raw_http import call


def test_annotations_survive_a_restart_from_a_snapshot(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path)
    with node:
        assert run("lmq-admin", "--node", node.http, "queue", "create", "orders.fifo", "--fifo").code == 0
        before = call(node.http, "GET", "/v1/queues/orders.fifo").body
        assert b"sqs.kind" in before
        assert run("lmq-admin", "--node", node.http, "snapshot").code == 0
        node.kill()
        node.start()
        node.wait_ready()
        assert b"sqs.kind" in call(node.http, "GET", "/v1/queues/orders.fifo").body
