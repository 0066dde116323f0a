"""StatsD on a real socket: what a node sends, and that nobody has to listen."""

from __future__ import annotations

import re
import socket
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmqcluster import Client

from .cluster import READY_S, NodeProcess
from .test_metrics import value

METRIC = re.compile(rb"stats[.]lmq[.](.+)[.](push|pull|retention|size|memory):([0-9.]+)[|](c|ms|g)")
KINDS = {"push": "c", "pull": "c", "retention": "ms", "size": "g", "memory": "g"}


class StatsdServer:
    """Takes datagrams, and adds counters up as a StatsD server does."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(READY_S)
        self.address = "127.0.0.1:{1}".format(*self.socket.getsockname())
        self.values: dict[tuple[bytes, str], list[float]] = defaultdict(list)

    def take(self) -> None:
        """One datagram, and the lines in it."""
        for line in self.socket.recv(65536).split(b"\n"):
            match = METRIC.fullmatch(line)
            assert match is not None, line
            name, metric = match[1], match[2].decode()
            assert match[4].decode() == KINDS[metric]
            self.values[name, metric].append(float(match[3]))

    def wait_for(self, name: bytes, metric: str, total: float) -> None:
        """Take datagrams until the values of a metric add up to `total`."""
        deadline = time.monotonic() + READY_S
        while sum(self.values[name, metric]) < total and time.monotonic() < deadline:
            self.take()
        assert sum(self.values[name, metric]) == total


@pytest.fixture
def server() -> Iterator[StatsdServer]:
    taking = StatsdServer()
    yield taking
    taking.socket.close()


def test_a_node_sends_what_lmq_sent(server: StatsdServer, tmp_path: Path) -> None:
    arguments = ("--statsd", server.address, "--statsd-prefix", "stats.lmq", "--statsd-interval", "1")
    with NodeProcess(tmp_path, arguments=arguments) as node, Client(node.rpc) as client:
        client.push("mail.out", "content")
        client.push_many("mail.out", ["content"] * 4)
        for _ in range(3):
            assert client.pull("mail.out", timeout=0) is not None
        client.push("odd:name|with @", "content")
        server.wait_for(b"mail.out", "push", 5)
        server.wait_for(b"mail.out", "pull", 3)
        server.wait_for(b"odd_name_with__", "push", 1)
        while len(server.values[b"mail.out", "retention"]) < 3:
            server.take()
        while server.values[b"mail.out", "size"][-1:] != [5]:
            server.take()
        # Five bodies of eight bytes, as MessagePack, and what keeping them costs.
        assert server.values[b"mail.out", "memory"][-1] > 5 * 8
        assert value(node.http, "lmq_statsd_datagrams_sent_total") > 0


def test_nobody_has_to_listen(server: StatsdServer, tmp_path: Path) -> None:
    server.socket.close()
    arguments = ("--statsd", server.address, "--statsd-interval", "1")
    with NodeProcess(tmp_path, arguments=arguments) as node, Client(node.rpc) as client:
        deadline = time.monotonic() + READY_S
        while not value(node.http, "lmq_statsd_datagrams_dropped_total"):
            client.push("jobs", "content")
            assert time.monotonic() < deadline
        assert client.pull("jobs", timeout=0) is not None


def test_a_name_that_nobody_knows_does_not_stop_the_node(tmp_path: Path) -> None:
    with NodeProcess(tmp_path, arguments=("--statsd", "nobody.invalid:8125")) as node, Client(node.rpc) as client:
        client.push("jobs", "content")
        assert client.pull("jobs", timeout=0) is not None
