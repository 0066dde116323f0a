"""Kestrel's statistics and settings over HTTP."""

from __future__ import annotations

import re
import socket
import struct
import time
from collections.abc import Callable

import pytest

from lmqcluster import Client

from .cluster import Cluster, NodeProcess, wait_for
from .kestrel_ports import Lines
from .raw_http import call


def test_statistics_are_valid_for_every_queue_name(node: NodeProcess, new_queue_name: Callable[[], str]) -> None:
    name = f"{new_queue_name()}\udcff"
    with Client(node.rpc) as client:
        client.push(name, "x")
    shown = f"q/{name.removesuffix(chr(0xDCFF))}\\xff/items"
    assert call(node.http, "GET", "/stats.json").json["gauges"][shown] == 1
    assert f"  {shown}: 1\n".encode() in call(node.http, "GET", "/stats.txt").body


def test_statistics_as_operators_read_them(shared_cluster: Cluster, queue_name: str) -> None:
    node, queue = shared_cluster[0], queue_name.encode()
    with Lines(node) as client:
        client.ask(b"set %b 0 0 3\r\nabc\r\nset %b 0 0 2\r\nde\r\n" % (queue, queue), b"STORED\r\n" * 2)
        client.ask(b"get %b/open\r\n" % queue, b"VALUE %b 0 3\r\nabc\r\nEND\r\n" % queue)
        tree = call(node.http, "GET", "/stats.json").json
        assert list(tree) == ["counters", "gauges", "labels", "metrics"]
        prefix = f"q/{queue_name}"
        names: tuple[str, ...] = ("items", "bytes", "open_transactions", "waiters", "mem_bytes", "max_items")
        assert [tree["gauges"][f"{prefix}/{name}"] for name in names] == [1, 2, 1, 0, 2, 2**31 - 1]
        names = ("total_items", "put_items", "transactions", "get_items_hit", "discarded")
        assert [tree["counters"][f"{prefix}/{name}"] for name in names] == [2, 2, 1, 1, 0]
        assert tree["labels"]["status"] == "UP"
        assert tree["gauges"]["connections"] >= 1

        # Counters since the previous request with the same name.
        namespace = f"/stats.json?namespace={queue_name}"
        call(node.http, "GET", namespace)
        client.ask(b"set %b 0 0 1\r\nf\r\n" % queue, b"STORED\r\n")
        counters = call(node.http, "GET", namespace).json["counters"]
        assert (counters[f"{prefix}/total_items"], counters["cmd_set"]) == (1, 1)
        assert call(node.http, "GET", namespace).json["counters"]["cmd_set"] == 0

        # No period has ended yet.
        tree = call(node.http, "GET", "/stats.json?period=60").json
        assert (tree["counters"][f"{prefix}/total_items"], tree["gauges"][f"{prefix}/items"]) == (0, 2)
        for wrong in ("59", "x", "3601", "-60"):
            assert call(node.http, "GET", f"/stats.json?period={wrong}").status == 400

        try:
            client.ask(b"status readonly\r\n", b"END\r\n")
            text = call(node.http, "GET", "/stats.txt").body.decode("latin-1")
        finally:
            client.ask(b"status up\r\n", b"END\r\n")
        assert re.match(r"counters:\n(  .+: \d+\n)+gauges:\n(  .+: \S+\n)+labels:\n  status: READONLY\n", text)
        assert "  status/readable: 1\n  status/writeable: 0\n" in text


def test_counters_of_a_node(shared_cluster: Cluster, queue_name: str) -> None:
    node, queue = shared_cluster[0], queue_name.encode()
    header = {"content-type": "application/json"}

    def counters() -> dict[str, int]:
        found: dict[str, int] = call(node.http, "GET", "/stats.json").json["counters"]
        return {name.removeprefix(f"q/{queue_name}/"): value for name, value in found.items()}

    before, began_s = counters(), int(time.time())
    with Lines(node) as client, Lines(node) as waiting:
        client.ask(b"get %b\r\nget %b/t=1/open\r\n" % (queue, queue), b"END\r\n" * 2)
        client.ask(b"set %b 0 0 3\r\nabc\r\nset %b 0 60 2\r\nde\r\n" % (queue, queue), b"STORED\r\n" * 2)
        after = counters()
        assert [after[name] for name in ("put_items", "put_bytes", "get_items_miss")] == [2, 5, 2]
        assert after["cmd_get_timeout_dropped"] == after["cmd_get_open_dropped"] == 0
        gauges = call(node.http, "GET", "/stats.json").json["gauges"]
        assert began_s - 1 <= gauges[f"q/{queue_name}/create_time"] <= time.time()

        # An alias counts only the items that it forwards.
        alias = b'{"destination_queues": ["%b"]}' % queue
        assert call(node.http, "PATCH", f"/properties/{queue_name}-alias", alias, header).status == 204
        client.ask(b"set %b-alias 0 0 4\r\nabcd\r\n" % queue, b"STORED\r\n")
        shown = b"queue '%b-alias' {\r\n  put_items=1\r\n  put_bytes=4\r\n  children=%b\r\n}\r\nEND\r\n" % (
            queue,
            queue,
        )
        client.ask(b"dump_stats %b-alias\r\n" % queue, shown)

        waiting.send(b"get %b-other/t=60000\r\n" % queue)
        wait_for(
            lambda: call(node.http, "GET", "/stats.json").json["gauges"].get(f"q/{queue_name}-other/waiters") == 1,
            "the get to wait",
        )
        # A reset: a client that shuts down only its sending side still gets its answer.
        waiting.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_for(lambda: counters()["waiters_aborted"] == before["waiters_aborted"] + 1, "the waiting get to be counted")


