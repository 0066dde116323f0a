"""Nodes with a low limit of open files: refused, or serving within it, and administrable when clients use all of it."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from .cluster import NodeProcess, fetch
from .programs import run
from .raw_http import Connection

CLIENTS = 128


class _PoorNode(NodeProcess):
    """A node with a low limit of open files."""

    files = 128

    def command(self) -> list[str]:
        return ["bash", "-c", f'ulimit -n {self.files}; exec "$@"', "node", *super().command()]


@pytest.fixture
def poor(tmp_path: Path) -> Iterator[NodeProcess]:
    with _PoorNode(tmp_path) as one:
        yield one


def test_too_few_descriptors_are_a_configuration_error(tmp_path: Path) -> None:
    node = _PoorNode(tmp_path)
    node.files = 64
    with node.start(wait=False):
        assert node.wait_exit() == 78
    [line] = [line for line in map(json.loads, node.log().splitlines()) if line["event"] == "cannot start"]
    assert "may open 64 files, but a node needs at least 128; raise the hard limit" in line["reason"]


def fill(node: NodeProcess, stack: contextlib.ExitStack) -> int | None:
    """Fill all connections of the HTTP port with waiting pulls; return the status that one more client gets."""
    for _ in range(CLIENTS):
        client = stack.enter_context(Connection(node.http))
        try:
            status = client.call("POST", "/messages/pushed", b"1").status
        except (EOFError, ConnectionError):
            return None
        if status != 200:
            return status
        client.ask("GET", "/messages/never")
    return 200


def test_administration_is_served_when_clients_hold_all_connections(poor: NodeProcess) -> None:
    """Other clients get an answer too: their connections were closed."""
    with contextlib.ExitStack() as stack:
        for port in (poor.rpc, poor.queued, poor.raft):
            host, number = port.rsplit(":", 1)
            for _ in range(CLIENTS):
                stack.enter_context(contextlib.closing(socket.create_connection((host, int(number)), timeout=60)))
        assert fill(poor, stack) == 503
        for command in ("snapshot", "status", "stats", "client ls"):
            result = run("lmq-admin", "--node", poor.http, *command.split())
            assert result.code == 0, (command, result)
        assert fetch(poor.http, "/readyz")[0] == 200
        assert fill(poor, stack) == 503
        assert "Too many open files" not in poor.log()
