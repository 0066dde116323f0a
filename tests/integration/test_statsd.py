"""StatsD on a real socket: the datagrams of a node, which need no listener."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmqcluster import Client

from .cluster import READY_S, Cluster, NodeProcess
from .queued_http import QueuedHttp
from .test_metrics import value

METRIC = re.compile(rb"stats[.]lmq[.](.+)[.](push|pull|retention|size|memory):([0-9.]+)[|](c|ms|g)")
KINDS = {"push": "c", "pull": "c", "retention": "ms", "size": "g", "memory": "g"}


class Listener:
    """Receives datagrams, and sums counters as a StatsD server does."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(READY_S)
        self.address = "127.0.0.1:{1}".format(*self.socket.getsockname())
        self.values: dict[tuple[bytes, str], list[float]] = defaultdict(list)

    def take(self) -> None:
        """Receive one datagram and record its lines."""
        for line in self.socket.recv(65536).split(b"\n"):
            self.note(line)

    def note(self, line: bytes) -> None:
        """Record a line."""
        match = METRIC.fullmatch(line)
        assert match is not None, line
        name, metric = match[1], match[2].decode()
        assert match[4].decode() == KINDS[metric]
        self.values[name, metric].append(float(match[3]))

    def wait_for(self, name: bytes, metric: str, total: float) -> None:
        """Receive datagrams until the values of a metric add up to `total`."""
        deadline = time.monotonic() + READY_S
        while sum(self.values[name, metric]) < total and time.monotonic() < deadline:
            self.take()
        assert sum(self.values[name, metric]) == total


@pytest.fixture
def server() -> Iterator[Listener]:
    taking = Listener()
    yield taking
    taking.socket.close()


def test_a_node_sends_the_metrics_of_lmq(server: Listener, tmp_path: Path) -> None:
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
        # Five bodies of eight bytes, as MessagePack, and their overhead.
        assert server.values[b"mail.out", "memory"][-1] > 5 * 8
        assert value(node.http, "lmq_statsd_datagrams_sent_total") > 0


def test_a_listener_is_not_required(server: Listener, tmp_path: Path) -> None:
    server.socket.close()
    arguments = ("--statsd", server.address, "--statsd-interval", "1")
    with NodeProcess(tmp_path, arguments=arguments) as node, Client(node.rpc) as client:
        deadline = time.monotonic() + READY_S
        while not value(node.http, "lmq_statsd_datagrams_dropped_total"):
            client.push("jobs", "content")
            assert time.monotonic() < deadline
        assert client.pull("jobs", timeout=0) is not None


def test_an_unknown_host_name_does_not_stop_the_node(tmp_path: Path) -> None:
    with NodeProcess(tmp_path, arguments=("--statsd", "unknown.invalid:8125")) as node, Client(node.rpc) as client:
        client.push("jobs", "content")
        assert client.pull("jobs", timeout=0) is not None


QUEUED_METRIC = re.compile(rb"stats[.]q[.](\w+):([0-9]+)[|]([cg])[|]#queue:([^,|#]+),dc:x,env:y")
QUEUED_GAUGES = {
    "message_count",
    "first_message_visibility_timeout_sec",
    "last_message_visibility_timeout_sec",
    "longest_unpolled_message_sec",
}


class QueuedListener(Listener):
    """A `Listener` for the metrics of queued."""

    def note(self, line: bytes) -> None:
        match = QUEUED_METRIC.fullmatch(line)
        assert match is not None, line
        metric = match[1].decode()
        assert (match[3] == b"g") == (metric in QUEUED_GAUGES)
        self.values[match[4], metric].append(float(match[2]))


def test_three_nodes_send_the_metrics_of_queued_and_count_nothing_twice(tmp_path: Path) -> None:
    server = QueuedListener()
    arguments = (
        "--queued-statsd",
        server.address,
        "--queued-statsd-prefix",
        "stats.q",
        "--queued-statsd-tags",
        "dc:x,env:y",
    )
    with contextlib.closing(server.socket), Cluster(3, directory=tmp_path, arguments=arguments) as cluster:
        apis = [QueuedHttp(node.queued, "msgpack") for node in cluster]
        assert apis[0]("PUT", "/queue/a%2Cb").status == 200
        name = b"a_b"
        # The first sample of a new queue counts from zero; wait until every node has taken one.
        while not server.values[name, "message_count"]:
            server.take()
        apis[0].push("a,b", *"12345")
        apis[1].push("a,b", "6", delay=100)
        polled = apis[2].poll("a,b", count=4, hide=1000)
        apis[0].delete("a,b", *polled[:3], {"id": 7, "poll_tag": 7})
        apis[1].poll("a,b", count=1)
        for api in apis:
            assert api.poll("a,b") == []
        for metric, count in {
            "successful_push": 6,
            "successful_poll": 5,
            "successful_delete": 3,
            "missing_delete": 1,
            "empty_poll": 3,
        }.items():
            server.wait_for(name, metric, count)
        assert not {metric for _, metric in server.values} & {"suspended_push", "throttled_poll", "missing_update"}
        while server.values[name, "message_count"][-1] != 3:
            server.take()
        server.values.clear()
        while len(server.values[name, "message_count"]) < 3:
            server.take()
        # Nothing happened, and nothing is counted.
        assert {metric for _, metric in server.values} == QUEUED_GAUGES
        assert 900 < server.values[name, "last_message_visibility_timeout_sec"][-1] <= 1000