def test_queues_that_end_with_their_age_are_counted(shared_cluster: Cluster, queue_name: str) -> None:
    node = shared_cluster[2]
    names = ("queue_expires", "queue_deletes")
    before = call(node.http, "GET", "/stats.json").json["counters"]
    header = {"content-type": "application/json"}
    assert call(node.http, "PATCH", f"/properties/{queue_name}", b'{"max_queue_age": 0.1}', header).status == 204

    def grown() -> list[int]:
        now = call(node.http, "GET", "/stats.json").json["counters"]
        return [now[name] - before[name] for name in names]

    wait_for(lambda: grown() == [1, 1], "the queue to end")


def test_settings_by_the_names_of_kestrel(shared_cluster: Cluster, queue_name: str) -> None:
    node, queue = shared_cluster[1], queue_name.encode()
    path = f"/properties/{queue_name}"
    header = {"content-type": "application/json"}
    settings = b'{"max_items": 2, "discard_old_when_full": true, "max_age": 0.5e9, "max_item_size": 10}'
    assert call(node.http, "PATCH", path, settings, header).status == 204
    with Lines(node) as client:
        client.ask(b"set %b 0 0 1\r\n1\r\n" % queue + b"set %b 0 0 1\r\n2\r\n" % queue, b"STORED\r\n" * 2)
        client.ask(b"set %b 0 0 1\r\n3\r\n" % queue, b"STORED\r\n")
        client.ask(b"set %b 0 0 11\r\nxxxxxxxxxxx\r\n" % queue, b"NOT_STORED\r\n")
        client.ask(b"get %b\r\n" % queue, b"VALUE %b 0 1\r\n2\r\nEND\r\n" % queue)
        unset = b'{"max_items": null, "discard_old_when_full": null, "max_item_size": null}'
        assert call(node.http, "PATCH", path, unset, header).status == 204
        client.ask(b"set %b 0 0 11\r\nxxxxxxxxxxx\r\n" % queue, b"STORED\r\n")
        # An alias, and its removal.
        alias = b'{"destination_queues": ["%b+child"]}' % queue
        other = f"/properties/{queue_name}-alias"
        assert call(node.http, "PATCH", other, alias, header).status == 204
        client.ask(b"set %b-alias 0 0 1\r\na\r\n" % queue, b"STORED\r\n")
        client.ask(b"get %b-alias\r\n" % queue, b"END\r\n")
        client.ask(b"get %b+child\r\n" % queue, b"VALUE %b+child 0 1\r\na\r\nEND\r\n" % queue)
        assert call(node.http, "DELETE", other).status == 204
        client.ask(b"set %b-alias 0 0 1\r\nb\r\n" % queue, b"STORED\r\n")
        client.ask(b"get %b-alias\r\n" % queue, b"VALUE %b-alias 0 1\r\nb\r\nEND\r\n" % queue)
        # A child's plus sign is sent as %2B: alone it is a space in all addresses here.
        child = f"/properties/{queue_name}%2Bchild"
        assert call(node.http, "PATCH", child, b'{"max_items": 0}', header).status == 204
        client.ask(b"set %b+child 0 0 1\r\na\r\n" % queue, b"NOT_STORED\r\n")
    assert call(node.http, "PATCH", path, b'{"max_expire_sweep": 3}', header).status == 400


def test_an_open_read_expires_and_children_inherit_that(shared_cluster: Cluster, queue_name: str) -> None:
    node, queue = shared_cluster[0], queue_name.encode()
    settings, header = b'{"open_transaction_timeout": 0.2}', {"content-type": "application/json"}
    assert call(node.http, "PATCH", f"/properties/{queue_name}", settings, header).status == 204
    with Lines(node) as slow, Lines(shared_cluster[1]) as other:
        slow.ask(b"get %b+c/open\r\n" % queue, b"END\r\n")
        slow.ask(b"set %b 0 0 1\r\nx\r\n" % queue, b"STORED\r\n")
        for name in (queue, queue + b"+c"):
            item = b"VALUE %b 0 1\r\nx\r\nEND\r\n" % name
            slow.ask(b"get %b/open\r\n" % name, item)
            other.ask(b"get %b/t=10000/open\r\n" % name, item)
            # Another client has it now.
            slow.ask(b"get %b/close\r\n" % name, b"END\r\n")
            other.ask(b"get %b/abort\r\nget %b/peek\r\n" % (name, name), b"END\r\n" + item)


