"""Nodes whose log is not read."""

from __future__ import annotations

import json
import os
from pathlib import Path

from .cluster import wait_for
from .unread_log import PipedNode, dropped_lines, send

REQUESTS = 30_000


def test_an_unread_log_costs_lines_and_not_the_node(tmp_path: Path) -> None:
    with PipedNode(tmp_path, arguments=("--request-log", "on")) as node:
        assert send(node, REQUESTS) == REQUESTS
        dropped = dropped_lines(node)
        assert dropped > 0
        # A returning reader gets whole lines, and then the number of missing ones.
        data = bytearray()

        def read_to_the_notice() -> bool:
            data.extend(os.read(node.reader, 1 << 20))
            return b"log lines dropped" in data and data.endswith(b"\n")

        wait_for(read_to_the_notice, "the line that counts missing lines")
        lines = [json.loads(line) for line in data.splitlines()]
        (notice,) = [line for line in lines if line["event"].startswith("log lines dropped")]
        pushes = [line for line in lines if line.get("method") == "push"]
        assert 0 < len(pushes) < REQUESTS
        assert int(notice["event"].rsplit(": ", 1)[1]) == dropped_lines(node) >= REQUESTS - len(pushes)
        assert notice["level"] == "warning"


def test_a_node_with_an_unread_log_stops_on_request(tmp_path: Path) -> None:
    with PipedNode(tmp_path, arguments=("--request-log", "on")) as node:
        # More than the pipe and less than the node holds.
        assert send(node, 5_000) == 5_000
        assert node.stop(60) == 0
