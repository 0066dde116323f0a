"""Kestrel's statistics reflect the actions of clients over every port, and all ports show the same."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

from lmqcluster import Client

from .cluster import Cluster, NodeProcess, wait_for
from .kestrel_ports import Lines
from .raw_http import Connection, call
from .raw_rpc import Rpc
from .test_kestrel_thrift import generated

JSON = {"content-type": "application/json"}
COMMANDS = (
    "cmd_get",
    "cmd_set",
    "cmd_peek",
    "cmd_monitor",
    "cmd_monitor_get",
    "get_hits",
    "get_misses",
    "total_connections",
)
OF_QUEUES = ("curr_items", "total_items", "queue_creates", "queue_deletes", "queue_expires")
BYTES = ("bytes_read", "bytes_written")


class Stats:
    """The statistics of a node, as its ports show them."""

    def __init__(self, node: NodeProcess, memcache: Lines) -> None:
        self.node = node
        self.memcache = memcache
        self.before = self.read()

    def tree(self) -> dict[str, Any]:
        """Return ``/stats.json``."""
        tree: dict[str, Any] = call(self.node.http, "GET", "/stats.json").json
        return tree

    def read(self) -> dict[str, int]:
        """Return the counters, which memcache and both forms over HTTP must show alike."""
        self.memcache.send(b"stats\r\n")
        lines = self.memcache.until(b"\r\nEND\r\n").decode("latin-1")
        figures = {name: int(value) for name, value in re.findall(r"^STAT (\w+) (\d+)\r$", lines, re.MULTILINE)}
        tree = self.tree()
        counters = tree["counters"] | {"curr_items": tree["gauges"]["items"]}
        text = call(self.node.http, "GET", "/stats.txt").body.decode("latin-1")
        for name in (*COMMANDS, *OF_QUEUES):
            shown = {counters[name], figures.get(name, counters[name])}
            if name != "curr_items":
                assert f"\n  {name}: {counters[name]}\n" in text
            assert len(shown) == 1, (name, shown)
        return {**{name: counters[name] for name in (*COMMANDS, *OF_QUEUES)}, **{name: figures[name] for name in BYTES}}

    def grown(self) -> dict[str, int]:
        """Return the growth of the counters, except those of bytes, since the last call."""
        now = self.read()
        before, self.before = self.before, now
        return {name: now[name] - before[name] for name in (*COMMANDS, *OF_QUEUES) if now[name] != before[name]}


def test_counters_follow_every_port_at_once(shared_cluster: Cluster, queue_name: str) -> None:
    node, queue = shared_cluster[1], queue_name.encode()
    item, end = b"VALUE %b 0 1\r\nx\r\nEND\r\n" % queue, b"END\r\n"
    with Lines(node) as watcher, Lines(node) as memcache, Lines(node, "text") as text, generated(node) as thrift:
        stats = Stats(node, watcher)

        def check(act: Callable[[], object], **grown: int) -> None:
            act()
            assert stats.grown() == grown

        put = {"cmd_set": 1, "curr_items": 1, "total_items": 1}
        check(lambda: memcache.ask(b"set %b 0 0 1\r\nx\r\n" % queue, b"STORED\r\n"), **put, queue_creates=1)
        check(lambda: memcache.ask(b"get %b/peek\r\n" % queue, item), cmd_peek=1, get_hits=1)
        check(lambda: memcache.ask(b"get %b\r\n" % queue, item), cmd_get=1, get_hits=1, curr_items=-1)
        check(lambda: memcache.ask(b"get %b\r\n" % queue * 3, end * 3), cmd_get=3, get_misses=3)
        check(lambda: text.ask(b"put %b:\nx\nx\n\n" % queue, b"+2\n"), cmd_set=2, curr_items=2, total_items=2)
        check(lambda: text.ask(b"peek %b\n" % queue, b":x\n"), cmd_peek=1, get_hits=1)
        check(lambda: text.ask(b"get %b\n" % queue, b":x\n"), cmd_get=1, get_hits=1, curr_items=-1)
        check(
            lambda: memcache.ask(b"monitor %b 60 1\r\n" % queue, item + end),
            cmd_monitor=1,
            cmd_monitor_get=1,
            get_hits=1,
            curr_items=-1,
        )
        check(lambda: thrift.peek(queue_name), cmd_peek=1, get_misses=1)
        check(lambda: thrift.put(queue_name, [b"x"], 0), **put)
        check(lambda: thrift.peek(queue_name), cmd_peek=1, get_hits=1)
        check(lambda: thrift.get(queue_name, 1, 0, 0), get_hits=1, curr_items=-1)

        open_before = stats.tree()["gauges"]["connections"]
        with Lines(node, "text") as extra:
            extra.ask(b"status\n", b":UP\n")
            assert stats.grown() == {"total_connections": 1}
            assert stats.tree()["gauges"]["connections"] == open_before + 1
        wait_for(lambda: stats.tree()["gauges"]["connections"] == open_before, "the connection to end")

        # Actions through another node count for queues.
        with Client(shared_cluster[0].rpc) as client:
            check(lambda: client.push(queue_name, "x"), curr_items=1, total_items=1)

        # A waiting request counts when it begins.
        memcache.send(b"get %b-other/t=60000\r\n" % queue)
        wait_for(lambda: thrift.peek(f"{queue_name}-other").waiters == 1, "the get to wait")
        grown = stats.grown()
        assert (grown["cmd_get"], grown["queue_creates"]) == (1, 1)

        before, request, answer = stats.before, b"peek %b\n" % queue, b":x\n"
        text.ask(request, answer)
        now = stats.read()
        assert now["bytes_read"] == before["bytes_read"] + len(b"stats\r\n") + len(request)
        assert now["bytes_written"] >= before["bytes_written"] + len(answer)


def test_queues_are_counted_however_they_are_created_and_deleted(shared_cluster: Cluster, queue_name: str) -> None:
    node, other = shared_cluster[0], shared_cluster[2]
    with Lines(node) as watcher, Lines(node) as memcache, Client(other.rpc) as client:
        stats = Stats(node, watcher)

        def make(name: str) -> None:
            memcache.ask(b"set %b 0 0 1\r\nx\r\n" % name.encode(), b"STORED\r\n")

        def seen(**grown: int) -> None:
            found = stats.grown()
            assert {name: found.get(name, 0) for name in ("queue_creates", "queue_deletes", "queue_expires")} == {
                "queue_creates": 0, "queue_deletes": 0, "queue_expires": 0, **grown,
            }  # fmt: skip

        make(queue_name)
        client.push(f"{queue_name}-rpc", "x")
        seen(queue_creates=2)
        memcache.ask(b"delete %b\r\n" % queue_name.encode(), b"DELETED\r\n")
        seen(queue_deletes=1)
        assert call(other.http, "DELETE", f"/v1/queues/{queue_name}-rpc").status == 204
        seen(queue_deletes=1)
        make(queue_name)
        seen(queue_creates=1)
        assert (
            call(other.http, "PATCH", f"/properties/{queue_name}-aged", b'{"max_queue_age": 0.05}', JSON).status == 204
        )
        expired = stats.before["queue_expires"] + 1
        wait_for(lambda: stats.tree()["counters"]["queue_expires"] == expired, "the queue to end")
        seen(queue_creates=1, queue_deletes=1, queue_expires=1)


def test_waiters_are_those_of_every_port(shared_cluster: Cluster, queue_name: str) -> None:
    node, queue = shared_cluster[0], queue_name.encode()
    pull = b'{"timeout": 60}'
    with contextlib.ExitStack() as stack:
        thrift = stack.enter_context(generated(node))
        watcher = stack.enter_context(Lines(node))

        def await_count(waiting: int) -> None:
            wait_for(lambda: thrift.peek(queue_name).waiters >= waiting, f"wait number {waiting} to be counted")
            assert thrift.peek(queue_name).waiters == waiting

        def lines(protocol: str, request: bytes) -> None:
            stack.enter_context(Lines(node, protocol)).send(request)

        def http(address: str, method: str, path: str, body: bytes | None) -> None:
            stack.enter_context(Connection(address)).ask(method, path, body, JSON)

        def by_thrift() -> None:
            client: Any = stack.enter_context(generated(node))
            client.send_get(queue_name, 2, 60_000, 1_000)

        poll = b'{"visibility_timeout_secs": 9, "wait_secs": 60}'
        waits = (
            lambda: lines("memcache", b"get %b/t=60000\r\n" % queue),
            lambda: lines("memcache", b"get %b/t=60000/peek\r\n" % queue),
            lambda: lines("memcache", b"monitor %b 60\r\n" % queue),
            lambda: lines("text", b"get %b 60000\n" % queue),
            lambda: lines("text", b"peek %b 60000\n" % queue),
            by_thrift,
            lambda: stack.enter_context(Rpc(node.rpc)).ask("pull", queue_name, 60),
            lambda: http(node.http, "GET", f"/messages/{queue_name}?t=60", None),
            lambda: http(node.http, "POST", f"/v1/queues/{queue_name}/pull", pull),
            lambda: http(node.queued, "POST", f"/queue/{queue_name}/messages/poll", poll),
        )
        for number, wait in enumerate(waits, 1):
            wait()
            await_count(number)
        watcher.send(b"dump_stats %b\r\n" % queue)
        assert b"  waiters=%d\r\n" % len(waits) in watcher.until(b"}\r\nEND\r\n")
        assert call(node.http, "GET", "/stats.json").json["gauges"][f"q/{queue_name}/waiters"] == len(waits)

        # Waits of Kestrel's clients end with the queue, other clients keep waiting for its name.
        assert call(node.http, "DELETE", f"/v1/queues/{queue_name}").status == 204
        wait_for(lambda: thrift.peek(queue_name).waiters <= 4, "waits to end with the queue")
        assert thrift.peek(queue_name).waiters == 4