def test_a_poison_item_goes_to_the_dead_letter_queue_if_there_is_one(shared_cluster: Cluster, queue_name: str) -> None:
    """Kestrel specification 14, 6: deliveries are unlimited unless configured otherwise."""
    queue, dead = queue_name.encode(), queue_name.encode() + b"-dead"
    item = b"VALUE %b 0 1\r\nx\r\nEND\r\n"
    with (
        Lines(shared_cluster[0]) as client,
        Lines(shared_cluster[1]) as other,
        Lines(shared_cluster[2], "text") as text,
    ):
        client.ask(b"set %b 0 0 1\r\nx\r\n" % queue, b"STORED\r\n")
        for _ in range(10):
            client.ask(b"get %b/open\r\nget %b/abort\r\n" % (queue, queue), item % queue + b"END\r\n")
        settings = b'{"dead_letter_queue": "%b", "retry": 2}' % dead
        header = {"content-type": "application/json"}
        assert call(shared_cluster[0].http, "PATCH", f"/properties/{queue_name}", settings, header).status == 204
        client.ask(b"set %b 0 0 1\r\nx\r\n" % queue, b"STORED\r\n")
        # Earlier deliveries are not charged; from now on each item has three deliveries, whatever ends them.
        for _ in range(2):
            client.ask(b"get %b/open\r\nget %b/abort\r\n" % (queue, queue), item % queue + b"END\r\n")
        text.ask(b"get %b\n" % queue, b":x\n")
        text.close()
        other.ask(b"get %b/t=10000/open\r\n" % dead, item % dead)
        other.ask(b"get %b/close\r\n" % dead, b"END\r\n")
        client.ask(b"get %b\r\n" % queue, item % queue)


def test_the_age_is_that_of_the_item_fetched_last_and_grows(shared_cluster: Cluster, queue_name: str) -> None:
    queue = queue_name.encode()

    def age_ms() -> int:
        tree = call(shared_cluster[1].http, "GET", "/stats.json").json
        return int(tree["gauges"][f"q/{queue_name}/age_msec"])

    with Lines(shared_cluster[0]) as client:
        client.ask(b"set %b 0 0 3\r\nold\r\n" % queue, b"STORED\r\n")
        # Nothing has been fetched yet, so it is the age of the next item.
        wait_for(lambda: age_ms() >= 100, "the item to be 0.1 s old")
        client.ask(b"get %b/open\r\n" % queue, b"VALUE %b 0 3\r\nold\r\nEND\r\n" % queue)
        wait_for(lambda: age_ms() == 0, "the queue to be empty")
        client.ask(b"set %b 0 0 3\r\nnew\r\n" % queue, b"STORED\r\n")
        new_s = time.monotonic()
        wait_for(age_ms, "the queue to have an item")
        asked_s = time.monotonic()
        old_ms = age_ms()
        # The other item is a tenth of a second younger.
        assert (asked_s - new_s) * 1000 < old_ms < 3_600_000
        # It also grows when no item arrives any more.
        wait_for(lambda: age_ms() > old_ms, "the age to grow")


@pytest.mark.parametrize(
    ("request_", "transactions"),
    [
        (b"get %b\r\n", 0),
        (b"get %b/t=10\r\n", 0),
        (b"get %b/peek\r\n", 0),
        (b"get %b/open\r\n", 1),
        (b"get %b/close/open/t=10\r\n", 1),
        (b"monitor %b 100 1\r\n", 1),
    ],
)
def test_open_reads_are_transactions_and_other_gets_are_not(
    shared_cluster: Cluster, queue_name: str, request_: bytes, transactions: int
) -> None:
    queue = queue_name.encode()
    with Lines(shared_cluster[0]) as client:
        for _ in range(2):
            client.ask(b"get %b/open\r\n" % queue, b"END\r\n")
            client.ask(b"set %b 0 0 1\r\nx\r\n" % queue, b"STORED\r\n")
            client.send(request_ % queue)
            client.expect(b"VALUE %b 0 1\r\nx\r\nEND\r\n" % queue + (b"END\r\n" if b"monitor" in request_ else b""))
            client.ask(b"get %b/close\r\n" % queue, b"END\r\n")
            client.ask(b"flush %b\r\n" % queue, b"END\r\n")
    counters = call(shared_cluster[0].http, "GET", "/stats.json").json["counters"]
    assert counters[f"q/{queue_name}/transactions"] == 2 * transactions
    assert counters[f"q/{queue_name}/get_items_hit"] == (0 if b"peek" in request_ else 2)
